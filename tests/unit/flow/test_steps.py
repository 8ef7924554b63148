"""Which nodes run next."""

from __future__ import annotations

from adapter.flow import END
from adapter.flow.kinds import Join, Node, Step
from adapter.flow.steps import Position, advance, begin, pair


def nodes(*ordinary: str, joins: tuple[str, ...] = ()) -> dict[str, Node]:
    made = {name: Node(name=name, work=Step(lambda _state: None)) for name in ordinary}
    return made | {name: Node(name=name, work=Join()) for name in joins}


def test_a_run_begins_at_its_starts_in_the_order_of_names() -> None:
    assert begin(nodes("a", "b"), ["b", "a"]) == Position(active=("a", "b"))


def test_all_successors_run_in_the_next_superstep() -> None:
    position = Position(active=("a", "b"))
    after = advance(nodes("a", "b", "c", "d"), position, {"a": ["d"], "b": ["c", "d"]})
    assert after == Position(active=("c", "d"))


def test_the_end_leads_nowhere() -> None:
    assert advance(nodes("a"), Position(active=("a",)), {"a": [END]}) == Position(active=())


def test_a_join_waits_while_an_ordinary_node_is_active() -> None:
    known = nodes("a", "b", "c", joins=("j",))
    after = advance(known, Position(active=("a", "b")), {"a": ["j"], "b": ["c"]})
    assert after == Position(active=("c",), waiting=("j",))


def test_waiting_joins_run_together_once_nothing_else_is_active() -> None:
    known = nodes("c", joins=("j", "k"))
    after = advance(known, Position(active=("c",), waiting=("k",)), {"c": ["j"]})
    assert after == Position(active=("j", "k"))


def test_a_join_that_is_reached_twice_runs_once() -> None:
    known = nodes("c", joins=("j",))
    after = advance(known, Position(active=("c",), waiting=("j",)), {"c": ["j"]})
    assert after == Position(active=("j",))


def test_a_flow_may_begin_at_a_join() -> None:
    assert begin(nodes("a", joins=("j",)), ["j", "a"]) == Position(active=("a",), waiting=("j",))


def test_a_choice_is_counted_under_both_names() -> None:
    assert pair("a", "b") == "a->b"
