"""A local run between two processes: its progress as JSON, sealed for exactly this flow and run."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from pydantic_core import from_json, to_json

from adapter.core.errors import FlowError, StoreUnavailable
from adapter.core.executor import Executor
from adapter.core.ids import new_id
from adapter.core.keys import KeyRing
from adapter.core.sealing import Sealer
from adapter.core.types import JsonObject
from adapter.flow.shape import Shape
from adapter.flow.steps import Position

__all__ = [
    "Progress",
    "Seal",
    "give_rows",
    "given_keys",
    "own_keys",
    "seal_for",
    "sealer_for",
    "take_rows",
]

_PURPOSE = "flow-checkpoint/v1"

_SHUT_BY = (
    StoreUnavailable,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)

_SHUT = (
    "The checkpoint of flow {!r} does not open: it was altered, it belongs to another flow or to "
    "another version of this one, or it was sealed with another key (checkpoint_key=, or the keys "
    "of the executor's port). Nothing ran."
)


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
        run_id: The run.
        values: JSON of the state as the superstep in progress began.
        position: Its nodes.
        visits: Finished visits, by node.
        counts: Choices of routes, by ``pair``.
        steps: Finished supersteps.
        done: How the nodes of the superstep in progress ended that did, by node.
        asked: Node and call key of each open question, in order.
        denied: Why the run is over.
        rows: The journal's rows of the superstep in progress, where the store forgets them.
        audience: The installation their questions are bound to.
    """

    run_id: str
    values: JsonObject
    position: Position
    visits: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    done: dict[str, JsonObject] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    denied: str | None = None
    rows: list[JsonObject] = field(default_factory=list)
    audience: str | None = None

    def to_json(self) -> JsonObject:
        """Return its JSON form."""
        return {
            "run_id": self.run_id,
            "values": self.values,
            "active": list(self.position.active),
            "waiting": list(self.position.waiting),
            "visits": self.visits,
            "counts": self.counts,
            "steps": self.steps,
            "done": self.done,
            "asked": [list(one) for one in self.asked],
            "denied": self.denied,
            "rows": self.rows,
            "audience": self.audience,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Read the JSON form."""
        return cls(
            run_id=value["run_id"],
            values=value["values"],
            position=Position(active=tuple(value["active"]), waiting=tuple(value["waiting"])),
            visits=value["visits"],
            counts=value["counts"],
            steps=value["steps"],
            done=value["done"],
            asked=[(node, key) for node, key in value["asked"]],
            denied=value["denied"],
            rows=value["rows"],
            audience=value["audience"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Seals the progress of one flow's runs."""

    flow: Shape
    sealer: Sealer

    def close(self, progress: Progress) -> str:
        """Return the sealed text of a run's progress."""
        run_id = progress.run_id
        text = to_json(progress.to_json()).decode()
        sealed = self.sealer.seal(text, _PURPOSE, self.flow.digest, run_id)
        return base64.urlsafe_b64encode(to_json({"run": run_id, **sealed})).decode()

    def open(self, checkpoint: str) -> Progress:
        """Return the progress that was sealed.

        Raises:
            FlowError: It does not open.
        """
        try:
            outer: Any = json.loads(base64.urlsafe_b64decode(checkpoint.encode()))
            run_id = outer.pop("run")
            text = self.sealer.open(outer, _PURPOSE, self.flow.digest, str(run_id))
            return Progress.from_json(from_json(text))
        except _SHUT_BY as error:
            raise FlowError(_SHUT.format(self.flow.name)) from error


def seal_for(flow: Shape, executor: Executor, checkpoint_key: bytes | None) -> Seal:
    """Return the seal of a flow's checkpoints.

    Args:
        flow: The flow.
        executor: Its port's keys are taken where no secret is given.
        checkpoint_key: A secret of 16 or more bytes.

    Raises:
        ConfigurationError: The secret is short or a placeholder.
    """
    return Seal(flow=flow, sealer=sealer_for(executor, checkpoint_key))


def sealer_for(executor: Executor, checkpoint_key: bytes | None) -> Sealer:
    """Return what seals a flow's progress.

    Args:
        executor: Its port's keys are taken where no secret is given.
        checkpoint_key: A secret of 16 or more bytes.

    Raises:
        ConfigurationError: The secret is short or a placeholder.
    """
    ring = None if checkpoint_key is None else given_keys(checkpoint_key)
    port = executor.port

    def keys() -> KeyRing:
        if ring is not None:
            return ring
        return own_keys() if port is None else port.keys

    return Sealer(keys=keys)


def given_keys(checkpoint_key: bytes) -> KeyRing:
    """Return the keys of a secret that a flow was given for its checkpoints.

    Raises:
        ConfigurationError: The secret is short or a placeholder.
    """
    return KeyRing.from_secret(checkpoint_key, name="checkpoint_key")


@cache
def own_keys() -> KeyRing:
    """Return this process's random keys: what they seal opens nowhere else."""
    return KeyRing.random()


def _durable(executor: Executor) -> bool:
    """Tell whether the executor's store outlives this process."""
    return bool(getattr(executor.store, "durable", True))


async def take_rows(executor: Executor, progress: Progress, places: Sequence[str]) -> None:
    """Put the rows of a superstep into its progress, where the store forgets them.

    Args:
        executor: Whose store it is.
        progress: Changed in place.
        places: Checkpoint namespaces of the superstep's visits.
    """
    progress.rows = []
    if _durable(executor):
        return
    # A call that may run once in a run is known to the whole of it.
    whole = any(spec.once_per_run for spec in executor.registry)
    if whole or places:
        progress.rows = await executor.store.export_rows(progress.run_id, None if whole else places)
        progress.audience = await executor.store.audience(new_id())


async def give_rows(executor: Executor, progress: Progress) -> None:
    """Put the rows that a checkpoint carries into a store that lacks them."""
    if progress.rows and not _durable(executor):
        if progress.audience is not None:
            # Part of every binding: the questions these rows ask were asked under it.
            await executor.store.audience(progress.audience)
        await executor.store.adopt_rows(progress.rows)
