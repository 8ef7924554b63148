"""The state's fields: JSON on the wire, writes, and how they merge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic_core import from_json, to_json

from adapter.core.merge import UNSET
from adapter.flow import FlowError, Merge
from adapter.flow.fields import Fields
from adapter.flow.wire import jsonable


def add_up(current: Any, writes: Any) -> Any:
    return [*(current or []), len(writes)]


class State(BaseModel):
    plain: str = "x"
    listed: Annotated[list[int], Merge.append] = Field(default_factory=list)
    nested: Annotated[list[list[int]], Merge.append] = Field(default_factory=list)
    last: Annotated[int, Merge.last] = 0
    united: Annotated[dict[str, int], Merge.union] = Field(default_factory=dict)
    tags: Annotated[set[str], Merge.union] = Field(default_factory=set)
    money: Annotated[Decimal, Merge.sum] = Decimal(0)
    newest: Annotated[datetime | None, Merge.max] = None
    lowest: Annotated[int | None, Merge.min] = None
    own: Annotated[list[int], Merge.custom(add_up)] = Field(default_factory=list)
    anything: Any = None


FIELDS = Fields(State)


def merged(name: str, current: Any, *writes: Any) -> Any:
    field = FIELDS[name]
    return field.merge(field.read(current), [field.write(write) for write in writes])


@pytest.mark.parametrize(
    ("name", "current", "writes", "after"),
    [
        ("plain", "x", ["a", "b"], "b"),
        ("last", 1, [2, 3], 3),
        ("listed", [1], [2, [3, 4]], [1, 2, 3, 4]),
        ("nested", [], [[1, 2], [[3]]], [[1, 2], [3]]),
        ("united", {"a": 1}, [{"b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        ("money", Decimal("1.5"), [Decimal("2.5"), 1], "5.0"),
        ("lowest", None, [3, 2], 2),
        ("own", [], [[7], "no list"], [2]),
    ],
)
def test_writes_are_merged_by_the_rule_of_their_field(
    name: str, current: Any, writes: list[Any], after: Any
) -> None:
    assert merged(name, current, *writes) == after


def test_sets_and_tuples_are_appended_to_as_well() -> None:
    class Other(BaseModel):
        tags: Annotated[set[str], Merge.append] = Field(default_factory=set)
        pair: Annotated[tuple[int, ...], Merge.append] = ()

    fields = Fields(Other)
    after = fields.apply(
        fields.initial({"tags": {"a"}, "pair": (1,)}),
        [{"tags": [fields["tags"].write({"b"}), fields["tags"].write("a")], "pair": [[2]]}],
    )
    assert fields.load(after) == Other(tags={"a", "b"}, pair=(1, 2))


def test_a_set_is_a_list_on_the_wire() -> None:
    assert sorted(merged("tags", {"a"}, {"b"}, {"a"})) == ["a", "b"]


WORDS = ["apple", "fig", "kiwi", "lime", "pear", "plum", "quince"]


class Box(BaseModel):
    model_config = ConfigDict(frozen=True)

    words: frozenset[str] = frozenset(WORDS)
    size: int = 0


@dataclass(frozen=True)
class Crate:
    words: frozenset[str]
    plain: int = 1


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (set(WORDS), WORDS),
        ({"a": [(1, frozenset(WORDS))]}, {"a": [[1, WORDS]]}),
        ({10, 9, 2}, [10, 2, 9]),
        (RootModel[set[str]](set(WORDS)), WORDS),
        (Crate(frozenset(WORDS)), {"words": WORDS, "plain": 1}),
        (
            {Box(size=2), Box(size=1)},
            [{"words": WORDS, "size": 1}, {"words": WORDS, "size": 2}],
        ),
        ({frozenset(WORDS), frozenset({"z", "y"})}, [WORDS, ["y", "z"]]),
        ((word for word in WORDS), WORDS),
        (["b", "a"], ["b", "a"]),
        ({1: {"b"}, 2: "x"}, {"1": ["b"], "2": "x"}),
    ],
)
def test_sets_come_in_the_order_of_their_json_wherever_they_stand(value: Any, made: Any) -> None:
    assert jsonable(value) == made


@pytest.mark.parametrize("kind", [set[str], frozenset[str], Any, Box | set[str]])
def test_a_field_keeps_its_sets_in_one_order(kind: Any) -> None:
    state = create_model("S", f=(kind, ...))
    assert Fields(state).initial({"f": set(WORDS)}) == {"f": WORDS}


def test_a_set_is_appended_in_one_order() -> None:
    assert FIELDS["listed"].write({10, 9, 2}) == [10, 2, 9]


def test_a_returned_state_does_not_write_a_set_that_came_in_another_order() -> None:
    values = {**FIELDS.initial({}), "tags": WORDS[::-1]}
    state = FIELDS.load(values)
    assert FIELDS.update(state, values, where="x") == {}
    state.tags.add("zucchini")
    assert FIELDS.update(state, values, where="x") == {"tags": [[*WORDS, "zucchini"]]}


def test_a_returned_state_says_what_was_appended_to_a_set() -> None:
    class Growing(BaseModel):
        words: Annotated[set[str], Merge.append] = Field(default_factory=set)

    fields = Fields(Growing)
    values = {"words": WORDS[::-1]}
    state = fields.load(values)
    state.words.add("banana")
    assert fields.update(state, values, where="x") == {"words": [["banana"]]}
    state.words.discard("apple")
    with pytest.raises(FlowError, match="can only be added"):
        fields.update(state, values, where="x")


def test_times_are_compared_as_times_and_not_as_text() -> None:
    early = datetime.fromisoformat("2026-01-01T09:00:00+05:00")
    late = datetime(2026, 1, 1, 5, tzinfo=UTC)
    assert merged("newest", None, late, early) == "2026-01-01T05:00:00Z"


def test_no_write_leaves_the_value() -> None:
    assert FIELDS["listed"].merge([1], []) == [1]


def test_the_fields_are_a_mapping_by_name() -> None:
    assert len(FIELDS) == len(State.model_fields)
    assert list(FIELDS) == list(State.model_fields)


def test_a_field_without_a_rule_is_not_declared() -> None:
    assert [name for name, field in FIELDS.items() if not field.declared] == ["plain", "anything"]


@pytest.mark.parametrize(
    ("name", "write"),
    [("listed", ["a"]), ("listed", "a"), ("last", "many"), ("united", [1]), ("plain", 7)],
)
def test_a_write_that_is_no_value_of_its_field_is_refused_by_name(name: str, write: Any) -> None:
    with pytest.raises(FlowError, match=f"^{name}"):
        FIELDS[name].write(write)


@pytest.mark.parametrize("value", [math.inf, [math.nan], {"a": object()}, "\ud800", b"\xff"])
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(FlowError, match=r"^anything: "):
        FIELDS["anything"].write(value)


def test_what_a_rule_of_ones_own_is_given_must_have_a_json_form() -> None:
    with pytest.raises(FlowError, match=r"^own: "):
        FIELDS["own"].write(math.inf)


def test_a_rule_that_fails_is_named() -> None:
    def broken(_current: Any, _writes: Any) -> Any:
        raise KeyError("secret")

    class Broken(BaseModel):
        x: Annotated[int, Merge.custom(broken)] = 0

    with pytest.raises(FlowError, match=r"x: Merge\.custom\(broken\) raised KeyError") as caught:
        Fields(Broken)["x"].merge(0, [1])
    assert "secret" not in str(caught.value)


def test_values_that_a_rule_cannot_merge_are_refused() -> None:
    class Mixed(BaseModel):
        x: Annotated[int | str, Merge.sum] = 0

    with pytest.raises(FlowError, match=r"x: Merge\.sum cannot merge"):
        Fields(Mixed)["x"].merge(0, ["a"])


def test_what_a_rule_makes_must_be_a_value_of_the_field() -> None:
    class Short(BaseModel):
        x: Annotated[list[int], Merge.append, Field(max_length=2)] = Field(default_factory=list)

    with pytest.raises(FlowError, match="x: "):
        Fields(Short)["x"].merge([1, 2], [[3]])


# --------------------------------------------------------------------------- what a node returns


VALUES = FIELDS.initial({"listed": [1], "last": 5})


def update(returned: Any) -> Any:
    return FIELDS.update(returned, VALUES, where="flow 'f', node 'n'")


def test_nothing_returned_writes_nothing() -> None:
    assert update(None) == {}


def test_a_dict_is_one_write_for_each_field() -> None:
    assert update({"listed": 2, "plain": "y"}) == {"listed": [[2]], "plain": ["y"]}


def test_an_unknown_field_is_named_with_the_node() -> None:
    with pytest.raises(
        FlowError, match=r"node 'n': it returned the unknown field invoice\. Fields"
    ):
        update({"invoice": "x"})


def test_something_else_returned_is_refused() -> None:
    with pytest.raises(FlowError, match="node 'n': it returned a int; return None, a dict"):
        update(7)


def test_a_wrong_value_names_node_and_field_and_shows_no_value() -> None:
    with pytest.raises(FlowError, match=r"node 'n': last: Input should be a valid integer") as it:
        update({"last": "top-secret"})
    assert "top-secret" not in str(it.value)


def test_a_returned_state_writes_the_fields_that_differ() -> None:
    state = FIELDS.load(VALUES)
    state.listed.append(2)
    assert update(state.model_copy(update={"plain": "y"})) == {"plain": ["y"], "listed": [[2]]}


def test_a_returned_state_that_is_unchanged_writes_nothing() -> None:
    assert update(FIELDS.load(VALUES)) == {}


def test_a_returned_state_cannot_take_back_what_was_appended() -> None:
    with pytest.raises(FlowError, match="listed: items can only be added"):
        update(FIELDS.load(VALUES).model_copy(update={"listed": []}))


def test_a_returned_state_cannot_say_what_was_summed() -> None:
    with pytest.raises(FlowError, match=r"money: .* return a dict of writes"):
        update(FIELDS.load(VALUES).model_copy(update={"money": Decimal(1)}))


# ------------------------------------------------------------------------------------ the state


def test_a_run_begins_with_a_mapping_or_a_model() -> None:
    assert FIELDS.initial({"last": 5}) == FIELDS.initial(State(last=5))


def test_what_a_run_begins_with_is_validated_field_by_field() -> None:
    with pytest.raises(FlowError, match=r"state: last: .*; listed: |state: listed: .*; last: "):
        FIELDS.initial({"last": "x", "listed": "y"})


def test_a_run_cannot_begin_with_an_unknown_field() -> None:
    with pytest.raises(FlowError, match=r"there is no field nope\. Fields are: anything, "):
        FIELDS.initial({"nope": 1})


def test_a_run_cannot_begin_with_something_else() -> None:
    with pytest.raises(FlowError, match="give a State or a mapping of its fields, not a NoneType"):
        FIELDS.initial(None)


def test_a_model_made_invalid_afterwards_is_refused() -> None:
    state = State()
    state.last = "x"  # type: ignore[assignment]
    with pytest.raises(FlowError, match="last"):
        FIELDS.initial(state)


def test_two_nodes_see_two_copies_of_the_state() -> None:
    FIELDS.load(VALUES).listed.append(99)
    assert FIELDS.load(VALUES).listed == [1]


def test_what_does_not_hold_any_more_names_where() -> None:
    with pytest.raises(FlowError, match="here: the state does not hold: last: "):
        FIELDS.load({"last": "x"}, where="here")


def test_fields_are_read_and_written_by_name_and_never_by_alias() -> None:
    class Aliased(BaseModel):
        model_config = ConfigDict(serialize_by_alias=True, alias_generator=str.upper)

        name: str = Field(default="", alias="other")
        size: int = 0

    fields = Fields(Aliased)
    values = fields.initial({"name": "a", "size": 1})
    assert values == {"name": "a", "size": 1}
    assert fields.load(values).name == "a"


def test_a_strict_state_takes_its_own_json() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)

        when: datetime
        tags: set[str]

    fields = Fields(Strict)
    values = fields.initial({"when": datetime(2026, 1, 1, tzinfo=UTC), "tags": {"a"}})
    assert fields.load(values) == Strict(when=datetime(2026, 1, 1, tzinfo=UTC), tags={"a"})
    with pytest.raises(FlowError, match="when"):
        fields["when"].write("2026-01-01T00:00:00Z")


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    puppies: list[Dog] = Field(default_factory=list)


class Colour(Enum):
    RED = "red"


class Rich(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=str.upper)

    pet: Cat | Dog = Field(discriminator="kind")
    colour: Colour = Colour.RED
    ident: UUID
    small: int = Field(gt=0)
    pairs: tuple[int, str]
    by_day: dict[date, Decimal]
    raw: bytes
    wait: timedelta | None = None
    sizes: frozenset[int] = frozenset()


def test_rich_types_come_back_from_their_json_as_they_were() -> None:
    given = {
        "pet": Dog(puppies=[Dog()]),
        "ident": UUID(int=7),
        "small": 1,
        "pairs": (1, "a"),
        "by_day": {date(2026, 1, 1): Decimal("1.10")},
        "raw": b"text",
        "wait": timedelta(seconds=1.5),
        "sizes": frozenset({1}),
    }
    fields = Fields(Rich)
    assert [field.faults for field in fields.values()] == [[]] * len(given) + [[]]
    values = fields.initial(given)
    assert values == from_json(to_json(values))
    back = fields.load(values)
    assert {name: getattr(back, name) for name in given} == given
    assert {name: fields[name].write(getattr(back, name)) for name in values} == values
    for name, wrong in (("small", 0), ("pet", {"kind": "cow"}), ("pairs", (1,))):
        with pytest.raises(FlowError, match=f"^{name}"):
            fields[name].write(wrong)


# -------------------------------------------------------------------------- supersteps and edits


def test_writes_of_several_nodes_are_merged_in_the_order_given() -> None:
    after = FIELDS.apply(VALUES, [{"listed": [[2]]}, {"listed": [[3]], "last": [7]}])
    assert after == VALUES | {"listed": [1, 2, 3], "last": 7}


def test_a_field_without_a_value_is_merged_into_its_default() -> None:
    assert FIELDS.apply({}, [{"listed": [[2]]}]) == {"listed": [2]}


def test_two_writers_of_an_undeclared_field_are_a_conflict_naming_all() -> None:
    with pytest.raises(FlowError, match=r"the nodes a, b wrote the field 'plain' in one superstep"):
        FIELDS.conflict({"b": {"plain": ["x"]}, "a": {"plain": ["y"]}, "c": {"last": [1]}})


def test_two_writers_of_a_declared_field_are_none() -> None:
    FIELDS.conflict({"a": {"last": [1]}, "b": {"last": [2]}, "c": {"plain": ["x"]}})


def test_an_edit_is_validated_field_by_field() -> None:
    assert FIELDS.edited({"money": "2.5", "tags": ["a"]}) == {"money": "2.5", "tags": ["a"]}
    with pytest.raises(FlowError, match="last"):
        FIELDS.edited({"last": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("last", True),
        ("last", "7"),
        ("last", 7.5),
        ("plain", 7),
        ("listed", ["1"]),
        ("nested", [[True]]),
        ("united", {"a": "1"}),
        ("tags", "a"),
        ("newest", 0),
    ],
)
def test_an_edit_of_another_type_is_refused_by_its_fields_name(name: str, value: Any) -> None:
    with pytest.raises(FlowError, match=name):
        FIELDS.edited({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("last", 7),
        ("plain", "7"),
        ("listed", [1]),
        ("nested", [[1]]),
        ("united", {"a": 1}),
        ("tags", ["a"]),
        ("money", "1.50"),
        ("newest", "2030-01-02T03:04:05Z"),
        ("newest", None),
        ("anything", {"a": [True, 1, "1"]}),
    ],
)
def test_an_edit_of_the_fields_type_is_kept_as_it_is(name: str, value: Any) -> None:
    assert FIELDS.edited({name: value}) == {name: value}


def test_an_edit_names_fields_only() -> None:
    with pytest.raises(FlowError, match=r"the edit names no field\. Fields are: "):
        FIELDS.edited({})
    with pytest.raises(FlowError, match="there is no field nope to edit"):
        FIELDS.edited({"nope": 1})


# ------------------------------------------------------------------------------------- defaults


class Bare(BaseModel):
    listed: Annotated[list[int], Merge.append]
    united: Annotated[dict[str, int], Merge.union]
    summed: Annotated[int, Merge.sum]
    text: Annotated[str, Merge.sum]
    last: int
    doubled: int = Field(default_factory=lambda data: data["last"] * 2)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("listed", []),
        ("united", {}),
        ("summed", 0),
        ("text", UNSET),
        ("last", UNSET),
        ("doubled", UNSET),
    ],
)
def test_a_field_begins_at_its_default_or_at_the_empty_value_of_its_rule(
    name: str, default: Any
) -> None:
    made = Fields(Bare)[name].default()
    assert made is default if default is UNSET else made == default


def test_the_first_write_of_a_field_without_a_value_is_its_value() -> None:
    assert Fields(Bare)["text"].merge(UNSET, ["a", "b"]) == "ab"
    assert Fields(Bare).apply({}, [{"last": [3]}, {"doubled": []}]) == {"last": 3}
