"""What both clients know: where the server is, who decides, with which keys.

Settings, keys and the SDK are loaded at first use, so that making a client costs nothing. All of
it may block: the asynchronous client calls it in threads.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from adapter.client import steps
from adapter.client.failures import explain, missing_sdk
from adapter.core.approvals import ApprovalDecision, sign_decision
from adapter.core.errors import AdapterError, ConfigurationError, ToolUsageError
from adapter.core.keys import KeyRing
from adapter.core.spec import DecisionKind
from adapter.core.types import JsonObject
from adapter.keyfile import KeyFileSource
from adapter.reviewerfile import load_reviewer
from adapter.settings import AdapterSettings

__all__ = ["Desk", "approval"]


def _clock() -> int:
    return time.time_ns() // 1_000_000


class Desk:
    """Base of both clients; does the same for both and talks to nobody.

    Attributes:
        factory: The langgraph_sdk function that makes the client's connection.
    """

    factory: ClassVar[str]

    def __init__(
        self,
        url: str | None = None,
        *,
        keys: KeyRing | None = None,
        reviewer: str | None = None,
        token: str | None = None,
        client: Any = None,
        clock: steps.Clock = _clock,
    ) -> None:
        """Keep what is given; the rest comes from the settings at first use.

        Args:
            url: The server; else ADAPTER_URL.
            keys: The server's seal key and the reviewer's decision key; else the reviewer's own
                file, ADAPTER_REVIEWER_KEY, and without one the shared file, ADAPTER_KEY_FILE.
            reviewer: Who decides; else the name in the reviewer's own file, or ADAPTER_REVIEWER.
            token: Sent as ``Authorization: Bearer``; else ADAPTER_TOKEN.
            client: A langgraph_sdk client to use instead of making one; its owner closes it.
            clock: Milliseconds since the epoch.
        """
        self._url = url.rstrip("/") if url else None
        self._keys: KeyRing | KeyFileSource | None = keys
        self._reviewer = reviewer
        self._token = token
        self._sdk = client
        self._owns = client is None
        self._clock = clock
        self._settings: AdapterSettings | None = None
        self._lock = threading.RLock()

    @override
    def __repr__(self) -> str:
        """Show no credential."""
        return f"{type(self).__name__}(url={self._url!r}, reviewer={self._reviewer!r})"

    def _read_settings(self) -> AdapterSettings:
        with self._lock:
            if self._settings is None:
                self._settings = AdapterSettings.load()
            return self._settings

    def _sign(self, value: Any, decision: ApprovalDecision) -> JsonObject:
        with self._lock:
            keys = self._current_keys()
            reviewer = self._reviewer or self._read_settings().reviewer
        return sign_decision(keys, value, decision, decided_at=self._clock(), reviewer=reviewer)

    def _current_keys(self) -> KeyRing:
        if self._keys is None:
            settings = self._read_settings()
            if settings.reviewer_key is None:
                self._keys = KeyFileSource(settings.key_file)
            else:
                self._keys = self._own_keys(settings, settings.reviewer_key)
        # The shared file may have been rotated since; a reviewer's own is read once.
        return self._keys.reload() if isinstance(self._keys, KeyFileSource) else self._keys

    def _own_keys(self, settings: AdapterSettings, path: Path) -> KeyRing:
        secret = settings.reviewer_passphrase
        own = load_reviewer(path, None if secret is None else secret.get_secret_value())
        if self._reviewer not in (None, own.name):
            raise ConfigurationError(
                f"The key in {path} (ADAPTER_REVIEWER_KEY) is {own.name}'s and cannot sign for "
                f"{self._reviewer}: leave the reviewer out, or use their file."
            )
        self._reviewer = own.name
        return own.keys

    def _connect(self) -> Any:
        with self._lock:
            if self._sdk is None:
                try:
                    import langgraph_sdk
                except ImportError:
                    raise missing_sdk() from None
                token = self._token
                if token is None and (given := self._read_settings().token) is not None:
                    token = given.get_secret_value()
                headers = {"Authorization": f"Bearer {token}"} if token else None
                make = getattr(langgraph_sdk, self.factory)
                self._sdk = make(url=self._address(), headers=headers)
            return self._sdk

    def _address(self) -> str:
        if self._url is None:
            self._url = self._read_settings().url if self._owns else "the given client's address"
        return self._url

    def _explained(self, error: Exception, call: steps.Call) -> AdapterError:
        """Return the adapter's error for one of the transport's; raise what is no such error."""
        import httpx

        if isinstance(error, httpx.HTTPError | httpx.InvalidURL) or (
            # Raised for a body that is no JSON.
            type(error).__name__ == "JSONDecodeError"
        ):
            return explain(error, url=self._address(), thread_id=call.thread_id)
        raise error


def approval(edited_args: JsonObject | None, reason: str | None) -> ApprovalDecision:
    """Return the decision that lets a call run, as asked or with edited arguments.

    Raises:
        ToolUsageError: The edited arguments are no mapping.
    """
    given: Any = edited_args
    if given is not None and not isinstance(given, dict):
        raise ToolUsageError(
            f"edited_args is a dict and not a {type(given).__name__}: of a tool's call all of its "
            "arguments by name, as the request shows them; of a gate some of the state's fields."
        )
    kind: DecisionKind = "approve" if edited_args is None else "edit"
    return ApprovalDecision(kind=kind, edited_args=edited_args, reason=reason)
