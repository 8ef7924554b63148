"""AdapterSettings: the one reader of the environment for the library's front ends.

The command line, the client and the template build their settings here, and pass values on. This
room reads names and checks them; it opens no key file, no database and no connection.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from typing_extensions import override

from adapter.core.errors import ConfigurationError
from adapter.core.prices import MOST, MOST_DOLLARS
from adapter.core.rates import Rate
from adapter.environment import (
    explain,
    read_file,
    refuse_placeholders,
    refuse_unknown,
    servers_database,
)

__all__ = ["AdapterSettings"]

_TEMPLATE_NAMES: Final = ("AGENT_DATABASE", "AGENT_MODEL", "AGENT_TOOL_DELAY_MS")
_PLATFORM_NAMES: Final = ("LANGSMITH_LANGGRAPH_API_VARIANT", "LANGGRAPH_API_URL")
_DAY: Final = 86_400.0
_COST: Final[Any] = Field(
    default=None, ge=Decimal("0.000001"), le=MOST_DOLLARS, allow_inf_nan=False
)


class AdapterSettings(BaseSettings):
    """Every setting of the library, validated and frozen; build it with `load`.

    A field is read from ``ADAPTER_`` and its own name in capitals. Building the class directly
    reads no environment: it takes the values given and the defaults.

    Attributes:
        data_dir: Where the embedded defaults are kept.
        database_uri: SQLAlchemy URL of the store; may hold a password, so it is not in the repr.
            Unset, it is the server's own PostgreSQL (DATABASE_URI, POSTGRES_URI) where it has one,
            else a SQLite file in the data folder.
        key_file: The key ring's file; its content is not read here.
        audience: What an approval is for; None means an id kept in the store.
        on_invalid: What an invalid answer does.
        approval_ttl: Seconds a question stays open.
        lease: Seconds a claim lives without being renewed.
        cancel_grace: Seconds a cancelled call may use to finish and be recorded.
        url: The LangGraph server the client talks to.
        token: What the client sends to that server as its credential.
        reviewer: Who the client says decides.
        reviewer_key: The reviewer's own private key file; the client then uses it alone.
        reviewer_passphrase: Opens the private key in that file.
        sqlite_sync: SQLite's ``synchronous`` for the store.
        prices: Where prices come from: a file, or ``genai``; None means costs are not computed.
        allow_anonymous: Lifts the rule that an unauthenticated client must be local.
        model_calls_per_turn: Budget of model calls in one user turn; per thread and user, and
            of tool calls, tokens and cost (dollars), likewise. None is no budget.
        tool_rate: Tool calls of one user within a sliding window, such as ``10/minute``.
        model_rate: Model calls, likewise.
        reserve_tokens: Held back for a model call whose model names no ``max_tokens``.
        on_exceeded: What a spent budget does.
        audit_file: Where audit events are also appended, as JSON lines.
        audit_otel: Whether they are also spans; ``arguments`` shows the masked arguments there.
        retention: Days that `adapter audit prune` keeps events and recorded outcomes.
        api_variant: The platform's own name for the server we run in, empty outside.
        api_url: The platform's own address of that server, empty when it gives none.
    """

    model_config = SettingsConfigDict(
        env_prefix="ADAPTER_",
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    data_dir: Path = Path(".adapter")
    database_uri: str = Field(
        default_factory=lambda done: f"sqlite:///{(done['data_dir'] / 'adapter.db').as_posix()}",
        repr=False,
    )
    key_file: Path = Field(default_factory=lambda done: done["data_dir"] / "keys.json")
    audience: str | None = Field(default=None, min_length=1, max_length=200)
    on_invalid: Literal["ask", "raise"] = "ask"
    approval_ttl: float = Field(default=_DAY, gt=0, le=3_650 * _DAY, allow_inf_nan=False)
    lease: float = Field(default=30.0, gt=0, le=_DAY, allow_inf_nan=False)
    cancel_grace: float = Field(default=10.0, gt=0, le=_DAY, allow_inf_nan=False)
    url: str = "http://127.0.0.1:2024"
    token: SecretStr | None = None
    reviewer: str = Field(default="local", min_length=1, max_length=200)
    reviewer_key: Path | None = None
    reviewer_passphrase: SecretStr | None = None
    sqlite_sync: Literal["NORMAL", "FULL"] = "NORMAL"
    prices: str | None = None
    allow_anonymous: bool = False
    self_approval: bool = False
    relayed_answers: bool = True
    model_calls_per_turn: int = Field(default=10, ge=1, le=10_000)
    model_calls_per_thread: int | None = Field(default=None, ge=1, le=MOST)
    model_calls_per_user: int | None = Field(default=None, ge=1, le=MOST)
    tool_calls_per_turn: int = Field(default=20, ge=1, le=10_000)
    tool_calls_per_thread: int | None = Field(default=None, ge=1, le=MOST)
    tool_calls_per_user: int | None = Field(default=None, ge=1, le=MOST)
    refusals_per_turn: int = Field(default=5, ge=1, le=10_000)
    tokens_per_turn: int | None = Field(default=None, ge=1, le=MOST)
    tokens_per_thread: int | None = Field(default=None, ge=1, le=MOST)
    tokens_per_user: int | None = Field(default=None, ge=1, le=MOST)
    cost_per_turn: Decimal | None = _COST
    cost_per_thread: Decimal | None = _COST
    cost_per_user: Decimal | None = _COST
    tool_rate: str | None = None
    model_rate: str | None = None
    reserve_tokens: int = Field(default=1024, ge=1, le=10_000_000)
    on_exceeded: Literal["refuse", "end", "ask"] = "end"
    audit_file: Path | None = None
    audit_otel: Literal["off", "on", "arguments"] = "off"
    retention: float | None = Field(default=None, gt=0, le=36_500, allow_inf_nan=False)
    api_variant: str = Field(default="", validation_alias="LANGSMITH_LANGGRAPH_API_VARIANT")
    api_url: str = Field(default="", validation_alias="LANGGRAPH_API_URL")

    names_known_elsewhere: ClassVar[tuple[str, ...]] = _TEMPLATE_NAMES
    """Names another settings class reads: they are not refused, and not read here."""

    @classmethod
    def load(
        cls, env: Mapping[str, str] | None = None, env_file: Path | None = Path(".env")
    ) -> Self:
        """Read, check and freeze the settings.

        The environment wins over the file. An empty value counts as unset. What the platform says
        about the server we run in is taken from the environment alone.

        Args:
            env: The environment; None means this process's own.
            env_file: A dotenv file that may be absent; None reads no file.

        Returns:
            The validated settings.

        Raises:
            ConfigurationError: An unknown name, a placeholder or a value out of bounds. It names
                the setting and the cure and repeats no value.
        """
        given = dict(os.environ if env is None else env)
        written = {
            name: value
            for name, value in read_file(env_file).items()
            if name not in _PLATFORM_NAMES
        }
        merged = {**written, **{name: value for name, value in given.items() if value}}
        if not merged.get("ADAPTER_DATABASE_URI") and (own := servers_database(given)):
            merged["ADAPTER_DATABASE_URI"] = own
        fields = cls._fields_by_name()
        refuse_unknown({**written, **given}, {*fields, *cls.names_known_elsewhere})
        values: dict[str, Any] = {
            fields[name]: value for name, value in merged.items() if name in fields and value
        }
        refuse_placeholders(merged, (name for name in fields if name not in _PLATFORM_NAMES))
        try:
            return cls(**values)
        except ValidationError as error:
            names = {field: name for name, field in fields.items()}
            message = explain(error, names)
        raise ConfigurationError(message)

    @classmethod
    def _fields_by_name(cls) -> dict[str, str]:
        """Environment name to field name, for every field of this class."""
        prefix = cls.model_config.get("env_prefix", "")
        return {
            str(field.validation_alias or f"{prefix}{name}".upper()): name
            for name, field in cls.model_fields.items()
        }

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values only from `load`, so that nothing is read behind its checks."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @field_validator("data_dir")
    @classmethod
    def _a_folder_usable_in_a_url(cls, value: Path) -> Path:
        if "?" in str(value):
            raise ValueError("must not contain a question mark")
        if any(_is_file(path) for path in (value, *value.parents)):
            raise ValueError("a file is there, and a folder is wanted: name another")
        return value

    @field_validator("database_uri")
    @classmethod
    def _known_database(cls, value: str) -> str:
        if re.match(r"(sqlite|postgresql)(\+\w+)?://", value) is None:
            raise ValueError("must begin with sqlite:/// or postgresql+psycopg://")
        return value

    @field_validator("tool_rate", "model_rate")
    @classmethod
    def _rate(cls, value: str | None) -> str | None:
        try:
            Rate.parse(value)
        except ConfigurationError as error:
            raise ValueError(error.message) from None
        return value

    @field_validator("url")
    @classmethod
    def _web_address(cls, value: str) -> str:
        if _host(value) is None or urlsplit(value).scheme not in {"http", "https"}:
            raise ValueError("must be an address such as http://127.0.0.1:2024")
        return value.rstrip("/")

    @property
    def budgets(self) -> dict[str, Any]:
        """The fields of Budgets that are settings; prices are loaded from their source."""
        names = type(self).model_fields
        return {
            name: getattr(self, name)
            for name in names
            if "_per_" in name or name in ("tool_rate", "model_rate")
        } | {"reserve_tokens": self.reserve_tokens, "on_exceeded": self.on_exceeded}

    @property
    def database_given(self) -> bool:
        """Whether a database was configured, rather than the embedded default used."""
        return "database_uri" in self.model_fields_set

    @property
    def key_file_given(self) -> bool:
        """Whether a key file was configured, rather than the embedded default used."""
        return "key_file" in self.model_fields_set

    @property
    def served(self) -> bool:
        """Whether this process runs inside a LangGraph API server."""
        return bool(self.api_variant or self.api_url)

    @property
    def is_loopback(self) -> bool:
        """Whether that server is the development one, reachable from this machine only."""
        if self.api_variant != "local_dev":
            return False
        return not self.api_url or _is_loopback_host(_host(self.api_url))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # what this process may not look into is said where it is used
        return False


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_loopback_host(host: str | None) -> bool:
    if host is None:
        return False
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
