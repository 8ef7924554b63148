"""From AGENT_MODEL to a model, and the cures named when there is none."""

from __future__ import annotations

import sys

import pytest
from langchain_openai import ChatOpenAI

from adapter.core.errors import ConfigurationError
from agent.demo_model import DemoModel
from agent.models import build_model
from agent.settings import AgentSettings


def settings(**env: str) -> AgentSettings:
    return AgentSettings.load(env, None)


def refusal(model: str) -> str:
    with pytest.raises(ConfigurationError, match="AGENT_MODEL") as caught:
        build_model(settings(AGENT_MODEL=model))
    return caught.value.message


@pytest.mark.parametrize("env", [{}, {"AGENT_MODEL": "demo"}, {"AGENT_MODEL": ""}])
def test_the_demo_model_is_the_default_whatever_keys_there_are(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-dummy")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-dummy")
    assert isinstance(build_model(settings(**env)), DemoModel)


def test_a_provider_model_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-dummy")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    model = build_model(settings(AGENT_MODEL="openai:gpt-4o-mini"))
    assert isinstance(model, ChatOpenAI)
    assert model.model_name == "gpt-4o-mini"


@pytest.mark.parametrize("model", ["nonesuch:model", "whatever", "openia:gpt-4o-mini", ":"])
def test_an_unknown_provider_is_refused(model: str) -> None:
    message = refusal(model)
    assert "names no provider that is known" in message
    assert "openai:gpt-4o-mini" in message


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_ADMIN_KEY", raising=False)
    assert "Set OPENAI_API_KEY" in refusal("openai:gpt-4o-mini")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_mistralai", None)
    assert "install langchain-mistralai" in refusal("mistralai:mistral-small")
