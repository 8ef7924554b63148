"""AgentSettings: what the template adds to the library's settings.

The only module of the template that knows names of the environment; it reads values and checks
them, and opens nothing.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from adapter.settings import AdapterSettings

__all__ = ["AgentSettings"]


class AgentSettings(AdapterSettings):
    """The library's settings and the template's own; build it with `load`.

    Attributes:
        model: ``demo``, or any id that `init_chat_model` takes.
        database: The embedded Acme database's file.
        tool_delay_ms: Milliseconds a gated demo tool takes after its effect.
    """

    model: str = Field(default="demo", validation_alias="AGENT_MODEL", min_length=1, max_length=200)
    database: Path = Field(
        default_factory=lambda done: done["data_dir"] / "acme.db",
        validation_alias="AGENT_DATABASE",
    )
    tool_delay_ms: int = Field(default=0, validation_alias="AGENT_TOOL_DELAY_MS", ge=0, le=600_000)
