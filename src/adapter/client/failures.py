"""Turns what can go wrong between here and the server into errors that name the cure.

Pure: exceptions of langgraph-sdk and httpx in, errors of the one tree out. What the server or a
proxy wrote is not repeated.
"""

from __future__ import annotations

from adapter.core.errors import AdapterError, ConfigurationError, ToolUsageError

__all__ = ["ServerFailed", "explain", "missing_sdk"]

_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_CONFLICT = 409
_UNPROCESSABLE = 422
_UNREADABLE = (400, 500)


class ServerFailed(AdapterError):
    """The server could not do this one request; it is there, and others may well succeed."""


def missing_sdk() -> ConfigurationError:
    """Return the error for an installation without langgraph-sdk."""
    return ConfigurationError(
        "ApprovalClient needs langgraph-sdk, which is not installed: run "
        "`pip install 'agent-adapter[langgraph]'`."
    )


def explain(error: Exception, *, url: str, thread_id: str | None) -> AdapterError:
    """Return the adapter's error for a failed request.

    Args:
        error: What langgraph-sdk or httpx raised.
        url: The server's address.
        thread_id: The thread the request was about, if any.
    """
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None:
        return _unreachable(error, url)
    if status == _UNAUTHORIZED:
        return ConfigurationError(
            f"The server at {url} does not accept this client's credential (HTTP 401): set "
            "ADAPTER_TOKEN to a valid token, or give token=."
        )
    if status == _FORBIDDEN:
        return ConfigurationError(
            f"The server at {url} does not allow this (HTTP 403): sign in as a reviewer who may "
            "decide here (ADAPTER_TOKEN, or token=)."
        )
    if status in (_NOT_FOUND, _UNPROCESSABLE) and thread_id is not None:
        return ToolUsageError(
            f"The server at {url} has no thread {thread_id} (HTTP {status}), or not for you: check "
            "the id and ADAPTER_URL."
        )
    if status == _NOT_FOUND:
        return ConfigurationError(
            f"There is no LangGraph server at {url} (HTTP 404): set ADAPTER_URL to its address."
        )
    if status == _CONFLICT:
        return ToolUsageError(
            f"Thread {thread_id} is busy (HTTP 409): wait until its run has ended and try again."
        )
    made = ServerFailed if status in _UNREADABLE else AdapterError
    return made(
        f"The server at {url} failed this request (HTTP {status}): look at the server's log, then "
        "try again; a pending request stays answerable."
    )


def _unreachable(error: Exception, url: str) -> AdapterError:
    # Names, not classes: httpx is loaded on use.
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"ReadTimeout", "WriteTimeout", "PoolTimeout"}:
        return AdapterError(
            f"The server at {url} did not answer in time; the run may still be going on. Look at "
            "the thread again before you repeat the answer."
        )
    if "JSONDecodeError" in names:
        return ConfigurationError(
            f"What answers at {url} is not a LangGraph server: set ADAPTER_URL to its address."
        )
    return ConfigurationError(
        f"The LangGraph server at {url} cannot be reached ({type(error).__name__}): start it, or "
        "set ADAPTER_URL to its address."
    )
