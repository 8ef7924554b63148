"""What the documents promise about themselves and about the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_every_module_has_an_owner_line() -> None:
    table = read("docs/ARCHITECTURE.md").split("## Who owns what", 1)[1].split("\n## ", 1)[0]
    owned = set(re.findall(r"`([a-z_.]+)`", table))
    missing = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        if parts[-1] == "__init__":
            continue
        dotted = ".".join(parts)
        names = {dotted, dotted.removeprefix("adapter.")}
        # A room owned as a whole: its modules are its own business.
        names |= {name.rsplit(".", 1)[0] for name in names}
        if "migrations" in parts:
            names.add("stores.migrations")
        if not names & owned - {"adapter"} and dotted not in owned:
            missing.append(dotted)
    assert missing == []


def test_every_owner_line_names_something_that_exists() -> None:
    table = read("docs/ARCHITECTURE.md").split("## Who owns what", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    for name in re.findall(r"`([a-z_.]+)`", " ".join(rows)):
        place = name if name.split(".")[0] in ("adapter", "agent") else f"adapter.{name}"
        path = ROOT / "src" / Path(*place.split("."))
        assert path.with_suffix(".py").is_file() or path.is_dir(), name


def test_the_architecture_fits_two_pages() -> None:
    assert len(read("docs/ARCHITECTURE.md").split()) <= 1300


def test_the_readme_explains_exactly_the_settings_of_the_example() -> None:
    table = read("README.md").split("## Configuration", 1)[1].split("\n## ", 1)[0]
    explained = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    names = set(re.findall(r"`([A-Z_]+)`", " ".join(explained)))
    listed = set(re.findall(r"^# ((?:ADAPTER|AGENT)_[A-Z_]+)=", read(".env.example"), re.MULTILINE))
    assert names == listed


def test_the_readme_has_its_sections_in_order() -> None:
    assert re.findall(r"^## (.*)$", read("README.md"), re.MULTILINE) == [
        "Quickstart",
        "Approve your first call",
        "How it works",
        "How to customise",
        "Configuration",
        "Testing",
        "Deploying",
        "Security model",
        "Layout",
    ]


def test_each_run_of_the_readme_is_on_a_thread_made_just_before() -> None:
    commands = re.findall(r"^curl .*$", read("README.md"), re.MULTILINE)
    made = [number for number, line in enumerate(commands) if "/threads -H" in line]
    runs = [number for number, line in enumerate(commands) if "/threads/THREAD_ID/runs" in line]
    assert [number + 1 for number in made] == runs
    assert len(runs) == 2  # the refund, the order


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    numbers = [int(path.name[:4]) for path in DECISIONS]
    assert numbers == list(range(1, len(numbers) + 1))
    index = read("docs/decisions/README.md")
    assert [path.name for path in DECISIONS if f"({path.name})" not in index] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.name[:4])
def test_a_decision_has_the_four_headings(decision: Path) -> None:
    headings = re.findall(r"^## (.*)$", decision.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences", "Considered"]


def test_the_glossary_is_in_order() -> None:
    terms = re.findall(r"^\| ([^|]+) \|", read("docs/glossary.md"), re.MULTILINE)[1:]
    assert terms == sorted(terms, key=str.lower)
