"""Composition root of the template: settings become keys, store, executor, middleware, agent.

The only room that knows how the parts fit together. Nobody imports ``agent.graph``; tests and
scripts build their own agent here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel

from adapter import Budgets, ConfigurationError, Executor
from adapter.core.sinks import AuditSink
from adapter.keyfile import KeyFileSource, load_or_create
from adapter.langgraph import AdapterMiddleware, LangGraphApproval, compile_flow, registry_of
from adapter.langgraph.bridge import run_sync
from adapter.pricefile import load_prices
from adapter.sinks import JsonlSink, OtelSink, SinkFanout
from adapter.stores import SqlStore, open_store
from agent.context import Context
from agent.database import AcmeDatabase
from agent.flows import order_flow
from agent.models import build_model
from agent.policies import ORDER_SPECS, POLICY, SPECS
from agent.prompts import SYSTEM_PROMPT
from agent.settings import AgentSettings
from agent.tools import build_order_tools, build_tools

__all__ = [
    "Parts",
    "build_agent",
    "build_order",
    "build_parts",
    "build_store",
    "keys_for",
    "served_parts",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the graphs of one process are made of.

    Attributes:
        executor: The agent's.
        ordering: The flow's, over the same store and port.
    """

    settings: AgentSettings
    tools: list[Any]
    store: SqlStore
    approval: LangGraphApproval
    executor: Executor
    ordering: Executor
    middleware: AdapterMiddleware


def keys_for(settings: AgentSettings) -> KeyFileSource:
    """Return the server's keys, making a key file at the first local start.

    A rotation or revocation in the file reaches the running server.

    Raises:
        ConfigurationError: No key file where one must be configured, or an unusable one.
    """
    local = settings.is_loopback or not settings.served
    if local and not settings.database_given:
        load_or_create(settings.key_file, created=_say_created)
    elif not settings.key_file.exists():
        msg = (
            f"There is no key file at {settings.key_file} (ADAPTER_KEY_FILE). A server with its "
            "own database or reachable from other machines needs a configured one: make it with "
            "`adapter keys new PATH` and give it to every process and reviewer."
        )
        raise ConfigurationError(msg)
    return KeyFileSource(settings.key_file)


def _say_created(path: Path) -> None:
    _log.warning("made a new key file: %s (keep it secret; reviewers on this machine use it)", path)


def build_store(settings: AgentSettings, keys: KeyFileSource) -> SqlStore:
    """Open the store, with signed audit heads and the sinks that the settings name.

    Heads are signed in the store's own thread, which also looks for changed keys.

    Raises:
        ConfigurationError: No audit key, or a sink that cannot be written.
    """
    keys.current().require("audit")
    sinks: list[AuditSink] = []
    file: JsonlSink | None = None
    if settings.audit_file is not None:
        file = JsonlSink(settings.audit_file)
        sinks.append(file)
    if settings.audit_otel != "off":
        sinks.append(OtelSink(arguments=settings.audit_otel == "arguments"))
    store = open_store(
        settings.database_uri,
        sqlite_sync=settings.sqlite_sync,
        head_signer=lambda message: keys.recent().sign("audit", message),
        outlet=SinkFanout(sinks) if sinks else None,
    )
    if file is not None:
        file.backlog = store.backlog  # what the file misses is read from there
    return store


def build_parts(settings: AgentSettings) -> Parts:
    """Wire the governed layer.

    Raises:
        ConfigurationError: A setting or declaration that cannot work, named.
    """
    _check_prices(settings)
    database = AcmeDatabase(settings.database)
    tools = build_tools(database, delay_ms=settings.tool_delay_ms)
    order_tools = build_order_tools(database, delay_ms=settings.tool_delay_ms)
    keys = keys_for(settings)
    store = build_store(settings, keys)
    # Now, and not at the first call: a database that cannot be used stops the start.
    run_sync(store.prepare())
    approval = LangGraphApproval(keys, on_invalid=settings.on_invalid, reviewer=settings.reviewer)
    shared: dict[str, Any] = {
        "store": store,
        "approval": approval,
        "policy": POLICY,
        "budgets": Budgets(**settings.budgets, prices=load_prices(settings.prices)),
        "audience": settings.audience,
        "approval_ttl": settings.approval_ttl,
        "lease": settings.lease,
        "cancel_grace": settings.cancel_grace,
        "self_approval": settings.self_approval,
        "relayed_answers": settings.relayed_answers,
    }
    executor = Executor(registry_of(tools, SPECS), **shared)
    return Parts(
        settings=settings,
        tools=tools,
        store=store,
        approval=approval,
        executor=executor,
        ordering=Executor(registry_of(order_tools, ORDER_SPECS), **shared),
        middleware=AdapterMiddleware(executor),
    )


def _check_prices(settings: AgentSettings) -> None:
    """Refuse a limit in dollars that nothing can be counted against: every run would fail."""
    limited = [f"cost_per_{span}" for span in ("turn", "thread", "user")]
    given = [f"ADAPTER_{name.upper()}" for name in limited if getattr(settings, name) is not None]
    if given and settings.prices is None:
        msg = (
            f"A limit in dollars is set ({', '.join(given)}), and ADAPTER_PRICES is not: no model "
            "has a price then. Set it to a price file or to genai, or remove the limit."
        )
        raise ConfigurationError(msg)


@cache
def served_parts() -> Parts:
    """Return the parts that all exported graphs of this process share, wired once.

    Raises:
        ConfigurationError: As `build_parts`.
    """
    return build_parts(AgentSettings.load())


def build_agent(
    settings: AgentSettings,
    *,
    model: BaseChatModel | None = None,
    parts: Parts | None = None,
    checkpointer: Any = None,
) -> Any:
    """Build the agent.

    Args:
        settings: The template's settings.
        model: Used instead of AGENT_MODEL's.
        parts: Used instead of newly wired ones.
        checkpointer: For use in process. The exported graph has none: the server brings its own.

    Raises:
        ConfigurationError: A setting or declaration that cannot work, named.
    """
    parts = parts or build_parts(settings)
    return create_agent(
        model or build_model(settings),
        parts.tools,
        system_prompt=SYSTEM_PROMPT,
        middleware=[parts.middleware],
        context_schema=Context,
        checkpointer=checkpointer,
        name="agent",
    )


def build_order(parts: Parts, *, checkpointer: Any = None) -> Any:
    """Build the flow `order` as a graph.

    Args:
        parts: What it is made of.
        checkpointer: As for `build_agent`.
    """
    graph = compile_flow(order_flow(), executor=parts.ordering)
    return graph.compile(checkpointer=checkpointer, name="order")
