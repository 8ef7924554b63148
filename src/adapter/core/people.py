"""Who may decide: roles, the requester, one vote each, and agreement on what is approved.

Pure rules over what the store knows of a question; they run inside the judge of answers, so their
errors are as constant as its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter.core.algorithms import folded
from adapter.core.canonical import digest
from adapter.core.decisions import INVALID
from adapter.core.errors import InvalidAnswer
from adapter.core.keys import KeyRing
from adapter.core.records import Vote
from adapter.core.types import JsonObject

__all__ = ["People"]


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """The rules about people for one question.

    Attributes:
        roles: A reviewer needs one of these; empty for any reviewer.
        excluded: The requester, where they may not approve their own call.
        signed_in: The authenticated user who brings the answer, where nobody may bring another's.
        votes: Votes that still count.
    """

    roles: tuple[str, ...] = ()
    excluded: str | None = None
    signed_in: str | None = None
    votes: tuple[Vote, ...] = ()

    def check(self, keys: KeyRing, reviewer: str, kid: str, *, approves: bool) -> None:
        """Judge a reviewer. Who voted may still say no: a no ends the question at any time.

        Names that read the same are one person's.

        Raises:
            InvalidAnswer: No role, the requester, a second vote, or another name than the user's
                under a key that is nobody's own. That a person's own key speaks for this person
                was judged with its signature.
        """
        name = folded(reviewer)
        if (
            not self.has_role(keys, reviewer, kid)
            or self._borrows(keys, reviewer, kid)
            or (self.excluded is not None and name == folded(self.excluded))
            or (approves and any(folded(vote.reviewer) == name for vote in self.votes))
        ):
            raise InvalidAnswer(INVALID)

    def _borrows(self, keys: KeyRing, reviewer: str, kid: str) -> bool:
        """Tell whether a signed-in user uses a shared key in another's name."""
        shared = keys.reviewer_of(kid) is None
        return shared and self.signed_in is not None and reviewer != self.signed_in

    def has_role(self, keys: KeyRing, reviewer: str, kid: str) -> bool:
        """Tell whether a reviewer has one of the roles."""
        return not self.roles or bool(keys.roles_of(reviewer, kid) & set(self.roles))

    def agree(self, arguments: JsonObject) -> None:
        """Judge whether an approval is for what the earlier ones approved.

        Raises:
            InvalidAnswer: It approves other arguments; nobody would have signed for both.
        """
        if any(vote.executed_digest != executed_digest(arguments) for vote in self.votes):
            raise InvalidAnswer(INVALID)

    def standing(self, keys: KeyRing, votes: Sequence[Vote]) -> tuple[Vote, ...]:
        """Return the votes that still count: their key is not revoked, their role not lost.

        Of those of one person, under names that read the same, the first.
        """
        found: dict[str, Vote] = {}
        for vote in votes:
            valid = keys.find("decision", vote.kid) is not None
            if valid and self.has_role(keys, vote.reviewer, vote.kid):
                found.setdefault(folded(vote.reviewer), vote)
        return tuple(found.values())


def executed_digest(arguments: JsonObject) -> str:
    """Return the digest of arguments as they run."""
    return digest("executed/v1", arguments)
