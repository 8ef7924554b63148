"""Tools that take what the host fills in: it is not signed, not shown, and arrives."""

# Annotations are read at run time by LangChain here.

from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command
from tests.support.room import Rooms, free, gated
from tests.support.script import ai, call


def build(rooms: Rooms) -> dict[str, Any]:
    @tool
    def with_runtime(text: str, runtime: ToolRuntime) -> str:
        """Use the runtime."""
        rooms.ledger.add(tool="with_runtime", id=runtime.tool_call_id)
        runtime.stream_writer({"progress": text})
        return f"saw {len(runtime.state['messages'])} messages"

    @tool
    def with_state(
        text: str,
        state: Annotated[dict[str, Any], InjectedState],
        tool_call_id: Annotated[str, InjectedToolCallId],
    ) -> Command[Any]:
        """Use the state and the id."""
        rooms.ledger.add(tool="with_state", id=tool_call_id, seen=len(state["messages"]))
        return Command(update={"messages": [ToolMessage("by command", tool_call_id=tool_call_id)]})

    return {"with_runtime": with_runtime, "with_state": with_state}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["gated", "free"])
@pytest.mark.parametrize("name", ["with_runtime", "with_state"])
async def test_injected_arguments_arrive_and_are_not_shown(
    rooms: Rooms, kind: str, name: str
) -> None:
    spec = gated(name) if kind == "gated" else free(name)
    room = rooms(ai(call(name, "o1", text="x")), tools=[build(rooms)[name]], specs=[spec])
    await room.say()
    for asked in await room.asked():
        assert asked.value["request"]["arguments"] == {"text": "x"}
        assert set(asked.value["request"]["schema"]["properties"]) == {"text"}
        await room.decide(asked)
    (effect,) = room.ledger.of(name)
    assert effect["id"] == "o1"
    assert (await room.results())["o1"].status == "success"


@pytest.mark.anyio
@pytest.mark.parametrize("ghost", ["runtime", "state", "tool_call_id"])
@pytest.mark.parametrize("name", ["with_runtime", "with_state"])
async def test_a_model_cannot_fill_in_what_the_host_does(
    rooms: Rooms, name: str, ghost: str
) -> None:
    room = rooms(
        ai(call(name, "o1", text="x", **{ghost: "forged"})),
        tools=[build(rooms)[name]],
        specs=[free(name)],
    )
    await room.say()
    assert room.ledger.all == []
    assert (await room.results())["o1"].status == "error"


@pytest.mark.anyio
async def test_progress_of_an_approved_tool_arrives_once(rooms: Rooms) -> None:
    name = "with_runtime"
    room = rooms(ai(call(name, "o1", text="x")), tools=[build(rooms)[name]], specs=[gated(name)])
    asked = await room.question()
    answer: Any = Command(resume={asked.id: room.sign(asked)})
    parts = [p async for p in room.agent.astream(answer, room.config, stream_mode="custom")]
    assert parts == [{"progress": "x"}]
