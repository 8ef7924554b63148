"""`adapter keys`: what each command changes, and that it never prints a secret."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from adapter.cli.app import app
from adapter.core.keydocument import encoded
from adapter.core.keys import Key
from adapter.keyfile import load_keys, write_keys
from adapter.reviewerfile import load_reviewer


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys.json"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAPTER_KEY_FILE", str(path))
    write_keys(path, now=1)
    return path


def run(*arguments: str, said: str | None = None) -> Result:
    done = CliRunner().invoke(app, ["keys", *arguments], input=said)
    for file in Path().glob("**/*.json"):
        if file.name != "precious.json":
            assert_hidden(done, json.loads(file.read_text()))
    return done


def assert_hidden(done: Result, document: dict[str, Any]) -> None:
    for key in document["keys"]:
        for name in ("secret", "private", "encrypted_private"):
            assert name not in key or key[name] not in done.output


def kid_of(server: Path, purpose: Any = "decision") -> str:
    return load_keys(server).newest(purpose).kid


class TestNew:
    def test_a_reviewer_gets_a_file_and_the_server_the_public_half(self, server: Path) -> None:
        done = run("new", "--reviewer", "alice", "--roles", "finance, boss", "--out", "a.json")
        assert done.exit_code == 0
        own = load_reviewer(Path("a.json"))
        assert own.name == "alice"
        ring = load_keys(server)
        kid = own.keys.newest("decision").kid
        assert ring.roles_of("alice", kid) == {"finance", "boss"}
        assert "a.json" in done.stdout
        assert "ADAPTER_REVIEWER_KEY" in done.stdout
        assert "seals requests with its own Ed25519 key" in done.stdout

    def test_without_out_it_is_beside_the_servers_file(self, server: Path) -> None:
        assert run("new", "--reviewer", "alice@acme.test").exit_code == 0
        assert load_reviewer(server.with_name("reviewer-alice@acme.test.json"))

    def test_the_second_reviewer_needs_no_new_seal_key(self) -> None:
        run("new", "--reviewer", "alice")
        done = run("new", "--reviewer", "bob")
        assert done.exit_code == 0
        assert "seals requests" not in done.stdout

    def test_the_passphrase_is_a_line_of_standard_input(self) -> None:
        done = run("new", "--reviewer", "alice", "--passphrase-stdin", said="correct horse\nmore\n")
        assert done.exit_code == 0
        assert "correct horse" not in done.output
        assert "ADAPTER_REVIEWER_PASSPHRASE" in done.stdout
        assert load_reviewer(Path("reviewer-alice.json"), "correct horse").name == "alice"

    @pytest.mark.parametrize("said", ["", "\n", "short\n"])
    def test_an_empty_or_short_passphrase_makes_nothing(self, server: Path, said: str) -> None:
        before = server.read_bytes()
        done = run("new", "--reviewer", "alice", "--passphrase-stdin", said=said)
        assert done.exit_code == 2
        assert "passphrase is too short" in done.stderr
        assert not Path("reviewer-alice.json").exists()
        assert server.read_bytes() == before

    def test_a_private_key_is_not_overwritten(self, server: Path) -> None:
        Path("precious.json").write_text("precious")
        before = server.read_bytes()
        done = run("new", "--reviewer", "alice", "--out", "precious.json")
        assert done.exit_code == 2
        assert Path("precious.json").read_text() == "precious"
        assert server.read_bytes() == before

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--roles", "finance"], "--reviewer"),
            (["--out", "x.json"], "--reviewer"),
            (["--passphrase-stdin"], "--reviewer"),
            (["x.json", "--reviewer", "alice"], "--out"),
            (["--reviewer", "a/b"], "--out"),
            (["--reviewer", ""], "reviewer is a name"),
            (["--reviewer", "alice", "--roles", "a\tb"], "role is a name"),
        ],
    )
    def test_what_does_not_belong_together_is_said(
        self, server: Path, arguments: list[str], said: str
    ) -> None:
        before = server.read_bytes()
        done = run("new", *arguments)
        assert done.exit_code == 2
        assert said in done.stderr
        assert server.read_bytes() == before
        assert not Path("x.json").exists()

    def test_without_a_server_file_nobody_is_enrolled(self, server: Path) -> None:
        server.unlink()
        done = run("new", "--reviewer", "alice")
        assert done.exit_code == 2
        assert "no key file" in done.stderr


class TestList:
    def test_every_key_is_a_line(self, server: Path) -> None:
        run("new", "--reviewer", "alice", "--roles", "finance")
        run("roles", "bob", "support")
        run("revoke", kid_of(server, "audit"))
        done = run("list")
        assert done.exit_code == 0
        lines = done.stdout.splitlines()
        assert lines[0].split() == [
            "KID", "ALG", "PURPOSE", "REVIEWER", "ROLES", "CREATED", "REVOKED",
        ]  # fmt: skip
        assert len(lines) == 1 + 5 + 2 + 1
        (alice,) = [line.split() for line in lines if "alice" in line]
        assert alice[1:5] == ["Ed25519", "decision", "alice", "finance"]
        assert "1970-01-01T00:00:01" in done.stdout
        (revoked,) = [line.split() for line in lines if line.startswith("audit-")]
        assert revoked[-1] != "-"
        assert lines[-1] == "by name: bob  support"

    def test_as_json(self, server: Path) -> None:
        run("roles", "bob", "support,finance")
        done = run("list", "--json")
        shown = json.loads(done.stdout)
        assert shown["reviewers"] == {"bob": ["finance", "support"]}
        assert shown["keys"] == load_keys(server).states()
        assert {"kid", "alg", "purpose", "reviewer", "roles", "created_at", "revoked_at"} <= set(
            shown["keys"][0]
        )


class TestRevoke:
    def test_the_key_no_longer_verifies(self, server: Path) -> None:
        run("rotate", "decision")
        signature = load_keys(server).sign("decision", b"m")
        done = run("revoke", signature["kid"])
        assert (done.exit_code, done.stderr) == (0, "")
        assert not load_keys(server).verify("decision", b"m", signature)

    def test_the_last_key_of_a_purpose_is_warned_of(self, server: Path) -> None:
        done = run("revoke", kid_of(server, "digest"))
        assert done.exit_code == 0
        assert "adapter keys rotate digest" in done.stderr
        assert "asked again" in done.stderr
        assert "asked again" not in run("revoke", kid_of(server, "seal")).stderr

    def test_what_a_state_key_sealed_is_warned_of(self, server: Path) -> None:
        run("rotate", "state")
        done = run("revoke", kid_of(server, "state"))
        assert done.exit_code == 0
        assert "no longer open" in done.stderr

    def test_an_unknown_or_revoked_key_is_an_error(self, server: Path) -> None:
        assert run("revoke", "other").exit_code == 2
        kid = kid_of(server)
        assert run("revoke", kid).exit_code == 0
        done = run("revoke", kid)
        assert done.exit_code == 2
        assert "revoked already" in done.stderr


class TestRotate:
    def test_all_but_digest(self, server: Path) -> None:
        before = {key.kid for key in load_keys(server).keys}
        done = run("rotate")
        assert done.exit_code == 0
        ring = load_keys(server)
        new = {key.purpose for key in ring.keys if key.kid not in before}
        assert new == {"seal", "decision", "state", "audit"}
        assert before < {key.kid for key in ring.keys}
        assert "digest" not in done.stderr

    def test_digest_where_it_is_named_with_a_warning(self, server: Path) -> None:
        old = load_keys(server).oldest("digest").kid
        done = run("rotate", "digest")
        assert done.exit_code == 0
        assert "oldest digest key" in done.stderr
        assert "asked again" in done.stderr
        assert load_keys(server).oldest("digest").kid == old

    def test_an_unknown_purpose_is_an_error(self, server: Path) -> None:
        before = server.read_bytes()
        done = run("rotate", "seals")
        assert done.exit_code == 2
        assert "seal, decision" in done.stderr
        assert server.read_bytes() == before

    def test_a_new_seal_key_is_pinned_with_the_command_that_is_printed(
        self, server: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run("new", "--reviewer", "alice", "--out", "a.json")
        done = run("rotate", "seal")
        (line,) = [line for line in done.stdout.splitlines() if "adapter keys pin" in line]
        seal = load_keys(server).sign("seal", b"m")
        assert not load_reviewer(Path("a.json")).keys.verify("seal", b"m", seal)
        monkeypatch.setenv("ADAPTER_REVIEWER_KEY", "a.json")
        pinned = run(*line.split()[2:])
        assert pinned.exit_code == 0
        assert load_reviewer(Path("a.json")).keys.verify("seal", b"m", seal)


class TestPin:
    HALF = encoded(Key(kid="s", alg="Ed25519", purpose="seal", secret=bytes(range(32))).public)

    def test_it_needs_a_reviewers_file(self) -> None:
        done = run("pin", "s", self.HALF)
        assert done.exit_code == 2
        assert "ADAPTER_REVIEWER_KEY" in done.stderr

    def test_a_half_that_begins_with_a_hyphen_is_no_option(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        halves = (
            encoded(Key(kid="s", alg="Ed25519", purpose="seal", secret=seed.digest()).public)
            for seed in (sha256(bytes([number])) for number in range(256))
        )
        half = next(found for found in halves if found.startswith("-"))
        run("new", "--reviewer", "alice", "--out", "a.json")
        monkeypatch.setenv("ADAPTER_REVIEWER_KEY", "a.json")
        assert run("pin", "s", half).exit_code == 0
        found = load_reviewer(Path("a.json")).keys.find("seal", "s")
        assert found is not None
        assert encoded(found.public) == half

    @pytest.mark.parametrize("half", ["AAAA", "not base64"])
    def test_it_needs_a_public_half(self, half: str, monkeypatch: pytest.MonkeyPatch) -> None:
        run("new", "--reviewer", "alice", "--out", "a.json")
        monkeypatch.setenv("ADAPTER_REVIEWER_KEY", "a.json")
        before = Path("a.json").read_bytes()
        assert run("pin", "s", half).exit_code == 2
        assert Path("a.json").read_bytes() == before


class TestRoles:
    def test_of_a_person_with_a_key(self, server: Path) -> None:
        run("new", "--reviewer", "alice", "--roles", "finance", "--out", "a.json")
        done = run("roles", "alice", "boss, support")
        assert done.exit_code == 0
        assert "on their own keys" in done.stdout
        kid = load_reviewer(Path("a.json")).keys.newest("decision").kid
        assert load_keys(server).roles_of("alice", kid) == {"boss", "support"}

    def test_of_a_name_that_any_holder_of_a_shared_key_can_claim(self, server: Path) -> None:
        done = run("roles", "bob", "support")
        assert "any holder of a shared key can claim it" in done.stdout
        assert load_keys(server).roles_of("bob", kid_of(server)) == {"support"}

    def test_none(self, server: Path) -> None:
        run("roles", "bob", "support")
        assert "none" in run("roles", "bob", "").stdout
        assert load_keys(server).reviewers == {}
