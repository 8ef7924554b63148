"""Where the nodes of one superstep meet before any of them works.

A gated node asks only when every gate before it, by name, is open; no node works before all of
them are. Knows nothing of who is asked, or of any host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

from adapter.core.types import JsonObject

__all__ = ["Barrier", "NotGranted"]

_State = Literal["asked", "open", "closed", "denied"]


class NotGranted(Exception):
    """A gate of this superstep is not open: nothing of it may work now.

    Attributes:
        gate: Its node.
        denied: A person said no, or nobody answered in time: the flow is over.
    """

    def __init__(self, gate: str, *, denied: bool = False) -> None:
        """Name the gate."""
        super().__init__(f"the gate before {gate} is not open")
        self.gate = gate
        self.denied = denied


class Barrier:
    """The gates of one superstep, in one event loop."""

    def __init__(
        self,
        gated: Iterable[str],
        members: Iterable[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Begin with every gate shut.

        Args:
            gated: Names of the nodes that have one.
            members: Names of all nodes of the superstep, for a reader of this object.
            timeout: Seconds within which a gated node has to show up; None waits for ever. How
                long its reviewer takes does not count.
        """
        self.gated = tuple(sorted(set(gated)))
        self.members = tuple(sorted({*members, *self.gated}))
        self._timeout = timeout
        self._state: dict[str, _State] = {}
        self._edits: dict[str, JsonObject | None] = {}
        self._changed = asyncio.Event()

    @property
    def edits(self) -> list[tuple[str, JsonObject]]:
        """Reviewers' edits of the state, by the nodes' names."""
        return [(name, edit) for name in self.gated if (edit := self._edits.get(name))]

    async def turn(self, node: str) -> None:
        """Wait until a gated node may ask: all gates before it are open.

        Raises:
            NotGranted: One of them is not.
        """
        self._state.setdefault(node, "asked")
        self._wake()
        await self._open([name for name in self.gated if name < node])

    def granted(self, node: str, edited: JsonObject | None = None) -> None:
        """Note that a gate is open."""
        self._state[node] = "open"
        self._edits[node] = edited
        self._wake()

    def closed(self, node: str, *, denied: bool = False) -> None:
        """Note that a gate stays shut in this run: it paused, was denied, or failed."""
        if self._state.get(node) != "open":
            self._state[node] = "denied" if denied else "closed"
            self._wake()

    async def wait(self, node: str) -> None:
        """Wait until a node may work: all gates are open, its own included.

        Raises:
            NotGranted: One of them is not.
        """
        await self._open([name for name in self.gated if name != node])
        if node in self.gated and self._state.get(node) != "open":
            raise NotGranted(node)

    async def _open(self, names: list[str]) -> None:
        for name in names:
            await self._until(lambda name=name: name in self._state, name, self._timeout)  # type: ignore[misc]
            await self._until(lambda name=name: self._state[name] != "asked", name, None)  # type: ignore[misc]
            if self._state[name] != "open":
                raise NotGranted(name, denied=self._state[name] == "denied")

    async def _until(self, met: Callable[[], bool], name: str, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not met():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise NotGranted(name) from None

    def _wake(self) -> None:
        self._changed.set()
