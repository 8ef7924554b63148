"""AgentSettings: what the template adds to the library's settings.

The only module of the template that knows names of the environment; it reads values and checks
them, and opens nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import Field
from typing_extensions import override

from adapter.core.errors import ConfigurationError
from adapter.settings import AdapterSettings

__all__ = ["PROVIDER_KEYS", "AgentSettings"]

PROVIDER_KEYS: Final[Mapping[str, str]] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "azure_openai": "AZURE_OPENAI_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "google_genai": "GOOGLE_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistralai": "MISTRAL_API_KEY",
    "openai": "OPENAI_API_KEY",
    "xai": "XAI_API_KEY",
}
"""Where each provider's package looks for its key."""

_NO_LETTERS: Final = re.compile(r"\.\.|…|[<>*]|\$\{")
_PLACEHOLDER: Final = re.compile(
    r"(?:change|replace|insert|add|put|enter)[-_]?(?:me|this|your|key)|your[-_]|x{5}|placeholder"
    r"|example|dummy|secret[-_]key|api[-_]?key",
    re.IGNORECASE,
)
_LONGEST_PLACEHOLDER: Final = 48
"""Longer ones are real: in so many random letters any short word may turn up by chance."""
_SHORTEST: Final = 20
_OWN_ADDRESS: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE")


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

    @classmethod
    @override
    def load(
        cls, env: Mapping[str, str] | None = None, env_file: Path | None = Path(".env")
    ) -> Self:
        """Read, check and freeze the settings, as the library does.

        The provider's key is looked at too, where ``AGENT_MODEL`` needs one: what cannot be a key
        is better said now than by the first user's question.

        Raises:
            ConfigurationError: As the library's, or a key that is a placeholder.
        """
        made = super().load(env, env_file)
        written = dotenv_values(env_file) if env_file is not None and env_file.exists() else {}
        given = os.environ if env is None else env
        _check_key(
            made.model, {**written, **{name: value for name, value in given.items() if value}}
        )
        return made


def _check_key(model: str, env: Mapping[str, str | None]) -> None:
    """Refuse what no provider takes for a key, as far as that is known without asking it.

    A server of one's own may want any word for a key, so only what no request could carry is
    refused there. No key at all is the provider package's business: it may have another way.
    """
    provider = model.partition(":")[0] if ":" in model else _guessed(model)
    name = PROVIDER_KEYS.get(provider, "")
    key = env.get(name) or ""
    if model == "demo" or not key:
        return
    fault = ""
    if not re.fullmatch(r"[!-~]+", key):
        fault = "has blanks or letters that no request can carry"
    elif _asks_provider(provider, env):
        if _NO_LETTERS.search(key) or (
            len(key) < _LONGEST_PLACEHOLDER and _PLACEHOLDER.search(key)
        ):
            fault = "is still a placeholder"
        elif len(key) < _SHORTEST or (provider == "openai" and not key.startswith("sk-")):
            fault = "is not a key as this provider gives them"
    if fault:
        msg = (
            f"{name} {fault}, and AGENT_MODEL needs it: put your own key into .env or the "
            "environment, or set AGENT_MODEL=demo, which needs none."
        )
        if provider == "openai":
            msg += " For a compatible server of your own also set OPENAI_BASE_URL."
        raise ConfigurationError(msg)


def _guessed(model: str) -> str:
    """Return the provider that `init_chat_model` takes for a name without one."""
    names = {"openai": ("gpt-", "o1", "o3", "chatgpt"), "anthropic": ("claude",)}
    return next((known for known, begins in names.items() if model.startswith(begins)), "")


def _asks_provider(provider: str, env: Mapping[str, str | None]) -> bool:
    """Tell whether requests go to the provider itself, which knows its own keys' form."""
    if provider != "openai":
        return True
    address = next((env[name] for name in _OWN_ADDRESS if env.get(name)), None)
    return address is None or (urlsplit(address).hostname or "").endswith("openai.com")
