"""Open-Meteo: what is asked, how answers are read, and every way it can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx
from blockbuster import blockbuster_ctx

from adapter.core.errors import ToolError
from agent.weather import FORECAST_URL, GEOCODING_URL, OpenMeteo

PLACE = {"results": [{"name": "Tokyo", "country": "Japan", "latitude": 35.7, "longitude": 139.7}]}
CURRENT = {
    "current": {
        "time": "2026-11-30T21:00",
        "temperature_2m": 11.5,
        "relative_humidity_2m": 55,
        "weather_code": 2,
    }
}


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(assert_all_called=False) as router:
        router.get(GEOCODING_URL, name="place").respond(json=PLACE)
        router.get(FORECAST_URL, name="now").respond(json=CURRENT)
        yield router


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Any:
    """Both drivers, as one function."""
    if request.param == "sync":
        return OpenMeteo().now
    return lambda *args: asyncio.run(OpenMeteo().anow(*args))


def test_the_weather_of_a_place_is_told(web: respx.MockRouter, ask: Any) -> None:
    assert ask("tokyo") == {
        "location": "Tokyo, Japan",
        "temperature": 11.5,
        "unit": "celsius",
        "condition": "partly cloudy",
        "humidity": 55,
        "observed_at": "2026-11-30T21:00",
    }
    assert web["place"].calls.last.request.url.params["name"] == "tokyo"
    params = web["now"].calls.last.request.url.params
    assert (params["latitude"], params["temperature_unit"]) == ("35.7", "celsius")


def test_the_unit_is_asked_for(web: respx.MockRouter, ask: Any) -> None:
    assert ask("tokyo", "fahrenheit")["unit"] == "fahrenheit"
    assert web["now"].calls.last.request.url.params["temperature_unit"] == "fahrenheit"


def test_a_new_weather_code_is_unknown(web: respx.MockRouter, ask: Any) -> None:
    web["now"].respond(json={"current": {**CURRENT["current"], "weather_code": 42}})
    assert ask("tokyo")["condition"] == "unknown"


@pytest.mark.parametrize("body", [{}, {"results": []}])
def test_an_unknown_place_is_named(web: respx.MockRouter, ask: Any, body: Any) -> None:
    web["place"].respond(json=body)
    with pytest.raises(ToolError, match="No place called 'Atlantis'"):
        ask("Atlantis")
    assert not web["now"].called


@pytest.mark.parametrize("fault", [httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadTimeout])
@pytest.mark.parametrize("route", ["place", "now"])
def test_offline_is_a_clear_error(
    web: respx.MockRouter, ask: Any, route: str, fault: type[Exception]
) -> None:
    web[route].mock(side_effect=fault)
    with pytest.raises(ToolError, match=rf"cannot be reached \({fault.__name__}\)"):
        ask("tokyo")


@pytest.mark.parametrize(
    ("status", "said"), [(500, "status 500"), (302, "status 302"), (429, "fewer requests")]
)
def test_an_error_status_is_told(web: respx.MockRouter, ask: Any, status: int, said: str) -> None:
    web["now"].respond(status)
    with pytest.raises(ToolError, match=said):
        ask("tokyo")


@pytest.mark.parametrize("content", ["<html>", "[]", "{}", '{"current": {}}', '{"current": 1}'])
def test_an_answer_of_another_form_is_told(web: respx.MockRouter, ask: Any, content: str) -> None:
    web["now"].respond(content=content)
    with pytest.raises(ToolError, match="unknown form"):
        ask("tokyo")


@pytest.mark.anyio
async def test_nothing_blocks_the_event_loop(web: respx.MockRouter) -> None:
    with blockbuster_ctx():
        assert (await OpenMeteo().anow("tokyo"))["humidity"] == 55
