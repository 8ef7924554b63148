"""The key file: made once, read only when it is safe to."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from tests.support.racing import said

from adapter import secretfile
from adapter.core.errors import ConfigurationError
from adapter.core.keys import PURPOSES
from adapter.keyfile import create_keys, load_keys, load_or_create, write_keys

posix_only = pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")


def same(one: object, other: object) -> bool:
    return repr(one) == repr(other)


def test_a_new_file_holds_a_key_for_every_purpose_and_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = create_keys(path, now=7)
    made.require(*PURPOSES)
    assert same(made, load_keys(path))
    assert {key["created_at"] for key in json.loads(path.read_text())["keys"]} == {7}


def test_without_a_time_the_clock_is_read(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys.json")
    created = json.loads((tmp_path / "keys.json").read_text())["keys"][0]["created_at"]
    assert created > 1_600_000_000


@posix_only
def test_file_and_folder_are_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "keys.json"
    create_keys(path, now=1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_nothing_but_the_key_file_is_left_behind(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys.json", now=1)
    write_keys(tmp_path / "keys.json", now=2)
    assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]


def test_writing_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert write_keys(path, now=1)
    before = path.read_bytes()
    assert not write_keys(path, now=2)
    assert path.read_bytes() == before


def test_creating_where_a_file_is_reads_that_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert same(create_keys(path, now=1), create_keys(path, now=2))


def test_load_or_create_makes_the_file_once_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    said: list[Path] = []
    first = load_or_create(path, now=1, created=said.append)
    second = load_or_create(path, now=2, created=said.append)
    assert same(first, second)
    assert said == [path]


def test_threads_that_start_at_once_end_with_one_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    gate = threading.Barrier(8)
    rings: list[str] = []

    def start() -> None:
        gate.wait()
        rings.append(repr(load_or_create(path)))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rings) == 8
    assert set(rings) == {repr(load_keys(path))}


def test_processes_that_start_at_once_end_with_one_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    code = (
        "import sys; from adapter.keyfile import load_or_create\nprint(load_or_create(sys.argv[1]))"
    )
    assert set(said(code, path)) == {repr(load_keys(path))}


@pytest.mark.parametrize("refusal", [PermissionError(1, "no links here"), OSError(95, "no")])
def test_a_file_system_without_hard_links_still_gets_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: OSError
) -> None:
    def no_links(*args: object) -> None:
        raise refusal

    monkeypatch.setattr(secretfile, "_POSIX", True)
    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "keys.json"
    assert write_keys(path, now=1)
    assert not write_keys(path, now=2)
    load_keys(path).require(*PURPOSES)


def test_where_a_rename_refuses_to_overwrite_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secretfile, "_POSIX", False)
    path = tmp_path / "keys.json"
    assert write_keys(path, now=1)
    load_keys(path).require(*PURPOSES)


def test_a_missing_file_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no key file at .*adapter keys new.*ADAPTER_KEY"):
        load_keys(tmp_path / "keys.json")


@posix_only
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_file_open_to_others_is_refused_with_its_chmod(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys.json"
    create_keys(path, now=1)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"ADAPTER_KEY_FILE.*chmod 600"):
        load_keys(path)
    path.chmod(0o600)
    load_keys(path)


@posix_only
def test_a_file_only_the_owner_may_read_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    create_keys(path, now=1)
    path.chmod(0o400)
    load_keys(path).require(*PURPOSES)


def test_permissions_are_not_judged_where_they_mean_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    create_keys(path, now=1)
    path.chmod(0o644)
    monkeypatch.setattr(secretfile, "_POSIX", False)
    load_keys(path).require(*PURPOSES)


def test_a_folder_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ADAPTER_KEY_FILE.*cannot be read"):
        load_keys(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hunter2-not-json",
        b"\xff\xfe\x00hunter2",
        b'{"version": 2, "keys": []}',
        b'{"version": 1, "keys": [{"kid": "hunter2", "secret": "hunter2"}]}',
        b'{"version": 1, "version": 1, "keys": ["hunter2"]}',
        b'{"version": 1, "keys": [{"kid": "hunter2", "alg": "HS256", "purpose": "seal",'
        b' "secret": "aHVudGVyMg==", "created_at": 1, "revoked_at": null}]}',
        b'{"version": 1, "keys": [{"kid": "a", "alg": "HS256", "purpose": "seal",'
        b' "secret": "hunter2", "created_at": "hunter2", "revoked_at": null}]}',
        b"[" * 100_000,
    ],
)
def test_a_malformed_file_is_refused_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="ADAPTER_KEY_FILE") as caught:
        load_keys(path)
    assert "hunter2" not in caught.value.message
    assert caught.value.__context__ is None


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match=r"cannot be written.*ADAPTER_KEY_FILE"):
        write_keys(tmp_path / "file" / "keys.json", now=1)


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"version": 1, "keys": []}')
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="has no key in it"):
        load_keys(path)
