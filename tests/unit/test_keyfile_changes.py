"""A key file changes at one stroke, and a running program learns of it."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.racing import said

from adapter import keyfile, secretfile
from adapter.core.errors import ConfigurationError
from adapter.core.keychange import revoke, rotate
from adapter.core.keys import KeyRing
from adapter.keyfile import KeyFileSource, create_keys, edit_keys, load_keys, write_keys

posix_only = pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
SOURCE = Path(keyfile.__file__).parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "keys.json"
    write_keys(made, now=1)
    return made


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamps are believed at once, as for a file that is two seconds old."""
    monkeypatch.setattr(keyfile, "_RACY_NS", -(10**18))


def rotated(path: Path) -> str:
    (made,) = edit_keys(path, lambda ring: rotate(ring, ["decision"], now=2))
    return made.kid


def read(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def revoked(path: Path, kid: str) -> None:
    edit_keys(path, lambda ring: revoke(ring, kid, now=3))


class TestEdit:
    @posix_only
    def test_the_new_content_is_the_owners_alone(self, path: Path) -> None:
        rotated(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_nothing_but_the_file_and_its_lock_is_left(self, path: Path) -> None:
        rotated(path)
        assert {file.name for file in path.parent.iterdir()} == {"keys.json", ".keys.json.lock"}

    def test_a_change_that_fails_leaves_the_file(self, path: Path) -> None:
        before = path.read_bytes()
        with pytest.raises(ConfigurationError, match="no key 'other'"):
            revoked(path, "other")
        assert path.read_bytes() == before

    def test_no_lock_file_appears_beside_what_is_no_key_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="There is no key file"):
            rotated(tmp_path / "keys.json")
        assert list(tmp_path.iterdir()) == []

    @posix_only
    def test_a_link_to_the_file_stays_a_link(self, path: Path) -> None:
        link = path.with_name("link.json")
        link.symlink_to(path)
        kid = rotated(link)
        assert link.is_symlink()
        assert load_keys(path).newest("decision").kid == kid

    @posix_only
    def test_a_file_changed_by_another_user_keeps_its_owner(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given: list[tuple[int, int]] = []
        real = Path.stat

        def seen(self: Path, **named: bool) -> os.stat_result:
            found = real(self, **named)
            if self.name == "keys.json":
                fields = list(found)
                fields[4], fields[5] = 1234, 5678
                return os.stat_result(fields)
            return found

        monkeypatch.setattr(Path, "stat", seen)
        monkeypatch.setattr(os, "chown", lambda _, uid, gid: given.append((uid, gid)))
        rotated(path)
        assert given == [(1234, 5678)]

    def test_a_content_that_cannot_be_put_in_place_is_a_clear_error(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        before = path.read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ConfigurationError, match=r"cannot be written \(No space"):
            rotated(path)
        assert path.read_bytes() == before
        assert not list(path.parent.glob("*.tmp"))

    @pytest.mark.parametrize("broken", ["open", "flock"])
    def test_a_lock_that_cannot_be_had_is_a_clear_error(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
    ) -> None:
        def refused(*_: object) -> None:
            raise OSError(37, "No locks available")

        if broken == "flock":
            monkeypatch.setattr(secretfile, "_lock", refused)
        else:
            path.with_name(".keys.json.lock").mkdir()
        with pytest.raises(ConfigurationError, match="ADAPTER_KEY_FILE"):
            rotated(path)

    def test_changes_of_several_threads_are_all_there(self, path: Path) -> None:
        gate = threading.Barrier(6)
        made: list[str] = []

        def change() -> None:
            gate.wait()
            made.append(rotated(path))

        threads = [threading.Thread(target=change) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(made) <= {key.kid for key in load_keys(path).keys}
        assert len(set(made)) == 6

    def test_changes_of_several_processes_are_all_there(self, path: Path) -> None:
        code = (
            "import sys\n"
            "from adapter.core.keychange import rotate\n"
            "from adapter.keyfile import edit_keys\n"
            "for _ in range(5):\n"
            "    print(edit_keys(sys.argv[1], lambda r: rotate(r, ['audit'], now=2))[0].kid)\n"
        )
        kids = said(code, path)
        assert len(kids) == 10
        assert set(kids) <= {key.kid for key in load_keys(path).keys}


class TestSource:
    def test_it_starts_with_the_file_or_not_at_all(self, path: Path, tmp_path: Path) -> None:
        assert KeyFileSource(path).current().keys == load_keys(path).keys
        with pytest.raises(ConfigurationError, match="There is no key file"):
            KeyFileSource(tmp_path / "none.json")

    @pytest.mark.anyio
    async def test_a_new_key_signs_after_a_refresh(self, path: Path) -> None:
        source = KeyFileSource(path)
        old = source.current()
        kid = rotated(path)
        assert source.current() is old
        await source.refresh()
        assert source.current().newest("decision").kid == kid

    @pytest.mark.anyio
    async def test_a_revoked_key_verifies_nothing_after_a_refresh(self, path: Path) -> None:
        source = KeyFileSource(path)
        kid = rotated(path)
        await source.refresh()
        signature = source.current().sign("decision", b"m")
        revoked(path, kid)
        await source.refresh()
        assert not source.current().verify("decision", b"m", signature)

    @pytest.mark.anyio
    async def test_a_file_that_did_not_change_is_not_read(
        self, path: Path, settled: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = KeyFileSource(path)
        old = source.current()

        def must_not(*_: object, **__: object) -> None:
            raise AssertionError("it was read")

        monkeypatch.setattr(keyfile, "read_secret", must_not)
        await source.refresh()
        assert source.current() is old

    @pytest.mark.anyio
    async def test_a_changed_stamp_is_noticed(self, path: Path, settled: None) -> None:
        source = KeyFileSource(path)
        kid = rotated(path)
        await source.refresh()
        assert source.current().newest("decision").kid == kid

    @pytest.mark.anyio
    async def test_a_touched_file_keeps_the_ring(self, path: Path, settled: None) -> None:
        source = KeyFileSource(path)
        old = source.current()
        os.utime(path, ns=(1, 1))
        await source.refresh()
        assert source.current() is old

    def test_a_change_that_leaves_size_and_times_is_noticed_while_the_file_is_new(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keyfile, "_stamp", lambda _: (1,))
        source = KeyFileSource(path)
        text = path.read_text()
        path.write_text(text.replace('"created_at": 1', '"created_at": 2'))
        assert {key.created_at for key in source.reload().keys} == {2}

    @pytest.mark.anyio
    @pytest.mark.parametrize(
        "break_it",
        [
            lambda path: path.write_text('{"version": 1, "keys": [hunter2'),
            lambda path: path.unlink(),
            lambda path: path.chmod(0o644),
        ],
        ids=["half-written", "missing", "open to others"],
    )
    @pytest.mark.parametrize("trusted", [False, True])
    @posix_only
    async def test_a_file_that_went_bad_keeps_the_last_good_ring_and_is_logged_once(
        self,
        path: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        break_it: Callable[[Path], None],
        trusted: bool,
    ) -> None:
        if trusted:
            monkeypatch.setattr(keyfile, "_RACY_NS", -(10**18))
        source = KeyFileSource(path)
        old, good = source.current(), read(path)
        break_it(path)
        for _ in range(3):
            await source.refresh()
        assert source.current() is old
        (record,) = [found for found in caplog.records if found.levelno == logging.ERROR]
        assert str(path) in record.getMessage()
        assert "hunter2" not in caplog.text

        put(path, good)
        kid = rotated(path)
        await source.refresh()
        assert source.current().newest("decision").kid == kid

    @pytest.mark.anyio
    async def test_the_same_trouble_after_a_recovery_is_logged_again(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = KeyFileSource(path)
        good = read(path)
        for content in (b"bad", good, b"bad"):
            put(path, content)
            await source.refresh()
        assert len([found for found in caplog.records if found.levelno == logging.ERROR]) == 2

    def test_the_file_is_looked_at_once_a_second_where_it_may_be_read(
        self, path: Path, settled: None
    ) -> None:
        now = [0.0]
        source = KeyFileSource(path, clock=lambda: now[0])
        old = source.recent().newest("decision").kid
        new = rotated(path)
        now[0] = 0.9
        assert source.recent().newest("decision").kid == old
        now[0] = 1.0
        assert source.recent().newest("decision").kid == new
        revoked(path, new)
        assert source.recent().newest("decision").kid == new
        now[0] = 2.0
        assert source.recent().newest("decision").kid == old

    def test_it_does_not_follow_a_change_of_folder(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(path.parent)
        source = KeyFileSource(Path(path.name))
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        kid = rotated(path)
        assert source.reload().newest("decision").kid == kid
        assert repr(source) == f"KeyFileSource({str(path)!r})"

    def test_another_process_learns_of_rotation_and_revocation(self, path: Path) -> None:
        """A running verifier, asked over its pipe, and `adapter keys` in a process of its own."""
        serve = (
            "import asyncio, json, sys\n"
            "from adapter.keyfile import KeyFileSource\n"
            "source = KeyFileSource(sys.argv[1])\n"
            "for line in sys.stdin:\n"
            "    asyncio.run(source.refresh())\n"
            "    ring = source.current()\n"
            "    good = ring.verify('decision', b'm', json.loads(line))\n"
            "    print(json.dumps([good, ring.newest('decision').kid]), flush=True)\n"
        )
        env = {**os.environ, "PYTHONPATH": str(SOURCE), "ADAPTER_KEY_FILE": str(path)}
        # The first key is compromised.
        signature = load_keys(path).sign("decision", b"m")
        server = subprocess.Popen(
            [sys.executable, "-c", serve, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

        def asked() -> tuple[bool, str]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(signature) + "\n")
            server.stdin.flush()
            good, kid = json.loads(server.stdout.readline())
            return good, kid

        def command(*words: str) -> None:
            code = "from adapter.cli import main; main()"
            subprocess.run(
                [sys.executable, "-c", code, "keys", *words],
                check=True,
                env=env,
                cwd=path.parent,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        with server:
            assert asked() == (True, signature["kid"])
            command("rotate", "decision")
            good, kid = asked()
            assert good
            assert kid != signature["kid"]
            command("revoke", signature["kid"])
            assert asked() == (False, kid)
            assert server.stdin is not None
            server.stdin.close()
            assert server.wait(timeout=60) == 0


def test_a_made_file_is_a_source(tmp_path: Path) -> None:
    ring: KeyRing = create_keys(tmp_path / "keys.json", now=1)
    assert KeyFileSource(tmp_path / "keys.json").current().keys == ring.keys
