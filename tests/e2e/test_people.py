"""Who may approve, where the server authenticates its users: the requester, and other names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.errors import AuthenticationError
from tests.e2e.conftest import refund
from tests.support.server import ROOT, Server

from adapter import ApprovalDecision
from adapter.client import ApprovalClient, PendingApproval
from adapter.keyfile import load_keys

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.xdist_group("people")]

AUTH = f"{ROOT / 'tests/support/tokens.py'}:auth"


class Office:
    """People with tokens, and the shared key that all of them hold."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.keys = load_keys(server.data / "keys.json")

    @asynccontextmanager
    async def sdk(self, who: str | None) -> AsyncIterator[Any]:
        headers = {} if who is None else {"Authorization": f"Bearer {who}"}
        async with get_client(url=self.server.url, api_key=None, headers=headers) as client:
            yield client

    async def asked_for(self, order: str) -> tuple[str, PendingApproval]:
        """Alice asks for a refund of 100."""
        said = {"messages": [{"role": "user", "content": refund(order, 100)}]}
        async with self.sdk("alice") as sdk:
            thread = str((await sdk.threads.create())["thread_id"])
            await sdk.runs.wait(thread, "agent", input=said)
        (pending,) = await self.pending(thread)
        return thread, pending

    async def pending(self, thread: str) -> list[PendingApproval]:
        async with ApprovalClient(self.server.url, keys=self.keys, token="bob") as desk:
            return list(await desk.pending(thread))

    async def answer(self, thread: str, pending: Any, *, by: str, signed: str) -> list[int]:
        """Bring an approval signed in a name, under one's own login; return what was refunded."""
        desk = ApprovalClient(self.server.url, keys=self.keys, reviewer=signed, token=by)
        async with desk, self.sdk(by) as sdk:
            value = await desk.sign(pending, ApprovalDecision(kind="approve"))
            answers = {"resume": {pending.id: value}}
            await sdk.runs.wait(thread, "agent", command=answers, raise_error=False)
        order = pending.request["arguments"]["order_id"]
        return self.server.refunds(order)


def opened(made: pytest.TempPathFactory, **env: str) -> Iterator[Office]:
    server = Server(made.mktemp("people"), auth=AUTH, **env)
    try:
        server.start()
        yield Office(server)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    yield from opened(tmp_path_factory)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    yield from opened(tmp_path_factory, ADAPTER_RELAYED_ANSWERS="false")


async def refused(office: Office, thread: str, pending: PendingApproval, **named: str) -> None:
    assert await office.answer(thread, pending, **named) == []
    (still,) = await office.pending(thread)
    assert still.id == pending.id
    assert still.refused is not None
    assert still.refused["code"] == "invalid_answer"


async def test_a15_the_requester_may_not_approve_their_own_call(office: Office) -> None:
    thread, pending = await office.asked_for(office.server.orders()[0])
    await refused(office, thread, pending, by="alice", signed="alice")
    assert await office.answer(thread, pending, by="bob", signed="bob") == [100]


async def test_a15_an_answer_may_be_brought_by_another(office: Office) -> None:
    thread, pending = await office.asked_for(office.server.orders()[1])
    assert await office.answer(thread, pending, by="alice", signed="bob") == [100]


async def test_a15_unless_the_shared_key_signs_in_the_logins_name_only(strict: Office) -> None:
    thread, pending = await strict.asked_for(strict.server.orders()[0])
    await refused(strict, thread, pending, by="alice", signed="alice")
    await refused(strict, thread, pending, by="alice", signed="bob")
    assert await strict.answer(thread, pending, by="bob", signed="bob") == [100]


async def test_a15_nobody_without_a_token_gets_in(office: Office) -> None:
    async with office.sdk(None) as sdk:
        with pytest.raises(AuthenticationError, match="Bring a token"):
            await sdk.threads.create()
