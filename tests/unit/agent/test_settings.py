"""Settings: defaults, precedence, and refusals that name the setting and hide its value."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from adapter.core.errors import ConfigurationError
from adapter.settings import AdapterSettings
from agent.settings import AgentSettings

LOCAL_DEV = {"LANGSMITH_LANGGRAPH_API_VARIANT": "local_dev"}


def load(**env: str) -> AgentSettings:
    return AgentSettings.load(env, None)


def refusal(**env: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(**env)
    assert caught.value.__cause__ is None
    return caught.value.message


def test_everything_has_a_default() -> None:
    settings = load()
    assert settings.database_uri == "sqlite:///.adapter/adapter.db"
    assert settings.key_file == Path(".adapter/keys.json")
    assert settings.database == Path(".adapter/acme.db")
    assert (settings.model, settings.tool_delay_ms) == ("demo", 0)
    assert (settings.on_invalid, settings.sqlite_sync) == ("ask", "NORMAL")
    assert (settings.approval_ttl, settings.lease, settings.cancel_grace) == (86_400, 30, 10)
    assert (settings.model_calls_per_turn, settings.tool_calls_per_turn) == (10, 20)
    assert (settings.url, settings.reviewer) == ("http://127.0.0.1:2024", "local")
    assert (settings.audience, settings.token, settings.prices) == (None, None, None)
    assert not settings.allow_anonymous


def test_every_embedded_file_lies_in_the_data_directory() -> None:
    settings = load(ADAPTER_DATA_DIR="/srv/data")
    assert settings.database_uri == "sqlite:////srv/data/adapter.db"
    assert settings.key_file == Path("/srv/data/keys.json")
    assert settings.database == Path("/srv/data/acme.db")


def test_whether_a_store_was_configured_is_known() -> None:
    assert not load().database_given
    assert not load().key_file_given
    given = load(ADAPTER_DATABASE_URI="postgresql+psycopg://h/d", ADAPTER_KEY_FILE="k.json")
    assert given.database_given
    assert given.key_file_given


def test_values_are_converted() -> None:
    settings = load(
        ADAPTER_LEASE="2.5",
        ADAPTER_ALLOW_ANONYMOUS="1",
        ADAPTER_TOOL_CALLS_PER_TURN="7",
        AGENT_TOOL_DELAY_MS="1500",
        ADAPTER_URL="https://example.test/",
    )
    assert (settings.lease, settings.allow_anonymous) == (2.5, True)
    assert (settings.tool_calls_per_turn, settings.tool_delay_ms) == (7, 1500)
    assert settings.url == "https://example.test"


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("ADAPTER_REVIEWER=from-file\nADAPTER_LEASE=5\nOTHER=x\n", encoding="utf-8")
    settings = AgentSettings.load({"ADAPTER_REVIEWER": "from-env"}, file)
    assert (settings.reviewer, settings.lease) == ("from-env", 5)


def test_an_empty_value_counts_as_unset(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("ADAPTER_LEASE=5\nADAPTER_AUDIENCE=\n", encoding="utf-8")
    settings = AgentSettings.load({"ADAPTER_LEASE": "", "ADAPTER_TOKEN": ""}, file)
    assert (settings.lease, settings.audience, settings.token) == (5, None, None)


def test_an_absent_file_is_no_file(tmp_path: Path) -> None:
    assert AgentSettings.load({}, tmp_path / "nothing") == load()


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAPTER_REVIEWER", "from-process")
    assert AdapterSettings.load(env_file=None).reviewer == "from-process"


def test_building_the_class_directly_reads_no_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ADAPTER_REVIEWER", "from-process")
    assert AdapterSettings().reviewer == "local"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ADAPTER_LEESE", "ADAPTER_LEASE"),
        ("AGENT_MODLE", "AGENT_MODEL"),
        ("ADAPTER_KEYFILE", "ADAPTER_KEY_FILE"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    assert f"{name} is not a setting: did you mean {nearest}?" in refusal(**{name: "x"})


def test_an_unknown_name_is_refused_even_when_empty() -> None:
    assert "ADAPTER_LEESE" in refusal(ADAPTER_LEESE="")


def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("ADAPTER_AUDIENSE=x\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="ADAPTER_AUDIENCE"):
        AgentSettings.load({}, file)


def test_the_library_alone_knows_the_template_names() -> None:
    env = {"AGENT_MODEL": "demo", "AGENT_DATABASE": "x.db", "AGENT_TOOL_DELAY_MS": "not read here"}
    assert AdapterSettings.load(env, None) == AdapterSettings.load({}, None)


def test_the_list_of_template_names_is_complete() -> None:
    theirs = set(AgentSettings._fields_by_name()) - set(AdapterSettings._fields_by_name())
    assert theirs == set(AdapterSettings.names_known_elsewhere)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ADAPTER_LEASE", "0"),
        ("ADAPTER_LEASE", "nan"),
        ("ADAPTER_LEASE", "soon"),
        ("ADAPTER_APPROVAL_TTL", "-86400"),
        ("ADAPTER_APPROVAL_TTL", "inf"),
        ("ADAPTER_CANCEL_GRACE", "0"),
        ("ADAPTER_MODEL_CALLS_PER_TURN", "0"),
        ("ADAPTER_TOOL_CALLS_PER_TURN", "1.5"),
        ("ADAPTER_ON_INVALID", "ignore"),
        ("ADAPTER_SQLITE_SYNC", "OFF"),
        ("ADAPTER_ALLOW_ANONYMOUS", "perhaps"),
        ("ADAPTER_URL", "localhost:2024"),
        ("ADAPTER_URL", "http://["),
        ("ADAPTER_DATA_DIR", "what?"),
        ("ADAPTER_DATABASE_URI", "mysql://u:hunter2@h/d"),
        ("AGENT_TOOL_DELAY_MS", "-1"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(name: str, value: str) -> None:
    message = refusal(**{name: value})
    assert f"{name} is not valid: " in message
    assert "hunter2" not in message
    assert message.count("is not valid") == 1


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("ADAPTER_APPROVAL_TTL", "seconds: 3600 is an hour"),
        ("ADAPTER_LEASE", "seconds, such as 30"),
        ("ADAPTER_CANCEL_GRACE", "seconds, such as 10"),
        ("ADAPTER_RETENTION", "days, such as 90"),
        ("ADAPTER_COST_PER_TURN", "dollars, such as 0.50"),
        ("ADAPTER_COST_PER_THREAD", "dollars, such as 2"),
        ("ADAPTER_COST_PER_USER", "dollars, such as 20"),
        ("AGENT_TOOL_DELAY_MS", "milliseconds, such as 1500"),
    ],
)
def test_what_is_no_number_is_answered_with_the_unit(name: str, unit: str) -> None:
    message = refusal(**{name: "1h"})
    assert message.startswith(f"{name} is not valid: give a ")
    assert message.endswith(f"number of {unit}.")
    assert load(**{name: "7"})


def test_a_number_out_of_bounds_is_answered_with_the_bound() -> None:
    assert "greater than 0" in refusal(ADAPTER_APPROVAL_TTL="-1")


@pytest.mark.parametrize("path", ["file", "file/sub"])
def test_a_file_in_the_place_of_the_data_folder_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    message = refusal(ADAPTER_DATA_DIR=str(tmp_path / path))
    assert message == (
        "ADAPTER_DATA_DIR is not valid: a file is there, and a folder is wanted: name another."
    )
    assert load(ADAPTER_DATA_DIR=str(tmp_path)).data_dir == tmp_path
    assert load(ADAPTER_DATA_DIR=str(tmp_path / "new")).data_dir == tmp_path / "new"


def test_a_folder_that_cannot_be_looked_into_is_left_to_its_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "is_file", closed)
    assert load(ADAPTER_DATA_DIR="/srv/data").data_dir == Path("/srv/data")


def test_every_bad_value_is_named_at_once() -> None:
    message = refusal(ADAPTER_LEASE="-1", ADAPTER_ON_INVALID="ignore")
    assert "ADAPTER_LEASE" in message
    assert "ADAPTER_ON_INVALID is not valid: set it to ask or raise." in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ADAPTER_KEY_FILE", "path/to/keys.json"),
        ("ADAPTER_KEY_FILE", "<your key file>"),
        ("ADAPTER_TOKEN", "changeme"),
        ("ADAPTER_DATABASE_URI", "postgresql+psycopg://user:change-me@host/db"),
        ("AGENT_MODEL", "<provider:model>"),
    ],
)
def test_a_placeholder_is_refused_and_not_repeated(name: str, value: str) -> None:
    message = refusal(**{name: value})
    assert message.startswith(f"{name} is still a placeholder")
    assert value not in message


def test_an_ordinary_key_file_is_taken() -> None:
    assert load(ADAPTER_KEY_FILE="/run/secrets/keys.json").key_file_given


def test_secrets_are_not_in_the_repr() -> None:
    settings = load(ADAPTER_TOKEN="tok-123", ADAPTER_DATABASE_URI="postgresql://u:pass-456@h/d")
    assert settings.token is not None
    assert settings.token.get_secret_value() == "tok-123"
    assert "tok-123" not in repr(settings)
    assert "pass-456" not in repr(settings)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load().lease = 1.0  # type: ignore[misc]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"ADAPTER_REVIEWER=\xff\xfe\n")
    with pytest.raises(ConfigurationError, match=r"settings file .* cannot be read"):
        AgentSettings.load({}, file)


@pytest.mark.parametrize(
    ("env", "served", "loopback"),
    [
        ({}, False, False),
        (LOCAL_DEV, True, True),
        ({**LOCAL_DEV, "LANGGRAPH_API_URL": "http://127.0.0.1:2024"}, True, True),
        ({**LOCAL_DEV, "LANGGRAPH_API_URL": "http://localhost:2024/mount"}, True, True),
        ({**LOCAL_DEV, "LANGGRAPH_API_URL": "http://[::1]:2024"}, True, True),
        ({**LOCAL_DEV, "LANGGRAPH_API_URL": "http://0.0.0.0:2024"}, True, False),
        ({**LOCAL_DEV, "LANGGRAPH_API_URL": "https://127.0.0.1.example.test"}, True, False),
        ({**LOCAL_DEV, "LANGGRAPH_API_URL": "http://["}, True, False),
        ({"LANGSMITH_LANGGRAPH_API_VARIANT": "licensed"}, True, False),
        ({"LANGGRAPH_API_URL": "http://127.0.0.1:2024"}, True, False),
    ],
)
def test_only_the_development_server_on_this_machine_is_loopback(
    env: dict[str, str], served: bool, loopback: bool
) -> None:
    settings = AgentSettings.load(env, None)
    assert (settings.served, settings.is_loopback) == (served, loopback)


def test_a_file_cannot_claim_to_be_the_server(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("LANGSMITH_LANGGRAPH_API_VARIANT=local_dev\n", encoding="utf-8")
    assert not AgentSettings.load({}, file).served


# ------------------------------------------------------------------------- the provider's key

OWN_KEY = "sk-proj-" + "aZ3_" * 39


@pytest.mark.parametrize(
    "key",
    [
        "sk-...",
        "<your key>",
        "your-api-key-here-0123456789",
        "sk-your-key-goes-here-0000",
        "sk-xxxxxxxxxxxxxxxxxxxxxxxx",
        "changeme-changeme-changeme",
        "${OPENAI_API_KEY}",
        "sk-dummy",
        "sk-short",
        "0123456789abcdef0123456789abcdef",
        "sk-proj-with a blank in the middle of it",
        "sk-proj-schlüssel-0123456789",
    ],
)
def test_what_cannot_be_the_providers_key_is_refused_without_showing_it(key: str) -> None:
    message = refusal(AGENT_MODEL="openai:gpt-4o-mini", OPENAI_API_KEY=key)
    assert "OPENAI_API_KEY" in message
    assert "AGENT_MODEL=demo" in message
    assert key not in message


@pytest.mark.parametrize(
    "env",
    [
        {"AGENT_MODEL": "openai:gpt-4o-mini", "OPENAI_API_KEY": OWN_KEY},
        {"AGENT_MODEL": "openai:gpt-4o-mini", "OPENAI_API_KEY": f"{OWN_KEY}xxxxxxyour-dummy"},
        {"AGENT_MODEL": "anthropic:claude-x", "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef"},
        {"AGENT_MODEL": "openai:gpt-4o-mini"},
    ],
)
def test_what_may_be_the_providers_key_is_taken(env: dict[str, str]) -> None:
    assert load(**env).model == env["AGENT_MODEL"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:8000/v1", "https://models.example.org"])
@pytest.mark.parametrize("name", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_a_server_of_ones_own_may_want_any_word_for_a_key(name: str, address: str) -> None:
    given = {"AGENT_MODEL": "openai:own", "OPENAI_API_KEY": "dummy", name: address}
    assert load(**given).model == "openai:own"
    assert "no request can carry" in refusal(**{**given, "OPENAI_API_KEY": "two words"})
    there = {**given, name: "https://api.openai.com/v1"}
    assert "OPENAI_BASE_URL" in refusal(**there)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "o3-mini", "openai:gpt-4o-mini"])
def test_a_model_named_without_its_provider_needs_the_same_key(model: str) -> None:
    assert "OPENAI_API_KEY" in refusal(AGENT_MODEL=model, OPENAI_API_KEY="sk-...")
    assert "ANTHROPIC_API_KEY" in refusal(AGENT_MODEL="claude-x", ANTHROPIC_API_KEY="your-key")


@pytest.mark.parametrize("model", ["demo", "anthropic:claude-x", "whatever"])
def test_a_placeholder_that_no_model_uses_is_left_alone(model: str) -> None:
    assert load(AGENT_MODEL=model, OPENAI_API_KEY="sk-...").model == model


def test_a_placeholder_key_in_the_file_is_refused_unless_the_environment_has_one(
    tmp_path: Path,
) -> None:
    file = tmp_path / ".env"
    file.write_text("AGENT_MODEL=openai:gpt-4o-mini\nOPENAI_API_KEY=sk-...\n", "utf-8")
    with pytest.raises(ConfigurationError, match="still a placeholder"):
        AgentSettings.load({"OPENAI_API_KEY": ""}, file)
    assert AgentSettings.load({"OPENAI_API_KEY": OWN_KEY}, file).model == "openai:gpt-4o-mini"


def test_the_key_is_read_from_the_environment_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENT_MODEL", "openai:gpt-4o-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-...")
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        AgentSettings.load(None, None)
