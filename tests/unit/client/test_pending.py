"""What a thread's state says about approvals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.client.fakes import NOW, asked, ids, interrupt, messages, ring, task

from adapter.client.pending import Effect, PendingApproval, effect_in, pending_in, unpack
from adapter.core.errors import ToolUsageError
from adapter.core.signing import to_iso

VALUE = asked(ring())


def state(*tasks: Any, **more: Any) -> dict[str, Any]:
    return {"tasks": list(tasks), "metadata": {}, **more}


def read(*tasks: Any) -> list[PendingApproval]:
    return pending_in(state(*tasks), "thread", None, NOW)


def one(**request: Any) -> PendingApproval:
    return read(task(interrupt("i", asked(ring(), **request))))[0]


def test_a_pause_becomes_a_pending_approval() -> None:
    (found,) = read(task(interrupt("i", VALUE)))
    assert found == PendingApproval(
        thread_id="thread", assistant_id="agent", id="i", value=VALUE, expired=False
    )
    assert found.request["tool"] == "issue_refund"
    assert found.refused is None


def test_interrupts_of_other_kinds_are_left_out() -> None:
    others: list[Any] = ["text", {"type": "other"}, None, 7, {"action_requests": []}]
    found = read(task(*[interrupt(f"x{n}", v) for n, v in enumerate(others)]))
    assert found == []


def test_nested_subgraph_states_are_read_and_each_id_comes_once() -> None:
    inner = state(task(interrupt("a", VALUE), interrupt("b", VALUE)))
    assert ids(read(task(interrupt("a", VALUE), state=inner), task(interrupt("c", VALUE)))) == [
        "a",
        "b",
        "c",
    ]


def test_a_finished_task_waits_for_nothing() -> None:
    done = task(interrupt("a", VALUE), result={"messages": []})
    assert ids(read(done, task(interrupt("b", VALUE)))) == ["b"]


def test_a_task_that_a_bad_answer_failed_still_waits() -> None:
    assert ids(read(task(interrupt("a", VALUE), error="ValidationError()"))) == ["a"]


SPENT = {**VALUE, "used": {"code": "failed", "message": "ValueError"}}


def test_a_question_whose_answer_is_used_up_waits_for_nothing() -> None:
    listed = task(interrupt("a", SPENT), error="ValueError('x')")
    assert ids(read(listed, task(interrupt("b", VALUE)))) == ["b"]


@pytest.mark.parametrize("odd", [None, "x", 7, {"tasks": 3}])
def test_odd_states_have_no_requests(odd: Any) -> None:
    assert pending_in({"tasks": odd}, "thread", None, NOW) == []


@pytest.mark.parametrize(
    ("holder", "row", "wanted"),
    [
        ({"metadata": {"assistant_id": "a", "graph_id": "g"}}, "row", "a"),
        ({"metadata": {"graph_id": "g"}}, "row", "g"),
        ({"metadata": {}}, "row", "row"),
        ({"metadata": None}, None, "agent"),
    ],
)
def test_the_assistant_is_the_states_then_the_threads_then_agent(
    holder: dict[str, Any], row: str | None, wanted: str
) -> None:
    shown = {**holder, "tasks": [task(interrupt("i", VALUE))]}
    assert pending_in(shown, "thread", row, NOW)[0].assistant_id == wanted


@pytest.mark.parametrize(
    ("moment", "expired"),
    [
        (NOW - 1, True),
        (NOW, True),
        (NOW + 1, False),
        (to_iso(NOW), True),
        (to_iso(NOW + 1000), False),
        (None, False),
        ("soon", False),
        (True, False),
    ],
)
def test_expiry_is_by_the_given_clock(moment: Any, expired: bool) -> None:
    assert one(expires_at=moment).expired is expired


def test_a_value_without_a_request_is_shown_as_it_is() -> None:
    (found,) = read(task(interrupt("i", {"type": "agent_adapter.approval", "request": 3})))
    assert found.request == {}
    assert not found.expired


def test_a_refused_answer_shows_in_the_request() -> None:
    value = {**VALUE, "refused": {"code": "invalid_answer", "message": "no"}}
    assert read(task(interrupt("i", value)))[0].refused == {
        "code": "invalid_answer",
        "message": "no",
    }


class TestUnpack:
    def test_a_dict_of_the_sdk(self) -> None:
        found = unpack({"id": "i", "value": VALUE, "response_schema": None})
        assert (found.id, found.value, found.thread_id) == ("i", VALUE, None)

    def test_an_object_of_langgraph(self) -> None:
        found = unpack(SimpleNamespace(id="i", value=VALUE))
        assert (found.id, found.value) == ("i", VALUE)

    def test_a_pending_approval_knows_its_thread(self) -> None:
        found = unpack(one())
        assert (found.thread_id, found.assistant_id) == ("thread", "agent")

    @pytest.mark.parametrize("odd", [{"id": "i"}, {"value": VALUE}, "i", None, [VALUE]])
    def test_anything_else_is_refused(self, odd: object) -> None:
        with pytest.raises(ToolUsageError, match="pending"):
            unpack(odd)


class TestEffect:
    def test_a_used_answer_is_told_with_what_failed_behind_it(self) -> None:
        listed = state(task(interrupt("i", SPENT), error="x"), values={})
        assert effect_in(listed, one()) == Effect(kind="used", message="ValueError")
        run = {"__error__": {"error": "ValueError", "message": "one rate for each"}}
        found = effect_in(listed, one(), run)
        assert found.message == "the run ended with ValueError: one rate for each"

    def test_another_requests_used_answer_is_not_this_ones(self) -> None:
        listed = state(task(interrupt("x", SPENT)), task(interrupt("i", VALUE)), values={})
        assert effect_in(listed, one()).kind == "refused"

    def test_a_result_means_done(self) -> None:
        found = effect_in(state(values=messages(("call-1", "success", "paid"))), one())
        assert (found.kind, found.message) == ("done", "paid")

    def test_an_error_result_is_told_by_kind_and_message(self) -> None:
        content = '{"error": {"kind": "ApprovalDenied", "message": "not late"}}'
        found = effect_in(state(values=messages(("call-1", "error", content))), one())
        assert (found.kind, found.message) == ("error", "ApprovalDenied: not late")

    def test_content_that_is_no_text_is_shown_as_json(self) -> None:
        found = effect_in(state(values=messages(("call-1", "success", [{"a": 1}]))), one())
        assert found.message == '[{"a": 1}]'

    def test_the_result_of_a_finished_task_beside_waiting_ones_counts(self) -> None:
        done = task(result=messages(("call-1", "success", "paid")))
        found = effect_in(state(done, task(interrupt("other", VALUE)), values={}), one())
        assert found.kind == "done"

    def test_a_result_inside_a_subgraphs_state_counts(self) -> None:
        inner = state(values=messages(("call-1", "success", "paid")))
        assert effect_in(state(task(state=inner)), one()).kind == "done"

    def test_still_open_with_a_new_refusal_means_refused(self) -> None:
        value = {**VALUE, "refused": {"message": "not a valid signed answer"}}
        found = effect_in(state(task(interrupt("i", value))), one())
        assert (found.kind, found.message) == ("refused", "not a valid signed answer")

    def test_still_open_with_an_old_refusal_means_refused_again(self) -> None:
        value = {**VALUE, "refused": {"message": "no"}}
        before = read(task(interrupt("i", value)))[0]
        assert effect_in(state(task(interrupt("i", value))), before).kind == "refused"

    def test_still_open_without_one_means_refused(self) -> None:
        found = effect_in(state(task(interrupt("i", VALUE))), one())
        assert (found.kind, found.message) == ("refused", "the answer did not count")

    def test_a_new_question_about_the_same_call_means_pending(self) -> None:
        assert effect_in(state(task(interrupt("next", VALUE))), one()).kind == "pending"

    def test_still_open_after_a_failed_run_means_refused(self) -> None:
        result = {"__error__": {"error": "ValidationError", "message": "invalid resume"}}
        found = effect_in(state(task(interrupt("i", VALUE))), one(), result)
        assert found.kind == "refused"
        assert "ValidationError" in found.message

    def test_a_flow_that_goes_on_means_done(self) -> None:
        found = effect_in(state(values={"aa_flow": {"steps": 2}}), one())
        assert (found.kind, found.message) == ("done", "the flow went on")

    def test_a_flow_that_was_denied_says_why(self) -> None:
        found = effect_in(state(values={"aa_flow": {"denied": "too dear"}}), one())
        assert (found.kind, found.message) == ("error", "too dear")

    def test_a_flow_whose_run_failed_is_unknown(self) -> None:
        result = {"__error__": {"error": "FlowError", "message": "no"}}
        found = effect_in(state(values={"aa_flow": {"steps": 2}}), one(), result)
        assert found.kind == "unknown"

    def test_neither_open_nor_answered_is_unknown(self) -> None:
        found = effect_in(state(values=messages(("other", "success", "x"))), one())
        assert (found.kind, found.message) == ("unknown", "")
