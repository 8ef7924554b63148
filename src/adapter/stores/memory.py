"""MemoryStore: the same store on a SQLite database in memory, for tests and trials.

It is no second state machine: nothing of it survives the process, and nothing else differs.
"""

from __future__ import annotations

from adapter.core.sinks import Outlet
from adapter.stores.chains import HeadSigner
from adapter.stores.database import Clock
from adapter.stores.sql import SqlStore

__all__ = ["MemoryStore"]


class MemoryStore(SqlStore):
    """A store that lives until it is closed.

    Args:
        clock: Milliseconds since the epoch; by default this process's.
        head_signer: Signs the audit chains' heads.
        outlet: Told of audit events once they are committed; closed with the store.

    Attributes:
        durable: False: a policy that escalates to people refuses such a ledger.
    """

    durable = False

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        head_signer: HeadSigner | None = None,
        outlet: Outlet | None = None,
    ) -> None:
        super().__init__("sqlite://", clock=clock, head_signer=head_signer, outlet=outlet)
