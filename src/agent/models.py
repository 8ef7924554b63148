"""From a setting to a chat model. Heavy provider packages load only when one is named."""

from __future__ import annotations

from langchain_core.language_models import BaseChatModel

from adapter.core.errors import ConfigurationError
from agent.demo_model import DemoModel
from agent.settings import PROVIDER_KEYS, AgentSettings

__all__ = ["build_model"]


def build_model(settings: AgentSettings) -> BaseChatModel:
    """Make the model that `AGENT_MODEL` names; ``demo`` needs no key and no network.

    Args:
        settings: Only ``model`` is read; provider packages read their own keys and addresses.

    Returns:
        A chat model that can bind tools.

    Raises:
        ConfigurationError: Unknown provider, missing package or missing key.
    """
    name = settings.model
    if name == "demo":
        return DemoModel()
    from langchain.chat_models import init_chat_model

    provider, _, rest = name.partition(":")
    try:
        # Settings are checked once, here; anything a caller may vary per run stays out.
        return init_chat_model(name)
    except ImportError as error:
        package = f"langchain-{provider.replace('_', '-')}" if rest else "the provider's package"
        raise ConfigurationError(
            f"AGENT_MODEL names a model whose integration is not installed: install {package}, "
            "or set AGENT_MODEL=demo."
        ) from error
    except Exception as error:  # noqa: BLE001 - each provider says in its own way what it lacks
        raise ConfigurationError(_cannot_start(provider, error)) from None


def _cannot_start(provider: str, error: Exception) -> str:
    """Say what to do; the provider's own text may repeat a key, so it is not passed on."""
    text = str(error)
    if text.startswith(("Unsupported provider", "Unable to infer model provider")):
        return (
            "AGENT_MODEL names no provider that is known. Write provider:model, such as "
            "openai:gpt-4o-mini, or set AGENT_MODEL=demo."
        )
    key = PROVIDER_KEYS.get(provider, "the provider's API key")
    return (
        f"AGENT_MODEL names a model whose client does not start ({type(error).__name__}). Set "
        f"{key} in the environment or in .env, or set AGENT_MODEL=demo."
    )
