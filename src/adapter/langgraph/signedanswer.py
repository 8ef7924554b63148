"""SignedAnswer: what resumes a gated tool call, judged before LangGraph saves it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import override

from adapter.core.approvals import AnswerCheck
from adapter.core.errors import InvalidAnswer
from adapter.core.signing import answer_digest

__all__ = ["EXPECTED", "SCHEMA", "Expected", "SignedAnswer"]


@dataclass(slots=True, kw_only=True)
class Expected:
    """What the validator needs to know of the open question; the only way in is a ContextVar.

    Attributes:
        saved: Whether the answer comes from the checkpoint.
        refused: Digest of the answer that did not count, if one came.
    """

    check: AnswerCheck
    saved: bool
    refused: str | None = None


EXPECTED: ContextVar[Expected | None] = ContextVar("adapter_expected_answer", default=None)


class SignedAnswer(BaseModel):
    """A decision bound to one approval request and signed: what resumes a gated tool call."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, strict=True)

    binding: str
    decision: dict[str, Any]
    kid: str
    alg: str
    mac: str

    @model_validator(mode="wrap")
    @classmethod
    def judge(cls, value: Any, _handler: Any) -> Any:
        """Let AnswerCheck decide; anything it does not accept is an invalid resume."""
        expected = EXPECTED.get()
        if expected is None:
            msg = "no approval request is open here"
            raise ValueError(msg)
        try:
            return expected.check.check(value, saved=expected.saved)
        except InvalidAnswer as error:
            expected.refused = answer_digest(value)
            raise ValueError(error.message) from None

    @classmethod
    @override
    def __get_pydantic_json_schema__(cls, _core: Any, _handler: Any) -> dict[str, Any]:
        """Return one constant schema; deriving it would cost more than the pause."""
        return SCHEMA


SCHEMA: Final[dict[str, Any]] = {
    "title": "SignedAnswer",
    "description": "A decision bound to one approval request and signed.",
    "type": "object",
    "additionalProperties": False,
    "required": ["binding", "decision", "kid", "alg", "mac"],
    "properties": {
        "binding": {"type": "string"},
        "decision": {"type": "object"},
        "kid": {"type": "string"},
        "alg": {"type": "string"},
        "mac": {"type": "string"},
    },
}
"""Of a SignedAnswer; constant."""
