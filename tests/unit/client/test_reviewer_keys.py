"""A reviewer with nothing but their own file can approve; nobody else can in their name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.fakes import NOW, asked

from adapter.client import ApprovalClient, SyncApprovalClient
from adapter.core.approvals import ApprovalDecision, sign_decision
from adapter.core.errors import ConfigurationError, InvalidAnswer
from adapter.core.keychange import revoke
from adapter.core.signing import check_answer
from adapter.keyfile import edit_keys, load_keys, write_keys
from adapter.reviewerfile import enrol_reviewer

YES = ApprovalDecision(kind="approve")
BINDING = "ab" * 32


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "server" / "keys.json"
    write_keys(path, now=1)
    return path


@pytest.fixture
def own(server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Alice's file, on a machine that holds nothing else."""
    path = tmp_path / "alice" / "key.json"
    enrol_reviewer(server, path, "alice", ["finance"], now=2)
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("ADAPTER_REVIEWER_KEY", str(path))
    return path


def question(server: Path) -> dict[str, Any]:
    return {"id": "i", "value": asked(load_keys(server))}


def client(**named: Any) -> SyncApprovalClient:
    return SyncApprovalClient("http://other.test", clock=lambda: NOW, **named)


def test_her_answer_counts_at_the_server(server: Path, own: Path) -> None:
    with client() as desk:
        answer = desk.sign(question(server), YES)
    assert answer["alg"] == "Ed25519"
    decision = check_answer(load_keys(server), BINDING, answer)
    assert decision is not None
    assert decision["reviewer"] == "alice"


@pytest.mark.anyio
async def test_the_asynchronous_client_does_the_same(server: Path, own: Path) -> None:
    async with ApprovalClient("http://other.test", clock=lambda: NOW) as desk:
        answer = await desk.sign(question(server), YES)
    assert check_answer(load_keys(server), BINDING, answer) is not None


def test_her_own_file_wins_over_the_shared_one(
    server: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADAPTER_KEY_FILE", str(server))
    monkeypatch.setenv("ADAPTER_REVIEWER", "local")
    with client() as desk:
        assert desk.sign(question(server), YES)["decision"]["reviewer"] == "alice"


def test_a_passphrase_comes_from_its_setting(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.json"
    enrol_reviewer(server, path, "alice", now=2, passphrase="correct horse")
    monkeypatch.setenv("ADAPTER_REVIEWER_KEY", str(path))
    with client() as desk, pytest.raises(ConfigurationError, match="ADAPTER_REVIEWER_PASSPHRASE"):
        desk.sign(question(server), YES)
    monkeypatch.setenv("ADAPTER_REVIEWER_PASSPHRASE", "correct horse")
    with client() as desk:
        assert check_answer(load_keys(server), BINDING, desk.sign(question(server), YES))


def test_a_request_the_server_did_not_seal_is_not_signed(server: Path, own: Path) -> None:
    altered = question(server)
    altered["value"]["request"]["arguments"]["amount_cents"] = 1
    with client() as desk, pytest.raises(InvalidAnswer, match="pinned"):
        desk.sign(altered, YES)


def test_a_shared_secret_cannot_seal_for_her(server: Path, own: Path) -> None:
    """Every HS256 reviewer could make such a seal."""
    shared = load_keys(server)
    ring = type(shared)(key for key in shared.keys if key.alg == "HS256")
    with client() as desk, pytest.raises(InvalidAnswer, match="not signed"):
        desk.sign({"id": "i", "value": asked(ring)}, YES)


def test_another_name_is_refused_before_it_is_signed(server: Path, own: Path) -> None:
    with client(reviewer="bob") as desk, pytest.raises(ConfigurationError, match="alice's"):
        desk.sign(question(server), YES)
    with client(reviewer="alice") as desk:
        assert desk.sign(question(server), YES)["decision"]["reviewer"] == "alice"
    with client() as desk, pytest.raises(InvalidAnswer, match="in the name of bob"):
        desk.sign(question(server), ApprovalDecision(kind="approve", reviewer="bob"))


def test_the_servers_ring_cannot_sign_as_alice(server: Path, own: Path) -> None:
    ring = load_keys(server)
    value = question(server)["value"]
    with pytest.raises(InvalidAnswer, match="a key of their own"):
        sign_decision(ring, value, YES, decided_at=NOW, reviewer="alice")
    assert sign_decision(ring, value, YES, decided_at=NOW, reviewer="local")
    kid = next(key.kid for key in ring.keys if key.reviewer == "alice")
    half = ring.find("decision", kid)
    assert half is not None
    with pytest.raises(ConfigurationError, match="public half"):
        half.mac(b"m")


def test_a_client_with_the_shared_file_follows_its_changes(
    server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADAPTER_KEY_FILE", str(server))
    with client() as desk:
        first = desk.sign(question(server), YES)
        enrol_reviewer(server, server.with_name("rosa.json"), "rosa", now=2)
        second = desk.sign(question(server), YES)
        assert (first["kid"], first["alg"]) == (second["kid"], "HS256")
        edit_keys(server, lambda ring: revoke(ring, first["kid"], now=3))
        with pytest.raises(ConfigurationError, match="'decision'"):
            desk.sign(question(server), YES)
