"""The demo model's wits: from a customer's words to tool calls, and from results to a reply.

Pure text in, plain values out; no LangChain, no ids, no randomness.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn

__all__ = ["HELP", "BadCall", "Finding", "Proposal", "explicit_calls", "propose", "report"]

HELP: Final = (
    "I am Acme's built-in demo model, not a language model: I follow keywords. Ask about products, "
    "customers, an order such as A-1001, a sum, or the weather in a city; open a ticket; or write "
    '"refund A-1001 12.50 because it came late". A line `/call TOOL {json}` makes exactly that '
    "tool call."
)
_REFUND_HELP: Final = (
    "I am a demo model and need the order and the amount: "
    '"refund A-1001 12.50 because it came late".'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A tool call to make."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCall:
    """A `/call` line whose JSON is not an object."""

    tool: str
    text: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came back from one tool call; None when nothing did."""

    tool: str
    content: str | None
    failed: bool = False


# --------------------------------------------------------------------------- explicit calls

_CALL_LINE: Final = re.compile(r"^[ \t]*/call[ \t]+(\S+)(.*)$", re.MULTILINE)


def explicit_calls(text: str) -> list[Proposal | BadCall]:
    """Every `/call TOOL {json}` line of a message, in order."""
    return [_explicit(match[1], match[2].strip()) for match in _CALL_LINE.finditer(text)]


def _explicit(tool: str, text: str) -> Proposal | BadCall:
    try:
        args = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return BadCall(tool=tool, text=text, error=f"not JSON: {error}")
    if not isinstance(args, dict):
        return BadCall(tool=tool, text=text, error="not a JSON object")
    return Proposal(tool=tool, args=args)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_constant(text)


# --------------------------------------------------------------------------- keywords

# The rules look no further: their time grows faster than the text.
_MOST_READ: Final = 2_000
_ORDER: Final = re.compile(r"\bA-\d+\b", re.IGNORECASE)
_MONEY: Final = r"[$\u20ac]?(?P<amount>\d{1,9}(?:\.\d{1,2})?)(?![\d.]*\d)(?P<cents>\s*cents?\b)?"
_REFUND: Final = (
    re.compile(
        rf"\brefund\b\D{{0,40}}?\b(?P<order>A-\d+)\b[\s,:]*(?:by|of|with|for)?\s*{_MONEY}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\brefund\s+(?:of\s+)?{_MONEY}[^\d\n]{{0,40}}?\b(?P<order>A-\d+)\b", re.IGNORECASE
    ),
)
_REASON: Final = re.compile(
    r"\b(?:because|since|reason:?)\s+(.+?)[.!?]*$", re.IGNORECASE | re.MULTILINE
)
_DELETE: Final = re.compile(r"\b(?:delete|remove|erase)\s+customer\s+(\d{1,9})\b", re.IGNORECASE)
_PRIORITY: Final = re.compile(r"\b(low|medium|high|critical)\b", re.IGNORECASE)
_TICKET_FOR: Final = re.compile(r"\bfor\s+(?:the\s+)?(?:customer\s+)?([A-Z][\w-]*)")
_TICKET_ABOUT: Final = re.compile(
    r"\babout\s+(.+?)(?:,|[.!?](?:\s|$)|$)", re.IGNORECASE | re.MULTILINE
)
_WEATHER: Final = re.compile(
    r"\bweather\b(?:\s+like)?\s+(?:in|for|at)\s+(.+?)"
    r"(?=\s+(?:and|right now|now|today)\b|[?.!,;\n]|$)",
    re.IGNORECASE,
)
_SUM: Final = re.compile(
    r"(?<![\w.,-])[-(]*\d[\d.]*(?:\s*[)]*\s*[-+*/]\s*[-(]*\s*\d[\d.]*)+[)]*(?![\w-])"
)
_OWNER: Final = re.compile(
    r"\b(?!(?:Acme|He|Here|How|It|Let|She|That|There|What|When|Where|Who)\b)"
    r"([A-Z][\w-]*)['\u2019]s\b"
)
_NAMED: Final = re.compile(r"\bcustomers?\s+(?:named\s+|called\s+)?([A-Z][\w-]*|\d+)\b")
_CUSTOMER_WORD: Final = re.compile(r"\b(?:customers?|accounts?)\b", re.IGNORECASE)
_PRODUCT_WORD: Final = re.compile(
    r"\b(?:products?|prices?|pric(?:ed|ing)|costs?|stock|catalogu?e|sell|widgets?|gadgets?|"
    r"sprockets?|cables?|cases?|suite)\b",
    re.IGNORECASE,
)
_PRODUCT_NAME: Final = re.compile(
    r"\b(?:widget|gadget|sprocket|cable|travel|enterprise)s?\b"
    r"(?:\s+(?:pro|lite|mini|max|set|kit|case|suite)s?\b)?",
    re.IGNORECASE,
)


def propose(text: str, offered: Collection[str]) -> list[Proposal] | str:
    """Route a customer's words to tools.

    Args:
        text: What the customer wrote.
        offered: Names of the tools bound to the model; no other is proposed.

    Returns:
        The calls to make together, or what to say instead.
    """
    text = text[:_MOST_READ]
    action = _refund(text) or _delete(text) or _ticket(text)
    if action is not None:
        return [action] if action.tool in offered else HELP
    if re.search(r"\brefund", text, re.IGNORECASE):
        return _REFUND_HELP
    return [call for call in _reads(text) if call.tool in offered] or HELP


def _refund(text: str) -> Proposal | None:
    found = next(filter(None, (pattern.search(text) for pattern in _REFUND)), None)
    if found is None:
        return None
    reason = _REASON.search(text)
    return Proposal(
        tool="issue_refund",
        args={
            "order_id": found["order"].upper(),
            "amount_cents": int(Decimal(found["amount"]) * (1 if found["cents"] else 100)),
            "reason": reason[1][:500] if reason else "asked for by the customer",
        },
    )


def _delete(text: str) -> Proposal | None:
    found = _DELETE.search(text)
    if found is None:
        return None
    return Proposal(tool="delete_customer", args={"customer_id": int(found[1])})


def _ticket(text: str) -> Proposal | None:
    if re.search(r"\bticket\b", text, re.IGNORECASE) is None:
        return None
    who, what, urgency = (
        _TICKET_FOR.search(text),
        _TICKET_ABOUT.search(text),
        _PRIORITY.search(text),
    )
    return Proposal(
        tool="create_ticket",
        args={
            "customer_name": who[1][:100] if who else "unknown",
            "subject": (what[1] if what else text).strip()[:200],
            "priority": urgency[1].lower() if urgency else "medium",
            "description": text.strip()[:4_000],
        },
    )


def _reads(text: str) -> list[Proposal]:
    """Look-ups, each on the words the earlier ones left over."""
    calls: list[Proposal] = []

    def take(pattern: re.Pattern[str], make: Callable[[re.Match[str]], Proposal]) -> None:
        nonlocal text
        calls.extend(make(match) for match in pattern.finditer(text))
        text = pattern.sub(" ", text)

    take(_WEATHER, lambda m: Proposal(tool="get_weather", args={"location": m[1].strip()[:100]}))
    take(_ORDER, lambda m: _search(m[0].upper(), "orders"))
    take(_SUM, lambda m: Proposal(tool="calculate", args={"expression": m[0].strip()[:200]}))
    calls.extend(_people(text))
    names = list(dict.fromkeys(match[0] for match in _PRODUCT_NAME.finditer(text)))
    if names:
        calls.extend(_search(re.sub(r"s\b", "", name), "products") for name in names)
    elif _PRODUCT_WORD.search(text):
        calls.append(_search("", "products"))
    return list({json.dumps([call.tool, call.args]): call for call in calls}.values())


def _people(text: str) -> list[Proposal]:
    named = _OWNER.search(text) or _NAMED.search(text)
    orders = re.search(r"\borders\b", text, re.IGNORECASE)
    if named:
        return [_search(named[1], "orders" if orders else "customers")]
    if orders:
        return [_search("", "orders")]
    return [_search("", "customers")] if _CUSTOMER_WORD.search(text) else []


def _search(query: str, table: str) -> Proposal:
    return Proposal(tool="search_database", args={"query": query[:200], "table": table})


# --------------------------------------------------------------------------- the reply

_LONGEST: Final = 600
_REFUSED: Final = re.compile(
    r"ApprovalDenied|PolicyDenied|\b(?:refused|denied|rejected|declined)\b", re.IGNORECASE
)


def report(findings: Sequence[Finding]) -> str:
    """Say what the tools answered, failures and refusals among it."""
    return "\n".join(_sentence(finding) for finding in findings)


def _sentence(finding: Finding) -> str:
    if finding.content is None:
        return f"{finding.tool}: no result came back, and I do not repeat the call."
    if not finding.failed:
        return f"{finding.tool}: {_readable(finding.content)}"
    said = _readable(finding.content)
    if _REFUSED.search(finding.content):
        return f"{finding.tool} was refused and is not tried again: {said}"
    return f"{finding.tool} did not work: {said}"


def _readable(content: str) -> str:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content[:_LONGEST] or "(nothing)"
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        rows = "; ".join(_flat(row) for row in value["results"])
        hint = value.get("hint")
        return " ".join(filter(None, (rows[:_LONGEST], f"({hint})" if hint else None)))
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        value = value["error"].get("message", value["error"])
    return _flat(value)[:_LONGEST]


def _flat(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(_pair(str(name), item) for name, item in value.items())


def _pair(name: str, value: Any) -> str:
    if name.endswith("_cents") and isinstance(value, int):
        return f"{name.removesuffix('_cents')} {Decimal(value) / 100:.2f}"
    return f"{name} {value}"
