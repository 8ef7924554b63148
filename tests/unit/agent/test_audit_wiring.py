"""The template's store: signed heads, and the sinks that the settings name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from adapter import ConfigurationError, keyfile
from adapter.cli.trail import verify_thread
from adapter.core.audit import Auditor, Subject
from adapter.core.keychange import revoke, rotate
from adapter.keyfile import edit_keys, load_keys
from adapter.testing import make_context
from agent.settings import AgentSettings
from agent.wiring import build_parts, build_store, keys_for


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    return {"ADAPTER_DATA_DIR": str(tmp_path), "LANGSMITH_LANGGRAPH_API_VARIANT": "local_dev"}


def settings(given: dict[str, str], **more: str) -> AgentSettings:
    return AgentSettings.load({**given, **more}, None)


async def written(made: Any, keys: Any) -> None:
    event = Auditor(clock=lambda: 1).event(
        "started", make_context(), Subject(tool="x", call_id="c", key="k")
    )
    await made.append([event])
    verdict = await verify_thread(made, "thread-1", keys=keys)
    assert verdict.faults == ()
    await made.aclose()


def test_heads_are_signed_and_events_go_to_the_file(given: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "logs" / "audit.jsonl"
    found = settings(given, ADAPTER_AUDIT_FILE=str(file), ADAPTER_AUDIT_OTEL="on")
    keys = keys_for(found)
    asyncio.run(written(build_store(found, keys), keys.current()))
    (row,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert row["head"]["kid"] == keys.current().newest("audit").kid


def test_without_sinks_heads_are_signed_all_the_same(given: dict[str, str]) -> None:
    found = settings(given)
    keys = keys_for(found)
    asyncio.run(written(build_store(found, keys), keys.current()))


def test_a_rotated_and_a_revoked_audit_key_are_noticed_without_a_question(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyfile, "_LOOK_EVERY", 0.0)
    found = settings(given)
    keys = keys_for(found)
    old = keys.current().newest("audit").kid

    async def heads() -> None:
        store = build_store(found, keys)

        async def kid(n: int) -> str | None:
            event = Auditor(clock=lambda: 1).event(
                "started", make_context(), Subject(tool="x", call_id="c", key=f"k{n}")
            )
            await store.append([event])
            return (await store.heads())[0].kid

        assert await kid(1) == old
        (new,) = edit_keys(found.key_file, lambda ring: rotate(ring, ["audit"], now=2_000_000_000))
        assert await kid(2) == new.kid
        edit_keys(found.key_file, lambda ring: revoke(ring, new.kid, now=9))
        assert await kid(3) == old
        await store.aclose()

    asyncio.run(heads())


@pytest.mark.parametrize("what", ["link", "folder"])
def test_an_audit_file_that_cannot_be_written_stops_the_start(
    given: dict[str, str], tmp_path: Path, what: str
) -> None:
    file = tmp_path / "audit.jsonl"
    if what == "link":
        (tmp_path / "target").touch()
        file.symlink_to(tmp_path / "target")
    else:
        file.mkdir()
    with pytest.raises(ConfigurationError, match="ADAPTER_AUDIT_FILE"):
        build_parts(settings(given, ADAPTER_AUDIT_FILE=str(file)))


def test_a_ring_without_an_audit_key_stops_the_start(given: dict[str, str]) -> None:
    found = settings(given)
    keys_for(found)
    kid = load_keys(found.key_file).newest("audit").kid
    edit_keys(found.key_file, lambda ring: revoke(ring, kid, now=9))
    with pytest.raises(ConfigurationError, match="audit"):
        build_store(found, keys_for(found))


@pytest.mark.parametrize(
    ("name", "value"),
    [("ADAPTER_AUDIT_OTEL", "yes"), ("ADAPTER_RETENTION", "0"), ("ADAPTER_RETENTION", "soon")],
)
def test_a_setting_that_cannot_be_is_named(given: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        settings(given, **{name: value})
