"""An effect runs at most once per call, and a gated one only after its approval.

A state machine over one thread: runs with and without answers, bad answers, replays, concurrent
runs, cancellations, a store that hiccups, restarts, time. The laws are checked after every step.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.core.kit import ALL, flaky, used
from typing_extensions import override

from adapter.core.audit_verify import verify_chain
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import AdapterError
from adapter.core.types import ToolCall
from adapter.testing import Paused, Wired, make_call, make_context, wired

CALLS = {
    "send": make_call("send", id="send", message_id="m-send", to="bob"),
    "pay": make_call("pay", id="pay", message_id="m-pay", to="bob", card="4000"),
    "write": make_call("write", id="write", message_id="m-write", to="bob"),
}
GATED = {"send", "pay"}
NAMES = st.sampled_from(sorted(CALLS))
DECISIONS = st.sampled_from(
    [
        ApprovalDecision(approved=True),
        ApprovalDecision(edited_args={"to": "ann", "amount": 2}),
        ApprovalDecision(approved=False),
        ApprovalDecision(response="by phone"),
    ]
)
BAD = st.sampled_from([None, True, {"approved": True}, "approve"])
HICCUPS = st.sampled_from(["open", "claim", "settle", "append", "close_question", "get"])


class OneEffect(RuleBasedStateMachine):
    """One thread with two gated calls and one free one, and everything that may happen to them."""

    loop: asyncio.Runner
    shared: Wired
    threads = count()

    def __init__(self) -> None:
        super().__init__()
        self.thread = f"thread-{next(self.threads)}"
        self.store: Any = self.shared.store
        self.kit = wired(
            *ALL, store=self.store, clock=self.shared.clock, approval_ttl=3600.0, lease=30.0
        )
        self.number = 0
        self.approved: set[str] = set()
        self.signed: dict[str, list[Any]] = {name: [] for name in CALLS}

    def run(self, name: str, *answers: Any, times: int = 1, cancel: bool = False) -> list[Any]:
        return self.loop.run(self._run(CALLS[name], answers, times, cancel))

    async def _run(
        self, call: ToolCall, answers: tuple[Any, ...], times: int, cancel: bool
    ) -> list[Any]:
        self.kit.port.resume(*answers)
        tasks = []
        for _ in range(times):
            self.number += 1
            ctx = make_context(self.thread, run_id=f"run-{self.number}")
            running = self.kit.executor.run(call, ctx, self.kit.invocation(call, body=self.body))
            tasks.append(asyncio.ensure_future(running))
        if cancel:
            for _ in range(self.number % 7):
                await asyncio.sleep(0)
            tasks[0].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            known = AdapterError | Paused | asyncio.CancelledError
            assert not isinstance(result, BaseException) or isinstance(result, known), result
        return results

    async def body(self, arguments: Any) -> str:
        await asyncio.sleep(0)
        return f"ran {arguments['to']}"

    def sign(self, decision: ApprovalDecision) -> Any:
        def item(question: Any) -> Any:
            value = self.kit.port.resume_value(question, decision)
            self.signed[question.row.tool_call_id].append(value)
            if decision.approved:
                self.approved.add(question.row.tool_call_id)
            return value

        return item

    @rule(name=NAMES, decision=DECISIONS)
    def resume(self, name: str, decision: ApprovalDecision) -> None:
        self.run(name, self.sign(decision))

    @rule(name=NAMES)
    def go_on_without_input(self, name: str) -> None:
        before = len(self.kit.runs)
        self.run(name)
        if name in GATED and name not in self.approved:
            assert len(self.kit.runs) == before

    @rule(name=NAMES, bad=BAD)
    def answer_badly(self, name: str, bad: Any) -> None:
        self.run(name, bad)

    @rule(name=NAMES, other=NAMES)
    def answer_with_another_calls_answer(self, name: str, other: str) -> None:
        if name != other and self.signed[other]:
            self.run(name, self.signed[other][-1])

    @rule(name=NAMES)
    def replay_every_answer(self, name: str) -> None:
        for value in self.signed[name][-3:]:
            self.run(name, value)

    @rule(name=NAMES, decision=DECISIONS, times=st.integers(2, 4))
    def answer_concurrently(self, name: str, decision: ApprovalDecision, times: int) -> None:
        self.run(name, *[self.sign(decision)] * times, times=times)

    @rule(name=NAMES, decision=DECISIONS)
    def cancel_while_running(self, name: str, decision: ApprovalDecision) -> None:
        self.run(name, self.sign(decision), cancel=True)

    @rule(name=NAMES, decision=DECISIONS, method=HICCUPS, times=st.sampled_from([1, 9]))
    def answer_while_the_store_fails(
        self, name: str, decision: ApprovalDecision, method: str, times: int
    ) -> None:
        self.store.failures[method] = times
        self.run(name, self.sign(decision))
        self.store.failures.clear()

    @rule()
    def restart(self) -> None:
        self.kit = self.kit.restarted()

    @rule(seconds=st.sampled_from([1, 31, 3601]))
    def wait(self, seconds: int) -> None:
        self.kit.clock.advance(seconds)

    @invariant()
    def no_effect_runs_twice_or_unapproved(self) -> None:
        runs = Counter(call_id for call_id, _ in self.kit.runs)
        assert all(count == 1 for count in runs.values()), runs
        assert runs.keys() & GATED <= self.approved

    @invariant()
    def what_ran_is_what_was_signed(self) -> None:
        for call_id, arguments in self.kit.runs:
            assert arguments["to"] in ("bob", "ann")
            if arguments["to"] == "ann":
                edits = [value["decision"]["edited_args"] for value in self.signed[call_id]]
                assert {"to": "ann", "amount": 2} in edits
            if call_id == "pay":
                assert arguments["card"] == "4000"

    @override
    def teardown(self) -> None:
        self.loop.run(self.finish())

    async def finish(self) -> None:
        counted = await used(self.kit, f"turn:{self.thread}:turn-1:tool_calls")
        # A run cancelled while its claim was being committed has claimed and never started.
        assert len(self.kit.runs) <= counted <= len(CALLS)
        links = await self.store.events(self.thread)
        (head,) = await self.store.heads(self.thread) or (None,)
        assert verify_chain(links, head) == []


class TestOneEffect(OneEffect.TestCase):  # type: ignore[misc, valid-type]
    """One loop and one store for all threads: opening a store costs more than a whole example."""

    settings = settings(max_examples=40, stateful_step_count=15, deadline=None)

    @classmethod
    def setUpClass(cls) -> None:
        OneEffect.loop = asyncio.Runner()
        OneEffect.shared, _ = flaky(*ALL)

    @classmethod
    def tearDownClass(cls) -> None:
        OneEffect.loop.run(OneEffect.shared.store.aclose())
        OneEffect.loop.close()
