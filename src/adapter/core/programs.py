"""What a call needs that a program makes itself: its place, its way to the tool, an id of its own.

The executor's stages are the same as for a model's call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from adapter.core.errors import ConfigurationError, PolicyDenied, ToolUsageError
from adapter.core.functions import Unjournaled
from adapter.core.invoke import Invocation
from adapter.core.policy import Policy, decide
from adapter.core.scope import task_scope
from adapter.core.spec import Registry
from adapter.core.types import CallContext, JsonObject, ToolCall
from adapter.core.validation import Admission
from adapter.core.work import Work

__all__ = [
    "asks_a_person",
    "check_distinct",
    "here",
    "implementation",
    "is_journaled",
    "note",
    "unjournaled",
]


def here() -> CallContext:
    """Return where a call stands that names no place itself.

    Raises:
        ToolUsageError: No front end said so.
    """
    scope = task_scope.get()
    if scope is None or scope.context is None:
        msg = (
            "This call has no place: give executor.run(call, ctx) a context (bind_context() inside "
            "a LangGraph node), or wrap the node with one_use."
        )
        raise ToolUsageError(msg)
    return scope.context


def implementation(registry: Registry, call: ToolCall) -> Invocation:
    """Return the registry's own way to a tool.

    Raises:
        ConfigurationError: It has none.
    """
    made = registry.implementations.get(call.name)
    if made is None:
        msg = (
            f"The registry has no implementation of {call.name}: make it with "
            "registry_of(tools, specs), or give Registry(implementations=...)."
        )
        raise ConfigurationError(msg)
    return made.invocation(call)  # type: ignore[no-any-return]


def unjournaled(
    call: ToolCall, registry: Registry, policy: Policy | None, inner: Invocation
) -> tuple[ToolCall, Invocation, JsonObject]:
    """Return a call whose arguments have no JSON form, as one that has a row and no replay.

    Returns:
        The call, its way to the tool and its canonical arguments, with a placeholder for the real.

    Raises:
        ToolUsageError: A person must approve it, or it may run once in a run.
    """
    spec, schema = registry.get(call.name), registry.schemas[call.name]
    values = getattr(schema, "values", dict)(call.arguments)
    if spec is not None and decide(spec, values, policy).rule is not None:
        msg = (
            f"{call.name} needs an approval, and its arguments are no JSON: nobody could sign "
            "for them. Give JSON arguments (a path as text)."
        )
        raise ToolUsageError(msg)
    if spec is not None and spec.once_per_run:
        msg = (
            f"{call.name} runs once in a run for the same arguments (once_per_run), and these are "
            "no JSON: whether they are the same cannot be told. Give JSON arguments (a path as "
            "text)."
        )
        raise ToolUsageError(msg)
    blank: JsonObject = {"unjournaled": True}
    return replace(call, arguments=blank), Unjournaled(inner, values), blank


def note(work: Work) -> None:
    """Note in the host's task that a call runs which cannot be recognised when the task re-runs."""
    scope = task_scope.get()
    if scope is not None:
        scope.unjournaled.append(work.call.id)


def is_journaled(work: Work) -> bool:
    """Tell whether even a read is recorded: what the node's code decides by it must not change.

    So is one that another call of the run may be given.
    """
    if work.spec.once_per_run:
        return True
    scope = task_scope.get()
    return scope is not None and scope.journaled and not isinstance(work.invocation, Unjournaled)


def check_distinct(calls: Sequence[ToolCall]) -> None:
    """Refuse two calls of one id.

    Raises:
        ToolUsageError: There are two.
    """
    if len({call.id for call in calls}) != len(calls):
        msg = "run_many: two calls have the same id; give each its own, the same on a re-run."
        raise ToolUsageError(msg)


def asks_a_person(
    call: ToolCall, registry: Registry, policy: Policy | None, admission: Admission
) -> bool:
    """Tell whether a person must decide about a call; one that will be refused asks nobody."""
    spec, arguments = registry.get(call.name), admission.arguments.get(call.id)
    if spec is None or arguments is None:
        return False
    try:
        return decide(spec, arguments, policy).rule is not None
    except PolicyDenied:
        return False
