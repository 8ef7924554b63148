"""One binding and the keys that sign it, where a test needs no more of a question than that."""

from __future__ import annotations

from adapter.core.keys import KeyRing
from adapter.core.signing import Binding

KEYS = KeyRing.from_secret(bytes(range(32)))
BINDING = Binding(
    audience="here",
    thread_id="t",
    checkpoint_ns="ns",
    task_id="k",
    tool_call_id="c",
    tool="send",
    kind="tool",
    arguments_digest="a",
    schema_digest="s",
    policy_digest="p",
    allowed=("approve", "reject"),
    quorum=1,
    issued_at=1,
    expires_at=2,
    approval_id=None,
)
HEX = BINDING.hex()
