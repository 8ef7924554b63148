"""Bindings, request seals and answer signatures: the wire forms of the approval protocol.

Pure functions over a key ring. What each signature covers is written here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from adapter.core.canonical import canonical_bytes, digest
from adapter.core.errors import InvalidAnswer
from adapter.core.keys import KeyRing
from adapter.core.types import JsonObject

__all__ = [
    "APPROVAL_TYPE",
    "USED",
    "Binding",
    "answer_digest",
    "check_answer",
    "check_seal",
    "from_iso",
    "sealed_value",
    "sign_answer",
    "to_iso",
]

APPROVAL_TYPE = "agent_adapter.approval"

USED = "used"
"""Key of an interrupt's value: its question was answered, and what came behind it failed."""

_ANSWER_FIELDS = frozenset({"binding", "decision", "kid", "alg", "mac"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Everything one approval is for; its digest is what an answer must name.

    The platform's run id is left out on purpose: on a server every resume is a new run.
    """

    audience: str
    thread_id: str
    checkpoint_ns: str
    task_id: str
    tool_call_id: str
    tool: str
    kind: str
    arguments_digest: str
    schema_digest: str
    policy_digest: str
    allowed: tuple[str, ...]
    quorum: int
    issued_at: int
    expires_at: int | None
    approval_id: str | None

    def hex(self) -> str:
        """Return the binding, 64 hexadecimal digits."""
        facts = {name: getattr(self, name) for name in self.__slots__}
        return digest("binding/v1", facts | {"allowed": sorted(self.allowed)})


def sealed_value(keys: KeyRing, binding: str, request: JsonObject) -> JsonObject:
    """Return the interrupt value: what is asked, bound and sealed by the server.

    Args:
        keys: Ring with a key for the purpose ``seal``.
        binding: Hexadecimal binding.
        request: What the reviewer reads, JSON only.
    """
    seal = keys.sign("seal", _seal_message(binding, request))
    return {"type": APPROVAL_TYPE, "binding": binding, "request": request, "seal": seal}


def check_seal(keys: KeyRing, value: object) -> JsonObject:
    """Return a genuine interrupt value, for a reviewer's tool about to sign.

    Args:
        keys: Ring holding the server's seal key.
        value: What the thread's state shows.

    Raises:
        InvalidAnswer: Not an approval request, or altered since the server sealed it.
    """
    if (
        isinstance(value, Mapping)
        and value.get("type") == APPROVAL_TYPE
        and isinstance(value.get("binding"), str)
        and isinstance(value.get("request"), Mapping)
        and isinstance(value.get("seal"), Mapping)
    ):
        try:
            message = _seal_message(value["binding"], value["request"])
        except ValueError:
            message = None
        if message is not None and keys.verify("seal", message, value["seal"]):
            return dict(value)
    msg = (
        "This is no approval request sealed by the server's key, or it was altered since: "
        "not signed. Check that ADAPTER_KEY_FILE, or the server's key pinned in the file of "
        "ADAPTER_REVIEWER_KEY, is the server's."
    )
    raise InvalidAnswer(msg)


def _seal_message(binding: str, request: Mapping[str, Any]) -> bytes:
    sealed = {"type": APPROVAL_TYPE, "binding": binding, "request": dict(request)}
    return canonical_bytes(sealed)


def sign_answer(keys: KeyRing, binding: str, decision: JsonObject) -> JsonObject:
    """Return the resume value: a decision bound to one request, signed."""
    message = canonical_bytes({"binding": binding, "decision": decision})
    return {"binding": binding, "decision": decision, **keys.sign("decision", message)}


def check_answer(keys: KeyRing, binding: str, value: object) -> JsonObject | None:
    """Return the decision of a resume value that is bound and signed, else None.

    Args:
        keys: Ring holding the reviewers' decision keys.
        binding: The binding of the question that is open here.
        value: The hostile resume value.
    """
    if not isinstance(value, Mapping) or value.keys() != _ANSWER_FIELDS:
        return None
    decision = value["decision"]
    if not isinstance(decision, Mapping) or not isinstance(value["binding"], str):
        return None
    try:
        message = canonical_bytes({"binding": binding, "decision": dict(decision)})
    except (ValueError, UnicodeEncodeError):
        return None
    # The signature is over OUR binding, so a value bound elsewhere cannot verify; the named
    # binding is compared as well, because it is shown to people.
    if value["binding"] != binding or not keys.verify("decision", message, value):
        return None
    # A good signature in another's name is still a forgery.
    if not keys.speaks_for(value["kid"], decision.get("reviewer")):
        return None
    return dict(decision)


def answer_digest(value: object) -> str:
    """Return the digest of any resume value, also of junk.

    Values without a canonical form share one digest per kind of fault; none of them is ever
    accepted, so sharing only merges audit lines.
    """
    try:
        return digest("answer/v1", value)
    except (ValueError, UnicodeEncodeError, RecursionError):
        return digest("answer/v1/odd", type(value).__name__)


def to_iso(milliseconds: int) -> str:
    """Return an RFC 3339 UTC time with milliseconds."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def from_iso(text: str) -> int:
    """Return milliseconds since the epoch.

    Raises:
        ValueError: No RFC 3339 time with a zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        msg = "a time needs a zone"
        raise ValueError(msg)
    return round(moment.timestamp() * 1000)
