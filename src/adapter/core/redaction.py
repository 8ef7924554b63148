"""Masks for everything a person, a log or an audit reader may see.

Declared masks hide whole arguments; patterns catch secrets in free text. Digests are always over
the real values, elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

__all__ = ["MASK", "mask_arguments", "mask_text", "mask_value", "without_masked"]

MASK = "***"

_SECRET_NAME = re.compile(
    r"(?i)(^|[_\-.])(password|passwd|passphrase|secret|token|api[_-]?key|authorization|"
    r"access[_-]?key|private[_-]?key|credential|cvv|card[_-]?number|pin)s?($|[_\-.])"
)
_SECRET_TEXT = (
    re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"),
    re.compile(r"\b(?:(?:sk|pk|rk|ghp|gho|xox[abp])[-_]|AKIA)[-_A-Za-z0-9]{12,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    re.compile(r"(?i)(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(
        r"(?i)\b(password|passwd|secret|token|api[_-]?key|access[_-]?key)(\s*[=:]\s*)"
        r"(\"[^\"]*\"|'[^']*'|[^\s,;&]+)"
    ),
    re.compile(r"\b(?:\d[ -]?){13,19}\b"),
)


DEEPEST = 64
"""Levels of a value that are shown; what lies deeper is masked. No valid argument is as deep."""

SHORTEST = 8
"""Texts shorter than this are no secrets any pattern knows."""


def mask_text(text: str) -> str:
    """Replace what looks like a secret inside free text."""
    if len(text) < SHORTEST or text.isalpha():
        return text
    for pattern in _SECRET_TEXT:
        text = pattern.sub(MASK, text)
    return text


@lru_cache(1024)
def _secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def mask_value(value: Any) -> Any:
    """Return a copy of a JSON value with secret-looking names and texts masked.

    Values too deep for any argument are masked below ``DEEPEST`` levels: a refusal of theirs is
    recorded as well.
    """
    return _masked(value, DEEPEST)


def _masked(value: Any, left: int) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    if value is None or isinstance(value, int | float):
        return value
    if type(value) is dict or isinstance(value, Mapping):
        if not left:
            return MASK
        return {
            key: MASK if item is not None and _secret(str(key)) else _masked(item, left - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item, left - 1) for item in value] if left else MASK
    return value


def mask_arguments(arguments: Mapping[str, Any], masks: Iterable[str]) -> dict[str, Any]:
    """Return what may be shown of a call's arguments.

    Args:
        arguments: The real arguments.
        masks: Names of top-level arguments to hide whole.
    """
    shown: dict[str, Any] = mask_value(arguments)
    for name in masks:
        if name in shown:
            shown[name] = MASK
    return shown


def without_masked(arguments: Mapping[str, Any], masks: Iterable[str]) -> dict[str, Any]:
    """Return the arguments that a reviewer who sees the mask may edit."""
    hidden = frozenset(masks)
    return {name: value for name, value in arguments.items() if name not in hidden}
