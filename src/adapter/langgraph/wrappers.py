"""A policy over any graph's tools: wrappers for ToolNode, a middleware, a filter before bind_tools.

Thin: they find the tools of the node that runs, wire an Executor over them once, and hand each
call to it. What is decided, and in which order, is the executor's.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from adapter.core.approvals import ApprovalPort
from adapter.core.budgets import Budgets
from adapter.core.cache import ResultCache
from adapter.core.errors import (
    AdapterError,
    ConfigurationError,
    ModelVisibleError,
    ToolFailed,
    ToolTimeout,
)
from adapter.core.executor import Executor
from adapter.core.policy import Policy
from adapter.core.policycheck import plain_name
from adapter.core.ruling import check_ledger, warn_of_memory
from adapter.core.spec import ToolSpec
from adapter.core.store import Store
from adapter.langgraph import history
from adapter.langgraph.bridge import Arrivals, run_sync
from adapter.langgraph.calls import CallTurn
from adapter.langgraph.governed import ToolInvocation, registry_of
from adapter.langgraph.host import is_sent, running_task
from adapter.stores.memory import MemoryStore

__all__ = ["PolicyGate", "adapter_awrap_tool_call", "adapter_wrap_tool_call", "filter_tools"]

T = TypeVar("T")

_REMEMBERED = 64
_LIMITLESS = 2**53 - 1


class PolicyGate:
    """One policy, where it is kept, and an executor for each set of tools it has seen."""

    def __init__(
        self,
        policy: Policy,
        *,
        store: Store | None = None,
        approval: ApprovalPort | None = None,
        specs: Iterable[ToolSpec] = (),
        budgets: Budgets | None = None,
        messages_key: str = "messages",
        on_tool_failure: str = "message",
        **executor: Any,
    ) -> None:
        """Take the policy.

        Args:
            policy: Rules over all tools. Undeclared arguments are stripped unless it says
                ``ghost="refuse"``.
            store: The ledger. None keeps it in this process's memory, one per policy: then
                nothing survives the process, and the policy may not escalate to people.
            approval: How people are asked about calls the policy escalates, such as
                ``LangGraphApproval(keys)``. None leaves them to ``policy.approver``; with neither
                they are refused.
            specs: Full declarations of some tools; for the others one is made from the policy.
                Names are exact.
            budgets: Limits; None has none but the policy's rates.
            messages_key: Where the state's messages are, as ToolNode is told.
            on_tool_failure: ``message`` shows ToolFailed and ToolTimeout to the model; ``raise``
                ends the run.
            executor: Further arguments of ``Executor``; ``closed=True`` says that the policy and
                the specs are for one set of tools only, and refuses names that are none of them.

        Raises:
            ConfigurationError: The policy escalates to people without a durable ledger, or
                another value of ``on_tool_failure``.
        """
        check_ledger(policy, store, asks=approval is not None)
        if on_tool_failure not in ("message", "raise"):
            msg = f"on_tool_failure is 'message' or 'raise', not {on_tool_failure!r}."
            raise ConfigurationError(msg)
        self.policy, self._key = policy, messages_key
        self._specs = {spec.name: spec for spec in specs}
        self._shown: tuple[type[AdapterError], ...] = (ModelVisibleError,)
        if on_tool_failure == "message":
            self._shown = (ModelVisibleError, ToolFailed, ToolTimeout)
        cache = {} if "clock" not in executor else {"cache": ResultCache(clock=executor["clock"])}
        kept, limits = store or _memory(policy), budgets or _no_limits()
        warn_of_memory(kept, policy, limits, self._specs.values())
        self._options: dict[str, Any] = {
            "policy": policy,
            "store": kept,
            "approval": approval,
            "budgets": limits,
            "ghost": "strip",
            "closed": False,
            **cache,
            **executor,
        }
        self._lock = threading.Lock()
        self._arrivals = Arrivals()
        self._made: OrderedDict[tuple[int, ...], _Wired] = OrderedDict()

    def executor(self, tools: Sequence[BaseTool]) -> Executor:
        """Return the executor over these tools."""
        return self._wired(tools).executor

    def run(self, request: ToolCallRequest, invocation: ToolInvocation) -> Awaitable[Any]:
        """Take one call of a ToolNode through the policy and the executor's stages."""
        return self._wired(_tools_of(request)).calls.run(request, invocation)

    def wrap_tool_call(self, request: ToolCallRequest, execute: Callable[..., Any]) -> Any:
        """Govern one call of a synchronous run, as ToolNode's ``wrap_tool_call``."""
        invocation = ToolInvocation(request, execute, threaded=True)
        work = _awaited(self.run(request, invocation))
        task = None if is_sent(request.runtime.config) else running_task()
        if task is None:
            return run_sync(work)
        messages = history.messages_of(request.state, self._key)
        before = history.calls_before(messages, request.tool_call["id"])
        return run_sync(work, self._arrivals.turn(task, before))

    async def awrap_tool_call(
        self, request: ToolCallRequest, execute: Callable[..., Awaitable[Any]]
    ) -> Any:
        """Govern one call of an asynchronous run, as ToolNode's ``awrap_tool_call``."""
        return await self.run(request, ToolInvocation(request, execute, threaded=False))

    def _wired(self, tools: Sequence[BaseTool]) -> _Wired:
        key = tuple(sorted(id(tool) for tool in tools))
        with self._lock:
            known = self._made.get(key)
            if known is None:
                executor = self._over(tools)
                calls = CallTurn(executor, self._shown, messages_key=self._key)
                known = self._made[key] = _Wired(tools, executor, calls)
                if len(self._made) > _REMEMBERED:
                    self._made.popitem(last=False)
            else:
                self._made.move_to_end(key)
            return known

    def _over(self, tools: Sequence[BaseTool]) -> Executor:
        _check_specs(self._specs, [tool.name for tool in tools], closed=self._options["closed"])
        specs = [self._specs.get(tool.name) or self.policy.spec(tool.name) for tool in tools]
        return Executor(registry_of(tools, specs), **self._options)


def _check_specs(specs: Iterable[str], tools: Sequence[str], *, closed: bool) -> None:
    """Refuse a ToolSpec whose name is nearly a tool's: a typing error must remove no gate."""
    plain = {plain_name(name): name for name in tools}
    for name in specs:
        near = plain.get(plain_name(name))
        if name not in tools and (near is not None or closed):
            hint = f" Did you mean {near!r}?" if near else ""
            msg = (
                f"specs= names {name!r}, and there is no such tool (names are exact, also in case)."
                f"{hint} Tools are: {', '.join(sorted(tools)) or 'none'}."
            )
            raise ConfigurationError(msg)


class _Wired:
    """The executor of one set of tools; holds the tools, so that their ids stay theirs."""

    def __init__(self, tools: Sequence[BaseTool], executor: Executor, calls: CallTurn) -> None:
        self.tools = tuple(tools)
        self.executor = executor
        self.calls = calls


def adapter_wrap_tool_call(policy: Policy, **options: Any) -> Callable[..., Any]:
    """Return ToolNode's ``wrap_tool_call`` under a policy, for synchronous runs.

    Args:
        policy: Rules over all tools.
        options: As of ``PolicyGate``: ``store``, ``approval``, ``specs``, ``messages_key``, ...
    """
    return PolicyGate(policy, **options).wrap_tool_call


def adapter_awrap_tool_call(policy: Policy, **options: Any) -> Callable[..., Awaitable[Any]]:
    """Return ToolNode's ``awrap_tool_call`` under a policy, for asynchronous runs.

    Args:
        policy: Rules over all tools.
        options: As of ``PolicyGate``: ``store``, ``approval``, ``specs``, ``messages_key``, ...
    """
    return PolicyGate(policy, **options).awrap_tool_call


def filter_tools(tools: Iterable[T], policy: Policy) -> list[T]:
    """Return the tools a policy does not refuse outright, for ``model.bind_tools``.

    Args:
        tools: LangChain tools, functions, schema classes or provider dicts.
        policy: Tools it escalates are kept: a person can approve them.

    Raises:
        ConfigurationError: A tool without a name, which no rule could mean.
    """
    return [tool for tool in tools if policy.denied(_name_of(tool)) is None]


def _name_of(tool: Any) -> str:
    if isinstance(tool, dict):
        inner = tool.get("function")
        found = [tool.get("name"), tool.get("title"), tool.get("type")]
        if isinstance(inner, dict):
            found.insert(0, inner.get("name"))
    else:
        found = [getattr(tool, "name", None), getattr(tool, "__name__", None)]
    for name in found:
        if isinstance(name, str) and name:
            return name
    msg = f"A tool given to filter_tools has no name: {type(tool).__name__}."
    raise ConfigurationError(msg)


def _tools_of(request: ToolCallRequest) -> list[BaseTool]:
    """Return the node's tools; one that other middleware put into the request stands for its name.

    A tool the node does not have is None in the request, and no tool of this list has its name.
    """
    found = {tool.name: tool for tool in getattr(request.runtime, "tools", None) or ()}
    if request.tool is not None:
        found[request.tool.name] = request.tool
    else:
        found.pop(request.tool_call["name"], None)
    return list(found.values())


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def _no_limits() -> Budgets:
    return Budgets(
        model_calls_per_turn=_LIMITLESS, tool_calls_per_turn=_LIMITLESS, on_exceeded="refuse"
    )


_MEMORY: dict[int, tuple[Policy, MemoryStore]] = {}
"""One ledger per policy, so that its windows count sync and async calls together."""


def _memory(policy: Policy) -> MemoryStore:
    known = _MEMORY.get(id(policy))
    if known is None or known[0] is not policy:
        known = _MEMORY[id(policy)] = (policy, MemoryStore())
    return known[1]
