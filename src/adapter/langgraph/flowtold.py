"""What a run of a compiled flow says of itself: which run it is, how far it came, who said no.

It stands in the graph's state, which a client may write to. So the run's id and a denial are
signed, with the keys that seal a pause: what does not verify was not said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.core.canonical import canonical_bytes, domain
from adapter.core.errors import FlowError
from adapter.core.keys import KeyRing
from adapter.core.types import JsonObject
from adapter.flow.gating import state_digest
from adapter.langgraph.channels import as_overwrite

__all__ = ["Told", "counted"]

_RUN = "flow-run/v1"
_DENIED = "flow-denied/v1"
_READ = "flow-read/v1"
_MOST = 2**53
"""Numbers from here on are no count of anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Writes and reads the channel ``aa_flow`` of one flow.

    Attributes:
        flow: The flow's name.
        keys: Returns the ring in force.
        lasting: The keys are none that only this process has. Else nobody can be asked, and a
            run that another process began goes on unverified.
    """

    flow: str
    keys: Callable[[], KeyRing]
    lasting: bool = True

    def begun(self, thread_id: str, run: str) -> JsonObject:
        """Return what is said of a run that begins.

        Args:
            thread_id: Its thread.
            run: Tells it from every other run of the thread.
        """
        signed = self._sign(_RUN, thread_id, run)
        return {"run": run, "thread": thread_id, "steps": 0, "seal": signed}

    def read(self, values: JsonObject) -> JsonObject:
        """Return what is said of an input that was read, so that it is not read twice.

        Args:
            values: The fields, as JSON.
        """
        return {"read": self._sign(_READ, state_digest(values))}

    def is_read(self, values: JsonObject, told: Any) -> bool:
        """Tell whether these fields, and no others, were read by a process with these keys."""
        seal = told.get("read") if isinstance(told, Mapping) else None
        return seal is not None and self._signed(seal, _READ, state_digest(values))

    def denial(
        self, told: Mapping[str, Any], thread_id: str, node: str, reason: str, *, ran: bool
    ) -> JsonObject:
        """Return the write that ends a run because of a person's no, or their silence.

        Args:
            told: What is known of the run.
            thread_id: Where it runs now; a copy has another one than the thread that began it.
            node: Where it was said.
            reason: What was said.
            ran: The node ran; a gate's no is no run of its node.
        """
        signed = self._sign(_DENIED, thread_id, told["run"], node, reason)
        return {"node": node, "denied": reason, "ran": ran, "thread": thread_id, "seal": signed}

    def run(self, told: Any) -> str:
        """Return the id of the run that a thread makes; a copied thread goes on with its own calls.

        Raises:
            FlowError: This flow did not begin it.
        """
        if self._begun(told):
            return str(told["run"])
        msg = (
            f"flow {self.flow!r}: the run that this thread's state names was not begun by it: the "
            "state was written over, no run was begun, or it was signed with another key "
            "(checkpoint_key=, or the keys of the executor's port). Nothing ran. Begin a run with "
            "input, or fork an earlier checkpoint."
        )
        raise FlowError(msg)

    def denied(self, told: Any, thread_id: str) -> str | None:
        """Return why a thread's run was denied; None where nobody said no."""
        if not self._begun(told) or not self._no(told, told.get("no")):
            return None
        return str(told["denied"]) if told["no"]["thread"] == thread_id else None

    def merged(self, current: Any, writes: Sequence[Any]) -> Any:
        """Return what is known of the run after a superstep whose nodes said this, by name.

        Never raises: what a client wrote and does not hold changes nothing.
        """
        made = current
        for write in writes:
            whole = as_overwrite(write)
            if whole is not None and self._begun(whole.value):
                made = self._whole(whole.value)
        if not isinstance(made, Mapping):
            return current
        made = dict(made)
        said = [write for write in writes if isinstance(write, Mapping)]
        if any(write.get("ran") is True for write in said):
            made["steps"] += 1
        no = next(
            (one for one in said if self._no({**made, "denied": one.get("denied")}, one)), None
        )
        if no is not None:
            kept = {name: no[name] for name in ("node", "thread", "seal")}
            made |= {"denied": no["denied"], "no": kept}
        return made

    def _whole(self, value: Mapping[str, Any]) -> JsonObject:
        """Return a state that was given whole, without what nobody says here."""
        made = {name: value[name] for name in ("run", "thread", "seal")}
        steps = value.get("steps")
        made["steps"] = steps if _is_count(steps) else 0
        if self._no(value, value.get("no")):
            made |= {name: value[name] for name in ("denied", "no")}
        return made

    def _begun(self, told: Any) -> bool:
        if not isinstance(told, Mapping):
            return False
        facts = (told.get("thread"), told.get("run"))
        if not self.lasting:
            return "seal" in told and all(isinstance(one, str) for one in facts)
        return self._signed(told.get("seal"), _RUN, *facts)

    def _no(self, told: Mapping[str, Any], no: Any) -> bool:
        if not isinstance(no, Mapping):
            return False
        facts = (no.get("thread"), told.get("run"), no.get("node"), told.get("denied"))
        return self._signed(no.get("seal"), _DENIED, *facts)

    def _sign(self, purpose: str, *facts: str) -> JsonObject:
        return dict(self.keys().sign("state", self._message(purpose, facts)))

    def _signed(self, seal: Any, purpose: str, *facts: Any) -> bool:
        if not isinstance(seal, Mapping) or not all(isinstance(one, str) for one in facts):
            return False
        try:
            message = self._message(purpose, facts)
        except ValueError:  # text that has no canonical form
            return False
        return self.keys().verify("state", message, seal)

    def _message(self, purpose: str, facts: Sequence[str]) -> bytes:
        return domain(purpose) + canonical_bytes([self.flow, *facts])


def counted(current: Any, writes: Sequence[Any]) -> JsonObject:
    """Return counts by name after a superstep; what is no count changes nothing.

    Never raises: a client may write anything, and the thread must stay readable.
    """
    made: JsonObject = dict(current) if isinstance(current, Mapping) else {}
    for write in writes:
        whole = as_overwrite(write)
        given = write if whole is None else whole.value
        if not isinstance(given, Mapping):
            continue
        kept = {
            name: count
            for name, count in given.items()
            if isinstance(name, str) and _is_count(count)
        }
        if whole is None:
            made |= kept
        elif len(kept) == len(given):
            made = kept
    return made


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
