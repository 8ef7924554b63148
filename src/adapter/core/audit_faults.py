"""What can be wrong with an audit chain, and what it is compared with. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Fault", "FaultKind", "Witness"]

FaultKind = Literal[
    "malformed",
    "edited",
    "reordered",
    "dropped",
    "truncated",
    "doubled",
    "foreign",
    "run",
    "count",
    "head",
    "signature",
]
"""What is wrong: ``run`` is a run's own numbering, ``count`` the running count of links, ``head`` a
head that does not belong to the links, ``signature`` one that is missing or does not verify."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a chain.

    Attributes:
        seq: The link it concerns; the first one when several are missing.
        kind: What is wrong.
        message: One sentence for a person, without the event's content.
        event_id: Id of that link's event, where the link is at hand.
    """

    seq: int
    kind: FaultKind
    message: str
    event_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A head of the thread that was kept somewhere else.

    Attributes:
        source: Where, for a person.
    """

    seq: int
    hash: str
    source: str
