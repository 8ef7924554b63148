"""The chain verifier finds every way a chain can be tampered with, and says where."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from adapter.core.audit_faults import Fault, Witness
from adapter.core.audit_verify import ChainVerifier, verify_chain
from adapter.core.chain import GENESIS, link, link_hash
from adapter.core.store import Anchor, StoredEvent, ThreadHead


def event(seq: int, prev: str, *, thread: str = "t1", run_seq: int | None = None) -> StoredEvent:
    body = json.dumps({"data": {"n": seq}, "thread_id": thread, "tool": "x", "v": 1})
    line, made = link(
        body=body.replace(" ", "").encode(), prev=prev, seq=seq, run_seq=run_seq or seq
    )
    return StoredEvent(
        thread_id="t1", seq=seq, event_id=f"e{seq}", kind="started", line=line, hash=made
    )


def chain(count: int) -> list[StoredEvent]:
    made: list[StoredEvent] = []
    for seq in range(1, count + 1):
        made.append(event(seq, made[-1].hash if made else GENESIS))
    return made


def head_of(events: list[StoredEvent]) -> ThreadHead:
    return ThreadHead(thread_id="t1", seq=events[-1].seq, hash=events[-1].hash)


def faults(events: list[StoredEvent], head: ThreadHead | None) -> list[tuple[int, str]]:
    return [(fault.seq, fault.kind) for fault in verify_chain(events, head)]


WHOLE = chain(6)
HEAD = head_of(WHOLE)


def edited(one: StoredEvent, *, rehash: bool) -> StoredEvent:
    line = one.line.replace(b'"tool":"x"', b'"tool":"y"')
    return replace(one, line=line, hash=link_hash(line) if rehash else one.hash)


@pytest.mark.parametrize("count", [1, 2, 6, 12])
def test_a_whole_chain_has_no_fault(count: int) -> None:
    made = chain(count)
    assert verify_chain(made, head_of(made)) == []


def test_no_events_and_no_head_is_no_fault() -> None:
    assert verify_chain([], None) == []


@pytest.mark.parametrize("at", [0, 2, 5])
def test_an_edited_link_is_found(at: int) -> None:
    made = [*WHOLE[:at], edited(WHOLE[at], rehash=False), *WHOLE[at + 1 :]]
    assert faults(made, HEAD) == [(at + 1, "edited")]


@pytest.mark.parametrize("at", [0, 2, 5])
def test_an_edited_link_with_a_new_hash_is_found_by_its_neighbour_or_the_head(at: int) -> None:
    made = [*WHOLE[:at], edited(WHOLE[at], rehash=True), *WHOLE[at + 1 :]]
    assert faults(made, HEAD) == [(at + 1, "edited")]


def test_a_changed_hash_is_found() -> None:
    made = [*WHOLE[:2], replace(WHOLE[2], hash="0" * 64), *WHOLE[3:]]
    assert (3, "edited") in faults(made, HEAD)


def test_a_dropped_link_is_named() -> None:
    assert faults([*WHOLE[:2], *WHOLE[3:]], HEAD) == [(3, "dropped")]


def test_dropped_links_in_a_row_are_one_fault() -> None:
    (fault,) = verify_chain([*WHOLE[:1], *WHOLE[4:]], HEAD)
    assert (fault.seq, fault.kind) == (2, "dropped")
    assert "links 2 to 4" in fault.message


def test_a_dropped_first_link_is_found() -> None:
    assert faults(WHOLE[1:], HEAD) == [(1, "dropped")]


def test_a_dropped_link_whose_followers_were_renumbered_is_found() -> None:
    rest = [replace(one, seq=one.seq - 1) for one in WHOLE[3:]]
    found = faults([*WHOLE[:2], *rest], HEAD)
    assert (3, "dropped") in found
    assert {(4, "reordered"), (5, "reordered"), (6, "reordered")} <= set(found)


def test_links_in_another_order_are_found() -> None:
    made = [*WHOLE[:2], WHOLE[3], WHOLE[2], *WHOLE[4:]]
    assert faults(made, HEAD) == [(3, "reordered")]


def test_links_that_swapped_their_numbers_are_found() -> None:
    made = [*WHOLE[:2], replace(WHOLE[3], seq=3), replace(WHOLE[2], seq=4), *WHOLE[4:]]
    found = faults(made, HEAD)
    assert (3, "reordered") in found
    assert (4, "reordered") in found


def test_a_gap_is_only_closed_where_a_late_link_fills_it() -> None:
    made = [WHOLE[0], WHOLE[5], WHOLE[2]]
    assert faults(made, HEAD) == [(3, "reordered"), (2, "dropped"), (4, "dropped")]


def test_a_late_link_is_matched_to_its_own_gap() -> None:
    made = [WHOLE[0], WHOLE[2], WHOLE[5], WHOLE[4]]
    assert faults(made, HEAD) == [(5, "reordered"), (2, "dropped"), (4, "dropped")]


def test_a_doubled_link_is_found() -> None:
    assert faults([*WHOLE[:3], WHOLE[2], *WHOLE[3:]], HEAD) == [(3, "doubled")]


def test_a_cut_off_end_is_found_by_the_head() -> None:
    (fault,) = verify_chain(WHOLE[:4], HEAD)
    assert (fault.seq, fault.kind) == (5, "truncated")
    assert "links 5 to 6" in fault.message


def test_a_chain_removed_whole_is_found_by_the_head() -> None:
    assert faults([], HEAD) == [(1, "truncated")]


def test_a_removed_head_is_found() -> None:
    assert faults(WHOLE, None) == [(6, "head")]


def test_a_head_older_than_the_chain_is_found() -> None:
    assert faults(WHOLE, head_of(WHOLE[:4])) == [(4, "head")]


def test_a_link_of_another_thread_is_found() -> None:
    strange = event(7, HEAD.hash, thread="t2")
    made = [*WHOLE, strange]
    assert faults(made, head_of(made)) == [(7, "foreign")]


def test_another_chains_beginning_is_found() -> None:
    made = [event(1, "ab" * 32)]
    assert faults(made, head_of(made)) == [(1, "edited")]


@pytest.mark.parametrize("line", [b"", b"{}", b'{"body":{}}', b'{"body":{},"prev":"x","seq":3}'])
def test_a_line_of_another_form_is_found_once(line: bytes) -> None:
    bad = replace(WHOLE[2], line=line, hash=link_hash(line))
    assert faults([*WHOLE[:2], bad, *WHOLE[3:]], HEAD) == [(3, "malformed")]


def test_bodies_without_a_thread_are_judged_by_their_chain_alone() -> None:
    line, made = link(body=b'{"v":1}', prev=GENESIS, seq=1, run_seq=1)
    one = StoredEvent(thread_id="t1", seq=1, event_id="e", kind="k", line=line, hash=made)
    assert verify_chain([one], head_of([one])) == []


def test_a_thread_id_inside_the_data_does_not_confuse() -> None:
    body = b'{"data":{"thread_id":"t9"},"thread_id":"t1","tool":"\\"thread_id\\":\\"t8\\"","v":1}'
    line, made = link(body=body, prev=GENESIS, seq=1, run_seq=1)
    one = StoredEvent(thread_id="t1", seq=1, event_id="e", kind="k", line=line, hash=made)
    assert verify_chain([one], head_of([one])) == []


def test_a_huge_gap_costs_nothing() -> None:
    made = [WHOLE[0], event(10**15, "ab" * 32)]
    assert faults(made, head_of(made)) == [(2, "dropped")]


def test_the_verifier_is_fed_link_by_link() -> None:
    verifier = ChainVerifier("t1")
    assert [verifier.add(one) for one in WHOLE] == [[]] * 6
    assert (verifier.count, verifier.last) == (6, 6)
    assert verifier.finish(HEAD) == []


def test_messages_name_the_link_and_no_content() -> None:
    (fault,) = verify_chain([*WHOLE[:2], edited(WHOLE[2], rehash=False), *WHOLE[3:]], HEAD)
    assert fault == Fault(
        seq=3,
        kind="edited",
        message="link 3: it is not what its hash was made of.",
        event_id="e3",
    )


def full(
    seq: int, prev: str, *, run: str = "r1", run_seq: int | None = None, name: str = ""
) -> StoredEvent:
    """An event of the form that the auditor makes."""
    body = {
        "arguments_digest": "d",
        "at": seq,
        "call_id": "c",
        "data": {},
        "id": name or f"e{seq}",
        "kind": "started",
        "run_id": run,
        "thread_id": "t1",
        "tool": "x",
        "turn_id": "u",
        "user": None,
        "v": 1,
    }
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    line, made = link(body=text, prev=prev, seq=seq, run_seq=run_seq or seq)
    return StoredEvent(
        thread_id="t1", seq=seq, event_id=name or f"e{seq}", kind="started", line=line, hash=made
    )


def runs(*places: tuple[str, int]) -> list[StoredEvent]:
    """A chain whose links have these runs and numbers within them."""
    made: list[StoredEvent] = []
    for seq, (run, run_seq) in enumerate(places, 1):
        prev = made[-1].hash if made else GENESIS
        made.append(full(seq, prev, run=run, run_seq=run_seq))
    return made


FULL = runs(("r1", 1), ("r1", 2), ("r2", 1), ('r"3', 1), ("r1", 3), ("r2", 2))


def test_the_runs_of_a_whole_chain_are_counted() -> None:
    assert verify_chain(FULL, head_of(FULL)) == []


@pytest.mark.parametrize(
    ("places", "seq"),
    [
        ([("r1", 2)], 1),
        ([("r1", 1), ("r1", 3)], 2),
        ([("r1", 1), ("r1", 1)], 2),
        ([("r1", 1), ("r2", 2)], 2),
    ],
)
def test_a_link_that_does_not_follow_in_its_run_is_found(
    places: list[tuple[str, int]], seq: int
) -> None:
    made = runs(*places)
    assert faults(made, head_of(made)) == [(seq, "run")]


def test_after_a_gap_a_run_may_have_gone_on() -> None:
    assert faults([FULL[0], *FULL[2:]], head_of(FULL)) == [(2, "dropped")]
    made = [FULL[0], full(3, FULL[1].hash, run_seq=1)]
    assert faults(made, head_of(made)) == [(3, "run"), (2, "dropped")]


@pytest.mark.parametrize(("column", "value"), [("event_id", "other"), ("kind", "other")])
def test_a_column_beside_the_line_that_was_changed_is_found(column: str, value: str) -> None:
    changes: dict[str, Any] = {column: value}
    made = [FULL[0], replace(FULL[1], **changes), *FULL[2:]]
    assert faults(made, head_of(FULL)) == [(2, "edited")]


def test_a_fault_says_which_event() -> None:
    made = [FULL[0], edited(FULL[1], rehash=False), *FULL[2:]]
    assert [fault.event_id for fault in verify_chain(made, head_of(FULL))] == ["e2"]


def test_a_running_count_that_is_not_the_heads_is_found() -> None:
    head = replace(head_of(FULL), count=6)
    assert faults(FULL, head) == []
    assert faults(FULL, replace(head, count=5)) == [(6, "count")]


@pytest.mark.parametrize("body", [b"{", b"[1]", b'{"run_id":"r","thread_id":"t2"}'])
def test_a_body_that_is_no_event_is_judged_by_what_it_says(body: bytes) -> None:
    line, made = link(body=body, prev=GENESIS, seq=1, run_seq=1)
    one = StoredEvent(thread_id="t1", seq=1, event_id="e", kind="k", line=line, hash=made)
    expected = [(1, "foreign")] if b"t2" in body else []
    assert faults([one], head_of([one])) == expected


def anchor(at: StoredEvent, **changes: object) -> Anchor:
    facts = {"thread_id": "t1", "seq": at.seq, "hash": at.hash, "removed": at.seq}
    return Anchor(**(facts | {"at": 1, "by": "ops"} | changes))  # type: ignore[arg-type]


class TestPruned:
    def test_a_chain_goes_on_at_its_anchor(self) -> None:
        assert verify_chain(FULL[3:], head_of(FULL), anchor(FULL[2])) == []

    def test_a_chain_pruned_to_its_end_has_its_anchor_as_head(self) -> None:
        assert verify_chain([], head_of(FULL), anchor(FULL[5])) == []

    def test_links_missing_after_the_anchor_are_found(self) -> None:
        found = verify_chain(FULL[4:], head_of(FULL), anchor(FULL[2]))
        assert [(fault.seq, fault.kind) for fault in found] == [(4, "dropped")]

    def test_a_link_that_continues_another_than_the_anchor_is_found(self) -> None:
        found = verify_chain(FULL[3:], head_of(FULL), anchor(FULL[2], hash="ab" * 32))
        assert [(fault.seq, fault.kind) for fault in found] == [(3, "edited")]

    def test_a_pruned_link_that_is_there_again_is_found(self) -> None:
        found = verify_chain(FULL[2:], head_of(FULL), anchor(FULL[2]))
        assert [(fault.seq, fault.kind) for fault in found] == [(3, "doubled")]
        assert "pruned" in found[0].message

    def test_a_run_goes_on_from_where_it_was_pruned(self) -> None:
        made = [full(4, FULL[2].hash, run="r9", run_seq=7)]
        made.append(full(5, made[0].hash, run="r9", run_seq=9))
        assert [(f.seq, f.kind) for f in verify_chain(made, head_of(made), anchor(FULL[2]))] == [
            (5, "run")
        ]


class TestWitnesses:
    def verified(self, events: list[StoredEvent], *seen: Witness, **more: Anchor) -> list[str]:
        verifier = ChainVerifier("t1", witnesses=seen, **more)
        found = [fault for event in events for fault in verifier.add(event)]
        return [f"{one.seq} {one.kind}" for one in found + verifier.finish(head_of(events))]

    def witness(self, at: StoredEvent, **changes: Any) -> Witness:
        return replace(Witness(seq=at.seq, hash=at.hash, source="the file"), **changes)

    def test_heads_that_agree_are_no_fault(self) -> None:
        assert self.verified(FULL, self.witness(FULL[1]), self.witness(FULL[5])) == []

    def test_a_chain_that_was_rewritten_is_found(self) -> None:
        assert self.verified(FULL, self.witness(FULL[1], hash="0" * 64)) == ["2 edited"]

    def test_a_chain_cut_off_with_its_head_is_found(self) -> None:
        assert self.verified(FULL[:4], self.witness(FULL[5])) == ["6 truncated"]

    def test_a_pruned_link_is_compared_with_the_anchor(self) -> None:
        cut = anchor(FULL[2])
        rest = FULL[3:]
        assert self.verified(rest, self.witness(FULL[2]), anchor=cut) == []
        assert self.verified(rest, self.witness(FULL[2], hash="1" * 64), anchor=cut) == ["3 edited"]
        assert self.verified(rest, self.witness(FULL[0], hash="1" * 64), anchor=cut) == []


def stored(count: int) -> list[tuple[Any, ...]]:
    """Links as a store has them: whole bodies, and the run and turn beside them."""
    rows: list[tuple[Any, ...]] = []
    prev = GENESIS
    for seq in range(1, count + 1):
        run, turn = f"r{seq % 2}", f"t{seq // 3}"
        body: dict[str, Any] = {
            "id": f"e{seq}",
            "kind": "started",
            "run_id": run,
            "thread_id": "t1",
            "tool": "x",
        }
        body |= {"turn_id": turn, "user": None, "v": 1}
        text = json.dumps(body, separators=(",", ":")).encode()
        run_seq = (seq + 1) // 2
        line, prev = link(body=text, prev=prev, seq=seq, run_seq=run_seq)
        rows.append(("t1", seq, f"e{seq}", "started", line, prev, run, run_seq, turn))
    return rows


ROWS = stored(6)
END = ThreadHead(thread_id="t1", seq=6, hash=ROWS[-1][5], count=6)


def read(rows: list[tuple[Any, ...]], head: Any = END, run: Any = ("r0", 3)) -> list[Fault]:
    verifier = ChainVerifier("t1")
    found = [fault for row in rows for fault in verifier.add_row(row)]
    return found + verifier.finish(head, run)


def test_what_is_stored_beside_a_line_is_no_fault() -> None:
    assert read(ROWS) == []
    assert read([row[:6] for row in ROWS]) == []


@pytest.mark.parametrize("at", [0, 3, 5])
@pytest.mark.parametrize(
    ("place", "name", "value"),
    [(6, "run_id", "r9"), (7, "run_seq", 9), (7, "run_seq", "x"), (8, "turn_id", "t9")],
)
def test_a_column_that_differs_from_its_line_is_found(
    at: int, place: int, name: str, value: Any
) -> None:
    row = (*ROWS[at][:place], value, *ROWS[at][place + 1 :])
    (fault,) = read([*ROWS[:at], row, *ROWS[at + 1 :]])
    assert (fault.seq, fault.kind, fault.event_id) == (at + 1, "edited", f"e{at + 1}")
    assert f"the {name} stored beside it" in fault.message


@pytest.mark.parametrize("run", [("r1", 3), ("r0", 2), ("r0", "3")])
def test_a_head_that_goes_on_with_another_run_is_found(run: tuple[Any, Any]) -> None:
    (fault,) = read(ROWS, run=run)
    assert (fault.seq, fault.kind) == (6, "head")
    assert "the run stored with the head" in fault.message


def test_a_run_is_compared_after_a_link_that_was_judged_too() -> None:
    last = (*ROWS[-1][:8], "t9")
    assert [fault.kind for fault in read([*ROWS[:-1], last], run=("r1", 3))] == ["edited", "head"]
    unread = (*ROWS[-1][:4], b"{}", *ROWS[-1][5:])
    found = read([*ROWS[:-1], unread], run=("r1", 3))
    assert {fault.kind for fault in found} == {"edited", "malformed"}


@pytest.mark.parametrize("changed", [{"seq": "x"}, {"seq": 6.0}, {"count": "x"}])
def test_a_head_whose_numbers_are_none_is_a_fault(changed: dict[str, Any]) -> None:
    (fault,) = read(ROWS, replace(END, **changed))
    assert (fault.seq, fault.kind) == (6, "head")


@pytest.mark.parametrize("seq", [0, -5, "x", 1.5])
def test_a_link_under_a_number_of_its_own_is_found(seq: Any) -> None:
    forged = ("t1", seq, "e0", "decided", b"{}", "0" * 64, "r0", 1, "t0")
    rows = [*ROWS, forged] if isinstance(seq, str) else [forged, *ROWS]
    assert {fault.kind for fault in read(rows)} >= {"malformed", "edited"}
    assert read(ROWS) == []


def test_an_anchor_whose_number_is_none_hides_nothing() -> None:
    odd: Any = "x"
    anchor = Anchor(thread_id="t1", seq=odd, hash="0" * 64, removed=2, at=1, by="ops")
    verifier = ChainVerifier("t1", anchor=anchor)
    found = [fault for row in ROWS[2:] for fault in verifier.add_row(row)]
    assert "dropped" in [fault.kind for fault in found + verifier.finish(END)]
