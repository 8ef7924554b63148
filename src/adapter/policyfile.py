"""Policies from a TOML or YAML file, with the line of every fault.

Reads the file once and makes plain data of it; what a policy may say is the core's business.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from adapter.core import policydocument
from adapter.core.errors import ConfigurationError
from adapter.core.policy import Approver, Policy
from adapter.core.policydocument import policy_schema

__all__ = ["load_policy", "policy_schema"]

_TOML_PLACE = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", re.DOTALL)
_NAME = r'(?:"(?:[^"\\]|\\.)*"|\'[^\']*\'|[\w-]+)'
_KEY = re.compile(rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*")
_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_BETWEEN = re.compile(r"(?:[\s,]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_OPEN = re.compile(r"\[\[?")
_CLOSE = re.compile(r"[ \t]*\]\]?")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'", re.DOTALL
)
_BRACKET = re.compile(r"[\[{]")
_END = re.compile(r"[\]}]")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([\w-]+)')

Lines = Mapping[policydocument.Path, int]


def load_policy(path: str | Path, *, approver: Approver | None = None) -> Policy:
    """Return the policy a file says.

    Args:
        path: A file whose name ends in ``.toml``, ``.yaml`` or ``.yml``.
        approver: Decides in process about what the policy escalates, where nobody is asked.

    Raises:
        ConfigurationError: ``FILE:LINE:COLUMN`` and what is wrong for a mistake in the syntax;
            ``FILE:LINE: dotted.key`` for one in the policy.
    """
    file = Path(path)
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"The policy {file} cannot be read: {type(error).__name__}."
        raise ConfigurationError(msg) from error
    if file.suffix == ".toml":
        document, lines = _toml(file, text)
    elif file.suffix in (".yaml", ".yml"):
        document, lines = _yaml(file, text)
    else:
        msg = f"The policy {file} must be a .toml, .yaml or .yml file."
        raise ConfigurationError(msg)

    def fault(where: policydocument.Path, what: str) -> ConfigurationError:
        return ConfigurationError(f"{file}:{_line(lines, where)}: {_dotted(where)} {what}")

    made = policydocument.policy_of(document, fault)
    if approver is None:
        return made
    return Policy(
        **{name: getattr(made, name) for name in _FIELDS},
        approver=approver,
    )


_FIELDS = ("deny", "allow", "escalate", "rates", "results", "effects", "ghost")


def _dotted(where: policydocument.Path) -> str:
    if not where:
        return "the document"
    text = ""
    for part in where:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part):
            text += f".{part}"
        else:
            text += f'."{part}"'
    return text.removeprefix(".")


def _line(lines: Lines, where: policydocument.Path) -> int:
    """Return the line of a path, or of the nearest path around it that has one."""
    while where and where not in lines:
        where = where[:-1]
    return lines.get(where, 1)


def _toml(file: Path, text: str) -> tuple[Any, Lines]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.match(str(error))
        what, line, column = found.groups() if found else (str(error), None, None)
        if line is None:
            rows = text.splitlines() or [""]
            line, column = str(len(rows)), str(len(rows[-1]) + 1)
        msg = f"{file}:{line}:{column}: {what}"
        raise ConfigurationError(msg) from None
    return document, _toml_lines(text)


def _toml_lines(text: str) -> Lines:
    """Return the line of each key and item: TOML's reader keeps none."""
    scanner = _Toml(text)
    scanner.scan()
    return scanner.lines


class _Toml:
    """Goes through a document that was read already, so all of it is well formed."""

    def __init__(self, text: str) -> None:
        self.lines: dict[policydocument.Path, int] = {}
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._counts: dict[policydocument.Path, int] = {}

    def scan(self) -> None:
        """Note every key and item."""
        table: policydocument.Path = ()
        seen = -1
        while self._take(_BLANK) is not None and seen < self._at < len(self._text):
            seen, line = self._at, self._line()
            opened = self._take(_OPEN)
            if opened is None:
                self._pair(table)
                continue
            self._take(_SPACE)
            parts = self._key()
            self._take(_CLOSE)
            table = self._under(parts[:-1])
            table = (*table, parts[-1]) if opened == "[[" else self._under(parts)
            self.lines.setdefault(table, line)
            if opened == "[[":
                self._counts[table] = self._counts.get(table, -1) + 1
                table = (*table, self._counts[table])
                self.lines.setdefault(table, line)

    def _under(self, parts: policydocument.Path) -> policydocument.Path:
        """Return a path with the number of the newest table of each array on its way."""
        path: policydocument.Path = ()
        for part in parts:
            path = (*path, part)
            if path in self._counts:
                path = (*path, self._counts[path])
        return path

    def _pair(self, table: policydocument.Path) -> None:
        line = self._line()
        path = (*table, *self._key())
        self.lines.setdefault(path, line)
        self._take(_EQUALS)
        self._value(path)

    def _value(self, path: policydocument.Path) -> None:
        opened = self._take(_STRING) or self._take(_BRACKET)
        if opened is None:
            self._take(_SCALAR)
        elif opened in ("[", "{"):
            number, seen = 0, -1
            while self._take(_BETWEEN) is not None and self._take(_END) is None:
                if seen == self._at:  # never, in what was read already
                    return
                seen = self._at
                if opened == "{":
                    self._pair(path)
                    continue
                item = (*path, number)
                self.lines.setdefault(item, self._line())
                self._value(item)
                number += 1

    def _key(self) -> policydocument.Path:
        return tuple(
            a.replace('\\"', '"') or b or c for a, b, c in _PART.findall(self._take(_KEY) or "")
        )

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]


def _yaml(file: Path, text: str) -> tuple[Any, Lines]:
    try:
        yaml = import_module("yaml")
    except ModuleNotFoundError as error:
        msg = (
            f'The policy {file} is YAML, which needs PyYAML: pip install "agent-adapter[yaml]", '
            "or write it as TOML."
        )
        raise ConfigurationError(msg) from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: dict[policydocument.Path, int] = {}
        _yaml_lines(yaml, file, node, (), lines)
        return yaml.safe_load(text), lines
    except RecursionError:
        msg = f"{file}:1:1: the policy is nested too deeply"
        raise ConfigurationError(msg) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "this is no YAML"
        place = "1:1" if mark is None else f"{mark.line + 1}:{mark.column + 1}"
        msg = f"{file}:{place}: {what}"
        raise ConfigurationError(msg) from None


def _yaml_lines(
    yaml: Any,
    file: Path,
    node: Any,
    where: policydocument.Path,
    lines: dict[policydocument.Path, int],
) -> None:
    """Note the line of every key and item; a key twice would silently replace a rule."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = (*where, str(key.value))
            mark = key.start_mark
            if path in lines:
                msg = (
                    f"{file}:{mark.line + 1}:{mark.column + 1}: {_dotted(path)} is there already, "
                    f"in line {lines[path]}"
                )
                raise ConfigurationError(msg)
            lines[path] = mark.line + 1
            _yaml_lines(yaml, file, value, path, lines)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            path = (*where, number)
            lines[path] = item.start_mark.line + 1
            _yaml_lines(yaml, file, item, path, lines)
