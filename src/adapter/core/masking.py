"""What of a tool's result the model and the thread may see.

Pure functions over JSON values and texts; where a front end keeps its result is its own business.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from adapter.core.canonical import strict_loads
from adapter.core.errors import ConfigurationError
from adapter.core.redaction import MASK, mask_text, mask_value

__all__ = ["ResultMask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMask:
    """Hides named fields of a JSON result at any depth, and what looks like a secret anywhere.

    Attributes:
        fields: Names of fields to hide, exact.
    """

    fields: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fields: Iterable[str]) -> ResultMask:
        """Return the mask over these fields.

        Raises:
            ConfigurationError: One text instead of several, or a name that is no text.
        """
        names = [fields] if isinstance(fields, str) else list(fields)
        if isinstance(fields, str) or not all(isinstance(name, str) and name for name in names):
            msg = f"Policy.results: the fields of a mask are a list of names, not {fields!r}."
            raise ConfigurationError(msg)
        return cls(fields=frozenset(names))

    def joined(self, other: ResultMask) -> ResultMask:
        """Return the mask that hides what either hides."""
        return ResultMask(fields=self.fields | other.fields)

    def value(self, value: Any) -> Any:
        """Return a masked copy of a JSON value."""
        return mask_value(self._hidden(value))

    def text(self, text: str) -> str:
        """Return a text masked; one that is a JSON object or array stays one."""
        try:
            value = strict_loads(text)
        except (ValueError, RecursionError):
            return mask_text(text)
        if not isinstance(value, dict | list):
            return mask_text(text)
        masked = self.value(value)
        # Written anew only where something was hidden: the model reads the tool's own spelling.
        return text if masked == value else json.dumps(masked, ensure_ascii=False)

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: MASK if name in self.fields else self._hidden(item)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._hidden(item) for item in value]
        # JSON within a text: what a tool returned in blocks, or relayed from elsewhere.
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            return self.text(value)
        return value
