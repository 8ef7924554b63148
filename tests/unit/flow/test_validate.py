"""Every fault of a flow, and all of them at once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    create_model,
    field_serializer,
)
from tests.unit.flow.kit import Kit, Order, logs, order
from typing_extensions import TypeAliasType, TypedDict

from adapter import Registry
from adapter.flow import END, Call, Flow, FlowCompileError, FlowError, Join, Map, Merge, Route

nothing = logs("x")
BAD: Any = 7


def flow() -> Flow:
    return Flow("f", state=Order)


def line(*names: str) -> Flow:
    """Nodes one after the other."""
    made = flow()
    for name in names:
        made.node(name, nothing)
    for source, to in pairwise(names):
        made.edge(source, to)
    return made.end(names[-1])


def faults(made: Flow, registry: Registry | None = None) -> list[str]:
    with pytest.raises(FlowCompileError) as caught:
        made.validate(registry)
    return [text.removeprefix("- ") for text in str(caught.value).splitlines()[1:]]


def test_a_flow_without_a_fault_passes() -> None:
    order().validate()
    order().validate(Kit().executor.registry)


def test_every_fault_is_listed_at_once() -> None:
    made = (
        flow()
        .node("aa_x", nothing)
        .node("a", Call("nope", into="invoice"))
        .node("a", Map("itemz", tool="rate"))
        .edge("aa_x", "b")
        .edge("a", Route(lambda _state: "a", to=("a", "c")))
        .end("z")
    )
    found = faults(made, Kit().executor.registry)
    said = " / ".join(found)
    for part in (
        "node 'a' is declared twice",
        "node 'aa_x' has a reserved name",
        "end('z') names an unknown node",
        "the edge from 'aa_x' leads to the unknown node 'b'",
        "the Route from 'a' leads to the unknown node 'c'",
        "node 'a' is unreachable",
        "the cycle of a has no cap",
        "there is no end",
        "Map over 'itemz' names no field. Fields are: items, log",
    ):
        assert part in said
    with pytest.raises(FlowCompileError, match=rf"^Flow 'f' has {len(found)} faults:\n- "):
        made.validate(Kit().executor.registry)


def test_one_fault_is_one() -> None:
    with pytest.raises(FlowCompileError, match="has 1 fault:"):
        line("a").end("b").validate()


def test_a_compile_error_is_a_flow_error_with_a_code() -> None:
    assert issubclass(FlowCompileError, FlowError)
    assert (FlowError.code, FlowCompileError.code) == ("flow", "flow_compile")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda made: made.edge("a", "zz"), "the edge from 'a' leads to the unknown node 'zz'"),
        (lambda made: made.edge("zz", "b"), "an edge begins at the unknown node 'zz'"),
        (lambda made: made.start("zz"), "start('zz') names an unknown node"),
        (lambda made: made.end("zz"), "end('zz') names an unknown node"),
        (lambda made: made.edge("a"), "edge('a') leads nowhere"),
        (lambda made: made.node("a", nothing), "node 'a' is declared twice"),
        (lambda made: made.node("c", nothing).end("c"), "node 'c' is unreachable from a"),
        (lambda made: made.node("c", nothing).edge("a", "c"), "node 'c' is a dead end"),
        (lambda made: made.edge("b", "a"), "the cycle of a, b has no cap"),
        (lambda made: made.node("d", 7).edge("a", "d").end("d"), "node 'd': it is a function, a"),
        (lambda made: made.edge("a", nothing), "edge('a', <function"),
        (
            lambda made: made.edge("a", None),
            "edge('a', None): a node's name is text, not a NoneType",
        ),
        (lambda made: made.edge("a", ["b"]), "edge('a', ['b']): a node's name is text, not a list"),
        (lambda made: made.edge(["a"], "b"), "edge(['a'], …): a node's name is text, not a list"),
        (lambda made: made.end(["a"]), "end(…): a node's name is text, not a list"),
        (lambda made: made.start(["a"]), "start(…): a node's name is text, not a list"),
        (lambda made: made.node(3, nothing).edge("a", 3).end(3), "node(3): a node's name is text"),
        (lambda made: made.node(None, nothing), "node(None): a node's name is text"),
        (lambda made: made.node(["c", "d"], nothing), "node(['c', 'd']): a node's name is text"),
        (lambda made: made.node("d", Join(BAD)).edge("a", "d").end("d"), "node 'd': Join takes a"),
    ],
)
def test_a_fault_of_the_graph_is_named(change: Callable[[Flow], Any], fault: str) -> None:
    made = line("a", "b")
    made.validate()
    change(made)
    assert any(text.startswith(fault) for text in faults(made)), faults(made)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"timeout": 0}, "timeout must be positive seconds"),
        ({"timeout": float("nan")}, "timeout must be positive seconds"),
        ({"retries": -1}, "retries is a whole number, 0 or more, or a Retry, not -1"),
        ({"retries": "two"}, "retries is a whole number"),
        ({"retries": 1.5}, "retries is a whole number"),
        ({"retries": True}, "retries is a whole number"),
        ({"timeout": "5"}, "timeout must be positive seconds"),
        ({"timeout": True}, "timeout must be positive seconds"),
        ({"before": None}, "before takes functions of the state"),
        ({"after": 5}, "after takes functions of the state"),
        ({"before": ["x"]}, "before takes functions of the state"),
        ({"after": [nothing, None]}, "after takes functions of the state"),
        ({"pause": {"a": 1}}, "pause takes a function of the state"),
    ],
)
def test_a_fault_of_a_node_is_named(options: dict[str, Any], fault: str) -> None:
    (found,) = faults(flow().node("n", nothing, **options).end("n"))
    assert found.startswith(f"node 'n': {fault}")


@pytest.mark.parametrize(
    ("work", "fault"),
    [
        (Call("rate", into="invoice"), "into='invoice' names no field. Fields are: items, log"),
        (Map("items", tool="rate", into="x"), "into='x' names no field"),
        (Call("rate", into=["x"]), "into=['x'] names no field"),  # type: ignore[arg-type]
        (Call("rate", BAD), "arguments= is a mapping, a function or None, not a int"),
        (Call(nothing), "a tool is called by its name, not by a function"),
        (Map("items", tool="rate", arguments=BAD), "arguments= is a function or None, not a int"),
        (Map(BAD, tool="rate"), "Map is over a field's name or a function, not 7"),
        (Map("x", tool="rate"), "Map over 'x' names no field"),
        (Map("items", tool="rate", concurrency=0), "concurrency is a whole number"),
        (Call("rate", on_tool_failure="no"), "on_tool_failure is 'message' or 'raise', not 'no'"),  # type: ignore[arg-type]
    ],
)
def test_a_fault_of_a_call_is_named(work: Any, fault: str) -> None:
    made = flow().node("n", work).end("n")
    (found,) = faults(made)
    assert found.startswith(f"node 'n': {fault}")
    assert found in faults(made, Kit().executor.registry)


def test_a_tool_the_registry_lacks_is_named() -> None:
    made = flow().node("n", Call("ratte")).end("n")
    made.validate()
    (found,) = faults(made, Kit().executor.registry)
    assert found.startswith("node 'n' calls the tool 'ratte', which the registry does not have")


@pytest.mark.parametrize(
    ("route", "fault"),
    [
        (Route(nothing, to=()), "has no targets"),
        (Route(nothing, to=BAD), "to= names nodes as text, not 7"),
        (Route(nothing, to=None), "to= names nodes as text, not None"),  # type: ignore[arg-type]
        (Route(nothing, to=("b", None)), "to= names nodes as text, not None"),  # type: ignore[arg-type]
        (Route(nothing, to="b", otherwise=["b"]), "otherwise= names nodes as text, not ['b']"),  # type: ignore[arg-type]
        (Route("a", to="a"), "needs a function of the state"),  # type: ignore[arg-type]
        (Route(nothing, to=("zz",)), "leads to the unknown node 'zz'"),
        (Route(nothing, to=("b",), otherwise="zz"), "leads to the unknown node 'zz'"),
        (Route(nothing, to=("b",), caps={"c": 1}), "has a cap for 'c', which is none of"),
        (Route(nothing, to=("b",), caps=-1), "a cap is a whole number"),
        (Route(nothing, to=("b",), caps={"b": True}), "a cap is a whole number"),
    ],
)
def test_a_fault_of_a_route_is_named(route: Route, fault: str) -> None:
    said = " / ".join(faults(line("a", "b").edge("a", route)))
    assert "the Route from 'a'" in said
    assert fault in said


@pytest.mark.parametrize(
    "name",
    [
        *("__start__", "__end__", "aa_x", "", "a:b", "a/b", "a|b"),
        *("__error__", "__input__", "__interrupt__", "__no_writes__", "__resume__"),
    ],
)
def test_a_reserved_or_unusable_name_of_a_node_is_refused(name: str) -> None:
    said = " / ".join(faults(flow().node(name, nothing).end(name)))
    assert f"node {name!r} " in said


@pytest.mark.parametrize("name", ["", "a/b", BAD, None])
def test_an_unusable_name_of_a_flow_is_refused(name: str) -> None:
    (found,) = faults(Flow(name, state=Order).node("n", nothing).end("n"))
    assert found.startswith(f"the flow's name {name!r}")


# ---------------------------------------------------------------------------------------- cycles


def test_a_cycle_through_a_capped_route_is_fine() -> None:
    line("a", "b").edge("b", Route(nothing, to=("a", END), caps={"a": 3})).validate()


def test_a_cap_for_all_targets_caps_each() -> None:
    line("a", "b").edge("b", Route(nothing, to=("a", END), caps=3)).validate()


def test_a_cycle_through_a_cap_of_another_target_is_refused() -> None:
    made = line("a", "b").node("c", nothing).end("c")
    made.edge("b", Route(nothing, to=("a", "c"), caps={"c": 3}))
    assert any("the cycle of a, b has no cap" in text for text in faults(made))


def test_a_cycle_through_otherwise_is_refused() -> None:
    made = line("a", "b").edge("b", Route(nothing, to=(END,), caps=3, otherwise="a"))
    assert any("the cycle of a, b has no cap" in text for text in faults(made))


def test_a_node_that_leads_to_itself_needs_a_cap() -> None:
    assert any("the cycle of a has no cap" in text for text in faults(line("a").edge("a", "a")))


def test_two_cycles_are_two_faults() -> None:
    made = line("a", "b").edge("a", "a").edge("b", "b")
    assert sum("has no cap" in text for text in faults(made)) == 2


# ------------------------------------------------------------------------------------------ ends


def test_a_flow_without_nodes_says_so() -> None:
    assert faults(flow()) == ["there is no node"]


def test_an_edge_to_the_end_is_an_end() -> None:
    flow().node("a", nothing).edge("a", END).validate()


def test_a_route_to_the_end_is_an_end() -> None:
    flow().node("a", nothing).edge("a", Route(nothing, to=END)).validate()


def test_an_end_that_nothing_leads_to_is_no_end() -> None:
    made = flow().node("a", nothing).node("b", nothing).end("b")
    made.edge("a", Route(nothing, to=("a",), caps=1))
    assert "no end is reachable" in faults(made)


def test_several_starts_reach_their_own_nodes() -> None:
    flow().node("a", nothing).node("b", nothing).start("a", "b").end("a", "b").validate()


# ---------------------------------------------------------------------------------------- merges


def twins(into: str, state: Any = Order) -> Flow:
    made = Flow("f", state=state).node("s", nothing)
    made.node("a", Call("note", into=into)).node("b", Map("items", tool="rate", into=into))
    return made.edge("s", "a", "b").end("a", "b")


def conflicts(made: Flow) -> bool:
    try:
        made.validate()
    except FlowCompileError as error:
        return "merge conflict" in str(error)
    return False


def test_two_calls_of_one_superstep_into_an_undeclared_field_conflict() -> None:
    (found,) = faults(twins("note"))
    assert found.startswith("merge conflict: the nodes 'a' and 'b' may write the field 'note'")


def test_a_declared_rule_is_the_cure() -> None:
    assert not conflicts(twins("log"))


def test_calls_one_after_the_other_do_not_conflict() -> None:
    made = flow().node("a", Call("note", into="note")).node("b", Call("note", into="note"))
    assert not conflicts(made.edge("a", "b").end("b"))


def test_targets_of_one_route_are_alternatives() -> None:
    made = flow().node("s", nothing)
    made.node("a", Call("note", into="note")).node("b", Call("note", into="note"))
    assert not conflicts(made.edge("s", Route(nothing, to=("a", "b"))).end("a", "b"))


def test_targets_of_two_routes_may_meet() -> None:
    made = flow().node("s", nothing)
    made.node("a", Call("note", into="note")).node("b", Call("note", into="note"))
    made.edge("s", Route(nothing, to="a"), Route(nothing, to="b")).end("a", "b")
    assert conflicts(made)


def test_descendants_of_a_fork_may_meet() -> None:
    made = flow().node("s", nothing).node("p", nothing).node("q", nothing)
    made.node("a", Call("note", into="note")).node("b", Call("note", into="note"))
    made.edge("s", "p", "q").edge("p", "a").edge("q", "b").end("a", "b")
    assert conflicts(made)


def test_a_join_does_not_meet_what_it_waits_for() -> None:
    made = flow().node("s", nothing).node("p", nothing)
    made.node("a", Call("note", into="note")).node("j", Join())
    made.node("b", Call("note", into="note"))
    made.edge("s", "p", "j").edge("p", "a").edge("a", "j").edge("j", "b").end("b")
    assert not conflicts(made)


def test_what_follows_two_joins_may_meet() -> None:
    made = flow().node("s", nothing).node("j", Join()).node("k", Join())
    made.node("a", Call("note", into="note")).node("b", Call("note", into="note"))
    made.edge("s", "j", "k").edge("j", "a").edge("k", "b").end("a", "b")
    assert conflicts(made)


def test_two_starts_may_meet() -> None:
    made = flow().node("a", Call("note", into="note")).node("b", Call("note", into="note"))
    assert conflicts(made.start("a", "b").end("a", "b"))


# ---------------------------------------------------------------------------------------- fields


class Opaque:
    pass


class Account(BaseModel):
    token: SecretStr = SecretStr("x")


class Half(BaseModel):
    shown: int = 1
    hidden: int = Field(5, exclude=True)


class Tree(BaseModel):
    leaves: list[Tree] = Field(default_factory=list)
    half: Half = Half()


class Row(TypedDict):
    token: SecretBytes


class Kept(BaseModel):
    token: SecretStr

    @field_serializer("token", when_used="json")
    def shown(self, token: SecretStr) -> str:
        return token.get_secret_value()


Alias = TypeAliasType("Alias", dict[str, Secret[int]])
Shown = Annotated[SecretStr, PlainSerializer(lambda secret: secret.get_secret_value())]


class Loose(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    what: Opaque


def of_fields(state: Any) -> list[str]:
    return faults(Flow("f", state=state).node("n", nothing).end("n"))


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        (Loose, "field 'what' has a type that is no JSON"),
        (create_model("S", f=(Callable[[], int], ...)), "field 'f' has a type that is no JSON"),
        (create_model("S", aa_x=(int, 0)), "field 'aa_x' has a reserved name"),
        (
            create_model("S", f=(Annotated[int, Merge.sum, Merge.max], 0)),
            "field 'f' has 2 merge rules; give it one",
        ),
        (
            create_model("S", f=(Annotated[int, operator.add], 0)),
            "field 'f' is annotated with a function",
        ),
        (
            create_model("S", f=(Annotated[list[int], Merge.append] | None, None)),
            "field 'f' has its merge rule inside its type",
        ),
        (create_model("S", f=(int, Field(0, exclude=True))), "field 'f' is excluded from"),
        (create_model("S", f=(SecretStr, ...)), "field 'f' holds a SecretStr, whose JSON is aster"),
        (create_model("S", f=(list[Account], ...)), "field 'f' holds a SecretStr"),
        (create_model("S", f=(Row | None, None)), "field 'f' holds a SecretBytes"),
        (create_model("S", f=(Alias, ...)), "field 'f' holds a Secret, whose"),
        (
            create_model("S", f=(dict[str, Tree], ...)),
            "field 'f' holds a Half, whose field hidden is excluded from its JSON",
        ),
        (create_model("S", f=(int, "x")), "field 'f' has a default that does not hold: f: "),
    ],
)
def test_a_fault_of_a_field_is_named(state: Any, fault: str) -> None:
    (found,) = of_fields(state)
    assert found.startswith(fault)


def test_a_secret_with_a_serializer_of_its_own_is_kept() -> None:
    state = create_model("S", f=(Shown, ...), g=(Kept, ...), h=(list[Shown], ...))
    made = Flow("f", state=state).node("n", nothing).end("n")
    made.validate()
    given = {"f": "x", "g": {"token": "y"}, "h": ["z"]}
    assert made.fields.initial(given) == given


@pytest.mark.parametrize("state", [dict, Order(), RootModel[list[int]], None])
def test_a_state_that_is_no_model_is_refused_at_once(state: Any) -> None:
    with pytest.raises(FlowCompileError, match="Flow 'f': state= takes a pydantic model class"):
        Flow("f", state=state)


def test_a_state_that_names_a_type_nobody_defined_is_refused() -> None:
    class Early(BaseModel):
        later: Later  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(FlowCompileError, match="names the type Later, which is not defined yet"):
        Flow("f", state=Early)


def test_what_is_added_after_a_check_is_checked_too() -> None:
    made = line("a", "b")
    made.validate()
    before = made.digest
    made.node("c", nothing)
    assert faults(made)
    assert made.digest != before
