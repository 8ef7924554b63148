"""The lease of a claim, renewed for as long as what it covers runs."""

from __future__ import annotations

import asyncio
import logging

from adapter.core.errors import StoreUnavailable
from adapter.core.journal import Journal

__all__ = ["Lease"]

_log = logging.getLogger(__name__)


class Lease:
    """Renews a claim while its tool runs, costing nothing for a quick one."""

    def __init__(self, journal: Journal, key: str, fence: int) -> None:
        self._journal, self._key, self._fence = journal, key, fence
        self._task: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(journal.lease / 3, self._start)

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        while True:
            try:
                if not await self._journal.store.renew(self._key, self._fence, self._journal.lease):
                    return
            except StoreUnavailable:
                _log.warning("the lease of a running call could not be renewed")
            await asyncio.sleep(self._journal.lease / 3)

    def stop(self) -> None:
        """End renewing."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
