"""A database under test and its clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapter.stores import SqlStore, open_store

START = 1_800_000_000_000


@dataclass
class Clock:
    """Milliseconds that pass only when told to."""

    now: int = START

    def __call__(self) -> int:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@dataclass
class Backend:
    """One database, to which any number of stores may be opened."""

    uri: str
    clock: Clock = field(default_factory=Clock)
    stores: list[SqlStore] = field(default_factory=list)

    def open(self) -> SqlStore:
        store = open_store(self.uri, clock=self.clock)
        self.stores.append(store)
        return store
