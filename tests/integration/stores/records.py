"""Records that the tests of the stores write."""

from __future__ import annotations

from typing import Any

from adapter.core.store import Charge, Claim, Event, NewCall

T = "thread-1"


def key(n: int = 1) -> str:
    return f"{n:064x}"


def new_call(n: int = 1, **changes: Any) -> NewCall:
    fields: dict[str, Any] = {
        "key": key(n),
        "thread_id": T,
        "checkpoint_ns": "tools:1",
        "task_id": "task-1",
        "turn_id": "turn-1",
        "message_id": "message-1",
        "tool_call_id": f"call-{n}",
        "tool": "issue_refund",
        "arguments_digest": f"a{n}",
        "run_id": "run-1",
    }
    return NewCall(**(fields | changes))


def question(n: int = 1, **changes: Any) -> NewCall:
    request = {"tool": "issue_refund", "arguments": {"amount_cents": 500, "note": "gr\u00fc\u00df"}}
    return new_call(n, **({"request": request, "ttl": 60.0} | changes))


def claim(n: int = 1, **changes: Any) -> Claim:
    fields: dict[str, Any] = {
        "key": key(n),
        "run_id": "run-2",
        "owner": "worker-1",
        "lease": 30.0,
        "executed_digest": f"x{n}",
    }
    return Claim(**(fields | changes))


def ungated(n: int = 1, *, call: dict[str, Any] | None = None, **changes: Any) -> Claim:
    return claim(n, **({"new": new_call(n, **(call or {}))} | changes))


def event(name: str, **changes: Any) -> Event:
    fields: dict[str, Any] = {
        "id": name,
        "thread_id": T,
        "run_id": "run-1",
        "turn_id": "turn-1",
        "kind": "started",
        "body": b'{"id":"%b"}' % name.encode(),
    }
    return Event(**(fields | changes))


def charge(scope: str = "turn", limit: int | None = 10, amount: int = 1) -> Charge:
    return Charge(scope=scope, amount=amount, limit=limit)
