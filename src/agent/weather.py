"""The weather now, from Open-Meteo: two keyless requests, and no state.

What is asked and how answers are read is one generator without I/O; a synchronous and an
asynchronous driver send its requests. This room reads no setting and keeps nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import httpx

from adapter.core.errors import ToolError

__all__ = ["OpenMeteo", "Unit"]

Unit: TypeAlias = Literal["celsius", "fahrenheit"]
_Steps: TypeAlias = Generator[httpx.Request, httpx.Response, dict[str, Any]]

GEOCODING_URL: Final = "https://geocoding-api.open-meteo.com/v1/search"
FORECAST_URL: Final = "https://api.open-meteo.com/v1/forecast"

# World Meteorological Organization code 4677, as Open-Meteo groups it.
_CONDITIONS: Final = {
    0: "clear sky",
    1: "mainly clear",
    2: "partly cloudy",
    3: "overcast",
    45: "fog",
    48: "freezing fog",
    51: "light drizzle",
    53: "drizzle",
    55: "heavy drizzle",
    56: "light freezing drizzle",
    57: "freezing drizzle",
    61: "light rain",
    63: "rain",
    65: "heavy rain",
    66: "light freezing rain",
    67: "freezing rain",
    71: "light snow",
    73: "snow",
    75: "heavy snow",
    77: "snow grains",
    80: "light showers",
    81: "showers",
    82: "violent showers",
    85: "light snow showers",
    86: "heavy snow showers",
    95: "thunderstorm",
    96: "thunderstorm with hail",
    99: "thunderstorm with heavy hail",
}
_OFFLINE: Final = (
    "The weather service cannot be reached ({kind}). This machine may be offline; the other tools "
    "still work."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMeteo:
    """A client of Open-Meteo.

    Attributes:
        timeout: Seconds for each request.
        transport: Sends synchronous requests; None means httpx's own.
        async_transport: Sends asynchronous requests; None means httpx's own.
    """

    timeout: float = 10.0
    transport: httpx.BaseTransport | None = None
    async_transport: httpx.AsyncBaseTransport | None = None

    def now(self, location: str, unit: Unit = "celsius") -> dict[str, Any]:
        """Look the weather of a place up.

        Args:
            location: A city's name, in any language.
            unit: ``celsius`` or ``fahrenheit``.

        Returns:
            ``location``, ``temperature``, ``unit``, ``condition``, ``humidity`` (per cent) and
            ``observed_at`` (local time of the place).

        Raises:
            ToolError: Unknown place, the service is out of reach, or its answer makes no sense.
        """
        steps = _lookup(location, unit)
        with httpx.Client(timeout=self.timeout, transport=self.transport) as client:
            try:
                request = next(steps)
                while True:
                    request = steps.send(client.send(request))
            except StopIteration as done:
                return dict(done.value)
            except httpx.HTTPError as error:
                raise ToolError(_OFFLINE.format(kind=type(error).__name__)) from error

    async def anow(self, location: str, unit: Unit = "celsius") -> dict[str, Any]:
        """As `now`, without blocking the event loop."""
        steps = _lookup(location, unit)
        # Reading the certificates blocks, which `langgraph dev` forbids on its loop.
        verify: ssl.SSLContext | bool = True
        if self.async_transport is None:
            verify = await asyncio.to_thread(httpx.create_ssl_context)
        async with httpx.AsyncClient(
            timeout=self.timeout, transport=self.async_transport, verify=verify
        ) as client:
            try:
                request = next(steps)
                while True:
                    request = steps.send(await client.send(request))
            except StopIteration as done:
                return dict(done.value)
            except httpx.HTTPError as error:
                raise ToolError(_OFFLINE.format(kind=type(error).__name__)) from error


def _lookup(location: str, unit: Unit) -> _Steps:
    """Ask for the place, then for its weather."""
    places = _json(
        (
            yield httpx.Request(
                "GET", GEOCODING_URL, params={"name": location, "count": 1, "format": "json"}
            )
        )
    ).get("results")
    if not places:
        raise ToolError(f"No place called {location!r} was found. Try a larger city nearby.")
    try:
        place = places[0]
        params = {
            "latitude": place["latitude"],
            "longitude": place["longitude"],
            "current": "temperature_2m,relative_humidity_2m,weather_code",
            "temperature_unit": unit,
            "timezone": "auto",
        }
        current = _json((yield httpx.Request("GET", FORECAST_URL, params=params)))["current"]
        return {
            "location": ", ".join(filter(None, (place["name"], place.get("country")))),
            "temperature": current["temperature_2m"],
            "unit": unit,
            "condition": _CONDITIONS.get(current["weather_code"], "unknown"),
            "humidity": current["relative_humidity_2m"],
            "observed_at": current["time"],
        }
    except (KeyError, TypeError, IndexError) as error:
        raise ToolError("The weather service answered in an unknown form; try later.") from error


def _json(response: httpx.Response) -> dict[str, Any]:
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise ToolError("The weather service wants fewer requests; try again in a minute.")
    if not response.is_success:
        raise ToolError(f"The weather service answered with status {response.status_code}.")
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ToolError("The weather service answered in an unknown form; try later.")
    return body
