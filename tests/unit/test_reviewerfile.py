"""Enrolling: the private half in the reviewer's file, the public half in the server's."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from adapter import reviewerfile
from adapter.core.errors import ConfigurationError
from adapter.core.keys import Key
from adapter.keyfile import load_keys, write_keys
from adapter.reviewerfile import enrol_reviewer, load_reviewer, pin_server_key

posix_only = pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "server" / "keys.json"
    write_keys(path, now=1)
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "alice" / "key.json"


def enrolled(server: Path, own: Path, name: str = "alice", **more: Any) -> Any:
    return enrol_reviewer(server, own, name, ["finance"], now=2, **more)


def test_what_the_reviewer_signs_the_server_verifies(server: Path, own: Path) -> None:
    made = enrolled(server, own)
    reviewer = load_reviewer(own)
    assert reviewer.name == "alice"
    signature = reviewer.keys.sign("decision", b"m")
    ring = load_keys(server)
    assert ring.verify("decision", b"m", signature)
    assert ring.roles_of("alice", signature["kid"]) == {"finance"}
    assert reviewer.keys.verify("seal", b"m", ring.sign("seal", b"m"))
    assert made.own.kid == signature["kid"]


def test_the_servers_file_holds_no_private_half_of_a_reviewer(server: Path, own: Path) -> None:
    made = enrolled(server, own)
    (item,) = [key for key in json.loads(server.read_text())["keys"] if key.get("reviewer")]
    assert item["kid"] == made.own.kid
    assert "secret" not in item
    private = json.loads(own.read_text())["keys"][0]["private"]
    assert private not in server.read_text()


@posix_only
def test_both_files_are_their_owners_alone(server: Path, own: Path) -> None:
    enrolled(server, own)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (server, own)} == {0o600}


@posix_only
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_private_key_open_to_others_is_refused(server: Path, own: Path, mode: int) -> None:
    enrolled(server, own)
    own.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"ADAPTER_REVIEWER_KEY.*chmod 600"):
        load_reviewer(own)
    own.chmod(0o600)
    assert load_reviewer(own).name == "alice"


def test_an_encrypted_file_opens_with_its_passphrase(server: Path, own: Path) -> None:
    enrolled(server, own, passphrase="correct horse")
    assert load_reviewer(own, "correct horse").name == "alice"
    with pytest.raises(ConfigurationError, match="ADAPTER_REVIEWER_PASSPHRASE") as caught:
        load_reviewer(own, "another horse")
    assert str(own) in caught.value.message
    assert caught.value.__context__ is None


def test_a_file_that_exists_is_kept_and_nobody_enrolled(server: Path, own: Path) -> None:
    own.parent.mkdir()
    own.write_text("precious")
    before = server.read_bytes()
    with pytest.raises(ConfigurationError, match="not overwritten"):
        enrolled(server, own)
    assert own.read_text() == "precious"
    assert server.read_bytes() == before


def test_a_private_key_that_was_not_enrolled_is_not_left(
    server: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = server.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise ConfigurationError("disk full")

    monkeypatch.setattr("adapter.keyfile.replace_secret", full)
    with pytest.raises(ConfigurationError, match="disk full"):
        enrolled(server, own)
    assert not own.exists()
    assert server.read_bytes() == before


def test_a_missing_file_is_refused_with_the_command_that_makes_one(own: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"keys new --reviewer.*ADAPTER_REVIEWER_KEY"):
        load_reviewer(own)


@pytest.mark.parametrize(
    "content", [b"", b"hunter2", b"[" * 100_000, b'{"version": 1, "reviewer": "hunter2"}', b"[]"]
)
def test_a_malformed_file_is_refused_and_not_quoted(own: Path, content: bytes) -> None:
    own.parent.mkdir()
    own.write_bytes(content)
    own.chmod(0o600)
    with pytest.raises(ConfigurationError, match="ADAPTER_REVIEWER_KEY") as caught:
        load_reviewer(own)
    assert "hunter2" not in caught.value.message
    assert caught.value.__context__ is None


def test_the_servers_file_is_no_reviewers_file(server: Path) -> None:
    with pytest.raises(ConfigurationError, match="keys new --reviewer"):
        load_reviewer(server)


class TestPin:
    SEAL = Key(kid="seal-2", alg="Ed25519", purpose="seal", secret=bytes(range(32)))

    def test_requests_sealed_by_a_pinned_key_are_believed(self, server: Path, own: Path) -> None:
        enrolled(server, own)
        signature = {"kid": "seal-2", "alg": "Ed25519", "mac": self.SEAL.mac(b"m")}
        assert not load_reviewer(own).keys.verify("seal", b"m", signature)
        pin_server_key(own, self.SEAL)
        assert load_reviewer(own).keys.verify("seal", b"m", signature)

    def test_an_encrypted_file_needs_no_passphrase_for_it(self, server: Path, own: Path) -> None:
        enrolled(server, own, passphrase="correct horse")
        pin_server_key(own, self.SEAL)
        assert load_reviewer(own, "correct horse").keys.find("seal", "seal-2") is not None

    @pytest.mark.parametrize("content", ["{}", "[]", '{"server": [5]}'])
    def test_in_another_file_nothing_is_pinned(self, own: Path, content: str) -> None:
        own.parent.mkdir()
        own.write_text(content)
        own.chmod(0o600)
        with pytest.raises(ConfigurationError, match="no reviewer's key file"):
            pin_server_key(own, self.SEAL)
        assert own.read_text() == content


def test_what_it_offers() -> None:
    assert reviewerfile.__all__ == sorted(reviewerfile.__all__)
