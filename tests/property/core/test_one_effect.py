"""An effect runs at most once per claim, and a gated one only after its signed approval.

A state machine over one thread: runs with and without answers, bad answers, replays, concurrent
runs, cancellations, workers that die at any point, a store that hiccups, restarts, keys that are
rotated and revoked, sweepers, people who say what became of a call, time. The laws are checked
after every step.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.core.kit import ALL, events, flaky, tool, used
from typing_extensions import override

from adapter.core.audit_verify import verify_chain
from adapter.core.decisions import ApprovalDecision
from adapter.core.errors import AdapterError, InvalidAnswer, StoreUnavailable, ToolUsageError
from adapter.core.keys import Key
from adapter.core.operating import Operator, Resolution, sign_statement
from adapter.core.rules import ApprovalRule
from adapter.core.types import ToolCall
from adapter.faults import FaultyStore
from adapter.testing import Paused, Wired, make_call, make_context, wired

BIG = tool("big", approval=ApprovalRule(name="two", reason="grave", quorum=2))
TOOLS = (*ALL, BIG)
CALLS = {
    "big": make_call("big", id="big", message_id="m-big", to="bob"),
    "send": make_call("send", id="send", message_id="m-send", to="bob"),
    "pay": make_call("pay", id="pay", message_id="m-pay", to="bob", card="4000"),
    "write": make_call("write", id="write", message_id="m-write", to="bob"),
}
GATED = {"send": 1, "pay": 1, "big": 2}
"""How many people each needs."""
REVIEWERS = st.sampled_from(["rita", "sam"])
AROUND_THE_EFFECT = ["before claim", "after claim", "in the body", "before settle", "after settle"]
POINTS = st.sampled_from(AROUND_THE_EFFECT) | st.sampled_from(
    [
        f"{when} {name}"
        for when in ("before", "after")
        for name in ("open", "close_question", "vote", "append", "get")
    ]
)
NAMES = st.sampled_from(sorted(CALLS))
YES = ApprovalDecision(approved=True)
DECISIONS = st.just(YES) | st.sampled_from(
    [
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
    keys = count(1)

    def __init__(self) -> None:
        super().__init__()
        self.thread = f"thread-{next(self.threads)}"
        self.store: Any = self.shared.store
        self.kit = wired(
            *TOOLS, store=self.store, clock=self.shared.clock, approval_ttl=3600.0, lease=30.0
        )
        self.number = 0
        self.approved: dict[str, set[str]] = {name: set() for name in CALLS}
        self.retries: Counter[str] = Counter()
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

    def sign(self, decision: ApprovalDecision, reviewer: str = "rita") -> Any:
        def item(question: Any) -> Any:
            by = replace(decision, reviewer=reviewer)
            value = self.kit.port.resume_value(question, by)
            self.signed[question.row.tool_call_id].append(value)
            if decision.approved:
                self.approved[question.row.tool_call_id].add(reviewer)
            return value

        return item

    def enough(self, name: str) -> bool:
        return len(self.approved[name]) >= GATED.get(name, 0)

    def operator(self) -> Operator:
        return Operator(journal=self.kit.executor.journal, keys=self.kit.port.keys)

    @rule(name=NAMES, decision=DECISIONS, reviewer=REVIEWERS)
    def resume(self, name: str, decision: ApprovalDecision, reviewer: str) -> None:
        self.run(name, self.sign(decision, reviewer))

    @rule(name=NAMES)
    def everybody_approves(self, name: str) -> None:
        for reviewer in ("rita", "sam"):
            self.run(name, self.sign(YES, reviewer))

    @rule(name=NAMES, reviewer=REVIEWERS)
    def one_person_approves_twice(self, name: str, reviewer: str) -> None:
        for _ in range(2):
            self.run(name, self.sign(YES, reviewer))

    @rule(name=NAMES)
    def go_on_without_input(self, name: str) -> None:
        before = len(self.kit.runs)
        self.run(name)
        if not self.enough(name):
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

    @initialize(
        dead=st.lists(
            st.tuples(NAMES, st.sampled_from(AROUND_THE_EFFECT)),
            min_size=1,
            max_size=2,
            unique_by=lambda d: d[0],
        )
    )
    def begin(self, dead: list[tuple[str, str]]) -> None:
        """Every thread has seen a worker die around an effect; left alone that is too rare."""
        for name, point in dead:
            self.die_while_answering(name=name, decision=YES, point=point, seconds=31)

    @rule(name=NAMES, decision=DECISIONS, point=POINTS, seconds=st.sampled_from([0, 31]))
    def die_while_answering(
        self, name: str, decision: ApprovalDecision, point: str, seconds: int
    ) -> None:
        """Nothing the worker does from that point on reaches the store."""
        if GATED.get(name, 0) > 1:
            self.run(name, self.sign(decision, "sam"))
        dead = False

        def reached(here: str) -> None:
            nonlocal dead
            dead = dead or here == point
            if dead:
                raise StoreUnavailable("this worker is dead")

        async def body(arguments: Any) -> str:
            reached("in the body")
            return f"ran {arguments['to']}"

        alive, living = self.kit, self.body
        dying: Any = FaultyStore.around(self.store, reached)
        self.kit, self.__dict__["body"] = replace(alive, store=dying).restarted(), body
        try:
            self.run(name, self.sign(decision))
        finally:
            self.kit, self.__dict__["body"] = alive.restarted(), living
        self.kit.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        self.kit = self.kit.restarted()

    @rule()
    def rotate(self) -> None:
        self.kit.port.keys = self.kit.port.keys.changed([self.new_key()])

    @rule(name=NAMES, decision=DECISIONS)
    def answer_under_a_key_that_was_revoked(self, name: str, decision: ApprovalDecision) -> None:
        paused = [one for one in self.run(name) if isinstance(one, Paused)]
        if not paused:
            return
        value = self.kit.port.resume_value(paused[0], decision)
        ring = self.kit.port.keys
        old = replace(ring.newest("decision"), revoked_at=1)
        self.kit.port.keys = ring.changed([old, self.new_key()])
        before = len(self.kit.runs)
        (ended,) = self.run(name, value)
        assert isinstance(ended, AdapterError | Paused), ended
        assert len(self.kit.runs) == before

    def new_key(self) -> Key:
        n = next(self.keys)
        secret = sha256(f"key {n}".encode()).digest()
        return Key(kid=f"d{n}", purpose="decision", secret=secret, created_at=n)

    @rule(verdict=st.sampled_from(["succeeded", "failed", "retry"]), signs=st.booleans())
    def say_what_became_of_calls(self, verdict: Any, signs: bool) -> None:
        self.loop.run(self.say(verdict, signs))

    async def say(self, verdict: Any, signs: bool) -> None:
        operator = self.operator()
        outcome = {"result": "seen"} if verdict == "succeeded" else None
        said = Resolution(verdict=verdict, by="olga", outcome=outcome)
        if verdict == "failed":
            said = Resolution.failed("not there", by="olga")
        for row in await operator.doubtful(1_000):
            if row.thread_id != self.thread:
                continue
            statement = operator.statement(row, said)
            signature = sign_statement(operator.keys, statement) if signs else None
            try:
                await operator.resolve(row, said, statement, signature)
            except InvalidAnswer:
                assert not signs
            except ToolUsageError:
                assert verdict == "retry"
            else:
                assert signs or row.tool not in GATED
                assert verdict != "retry" or GATED.get(row.tool, 1) == 1
                self.retries[row.tool_call_id] += verdict == "retry"

    @rule()
    def sweep(self) -> None:
        self.loop.run(self.operator().expire())
        self.loop.run(self.operator().doubt())

    @rule(seconds=st.sampled_from([1, 31, 31, 31, 3601]))
    def wait(self, seconds: int) -> None:
        self.kit.clock.advance(seconds)

    @invariant()
    def no_effect_runs_twice_or_unapproved(self) -> None:
        runs = Counter(call_id for call_id, _ in self.kit.runs)
        assert all(ran <= 1 + self.retries[name] for name, ran in runs.items()), runs
        assert all(self.enough(name) for name in runs), self.approved

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
        self.go_on_with_everything()
        self.say_what_became_of_calls("retry", signs=False)
        self.say_what_became_of_calls("retry", signs=True)
        self.go_on_with_everything()
        self.loop.run(self.finish())

    def go_on_with_everything(self) -> None:
        """Whatever state the steps left a call in, a later run of it keeps the laws."""
        self.kit.clock.advance(31)
        for name in CALLS:
            self.run(name)
        self.no_effect_runs_twice_or_unapproved()
        self.what_ran_is_what_was_signed()

    async def finish(self) -> None:
        counted = await used(self.kit, f"turn:{self.thread}:turn-1:tool_calls")
        # A run cancelled while its claim was being committed has claimed and never started.
        assert len(self.kit.runs) <= counted <= len(CALLS) + self.retries.total()
        started = Counter(
            event["call_id"]
            for event in await events(self.kit, self.thread)
            if event["kind"] == "started"
        )
        for call_id, ran in Counter(call_id for call_id, _ in self.kit.runs).items():
            assert ran <= started[call_id] <= 1 + self.retries[call_id]
        links = await self.store.events(self.thread)
        (head,) = await self.store.heads(self.thread) or (None,)
        assert verify_chain(links, head) == []


class TestOneEffect(OneEffect.TestCase):  # type: ignore[misc, valid-type]
    """One loop and one store for all threads: opening a store costs more than a whole example."""

    settings = settings(max_examples=60, stateful_step_count=20, deadline=None)

    @classmethod
    def setUpClass(cls) -> None:
        OneEffect.loop = asyncio.Runner()
        OneEffect.shared, _ = flaky(*TOOLS)

    @classmethod
    def tearDownClass(cls) -> None:
        OneEffect.loop.run(OneEffect.shared.store.aclose())
        OneEffect.loop.close()
