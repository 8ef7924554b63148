"""What is shipped: configuration, locks, ignore files, the wheel, the directions of imports."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agent.settings import AgentSettings

ROOT = Path(__file__).resolve().parents[2]
PLATFORM_NAMES = {"LANGGRAPH_API_URL", "LANGSMITH_LANGGRAPH_API_VARIANT"}
PROVIDER_NAMES = {"OPENAI_API_KEY", "OPENAI_BASE_URL"}
# In pieces, so that this file does not name one.
REGISTRY_HOSTS = ("pypi" + ".org", "python" + "hosted.org", "registry.npm" + "js.org")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pyproject() -> dict[str, Any]:
    return tomllib.loads(read("pyproject.toml"))


def repository_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def setting_lines() -> dict[str, str]:
    """Return each setting of .env.example with the value it is shown with."""
    found = re.findall(r"^(?:# )?([A-Z][A-Z0-9_]+)=(.*)$", read(".env.example"), re.MULTILINE)
    names = [name for name, _ in found]
    assert len(names) == len(set(names)), "a setting is listed twice"
    return dict(found)


def run_python(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------- langgraph.json


def test_the_server_configuration_names_a_graph_file_that_exists() -> None:
    config = json.loads(read("langgraph.json"))
    file, _, attribute = config["graphs"]["agent"].partition(":")
    assert (ROOT / file).is_file()
    assert re.search(rf"^{attribute}\b.*=", read(file), re.MULTILINE)


def test_the_server_configuration_says_what_the_platform_needs() -> None:
    config = json.loads(read("langgraph.json"))
    assert config["$schema"].startswith("https://")
    assert config["python_version"] == "3.11"
    assert config["dependencies"] == ["."]
    assert config["env"] == ".env"


# ------------------------------------------------------------------------------ pyproject, locks


def test_one_version_is_said_everywhere() -> None:
    version = pyproject()["project"]["version"]
    assert importlib.metadata.version("agent-adapter") == version, "stale install: make install"
    assert re.search(r"^## \[Unreleased\]", read("CHANGELOG.md"), re.MULTILINE)
    released = re.findall(r"^## \[(\d[^\]]*)\]", read("CHANGELOG.md"), re.MULTILINE)
    assert released[:1] in ([], [version])


def test_the_langgraph_extra_repeats_what_the_base_carries() -> None:
    project = pyproject()["project"]
    assert set(project["optional-dependencies"]["langgraph"]) <= set(project["dependencies"])


def test_internals_we_read_are_bounded_above() -> None:
    bounds = {re.split(r"[<>=]", item)[0]: item for item in pyproject()["project"]["dependencies"]}
    assert bounds["langgraph"].endswith("<1.3")
    assert bounds["langchain"].endswith("<1.6")


def test_the_locks_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/lock.py", "--check"], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_stale_lock_is_named_with_its_cure(tmp_path: Path) -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/lock.py", tmp_path / "scripts")
    changed = read("pyproject.toml").replace('"httpx>=0.28.1",', '"httpx>=0.28.0",', 1)
    (tmp_path / "pyproject.toml").write_text(changed, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "scripts/lock.py", "--check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "requirements.lock does not match" in done.stderr
    assert "make lock" in done.stderr


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_every_locked_package_is_pinned_and_hashed(name: str) -> None:
    entries = re.split(r"\n(?=[a-zA-Z])", read(name).split("\n", 1)[1].strip())
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[a-zA-Z0-9._\[\],-]+==\S+", entry), entry.split("\n", 1)[0]
        assert "--hash=sha256:" in entry, entry.split("\n", 1)[0]


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_names_no_address_and_no_local_path(name: str) -> None:
    assert not re.findall(r"://|file:|@ |--(?:find-links|index-url|extra-index-url)", read(name))


def test_both_locks_pin_the_same_versions() -> None:
    runtime, dev = (
        dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", read(name), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert {name: dev.get(name) for name in runtime} == runtime


# ------------------------------------------------------------------------------- the repository


def test_no_file_names_a_registry_host() -> None:
    naming = [
        str(path.relative_to(ROOT))
        for path in repository_files()
        if any(host.encode() in path.read_bytes() for host in REGISTRY_HOSTS)
    ]
    assert naming == []


def test_there_is_no_lock_that_would_name_hosts() -> None:
    assert not (ROOT / "uv.lock").exists()


@pytest.mark.parametrize("name", [".dockerignore", ".gitignore"])
def test_secrets_and_data_are_ignored(name: str) -> None:
    lines = {line.strip().rstrip("/") for line in read(name).splitlines()}
    assert {".env", ".adapter", ".langgraph_api", ".venv"} <= lines
    assert "keys.json" in {line.removeprefix("**/") for line in lines}


def test_what_an_image_needs_is_not_ignored() -> None:
    lines = {line.strip().rstrip("/") for line in read(".dockerignore").splitlines()}
    needed = {"src", "pyproject.toml", "README.md", "LICENSE", "langgraph.json", "*", "**"}
    assert not lines & needed


def test_the_ci_entry_can_be_run() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)


# ------------------------------------------------------------------------------------- settings


def test_the_example_lists_exactly_the_known_settings() -> None:
    known = set(AgentSettings._fields_by_name()) - PLATFORM_NAMES
    assert set(setting_lines()) - PROVIDER_NAMES == known


def test_the_example_sets_nothing() -> None:
    assert not re.findall(r"^[^#\s].*$", read(".env.example"), re.MULTILINE)


def test_uncommenting_a_default_changes_nothing() -> None:
    examples = ("AGENT_MODEL", "ADAPTER_AUDIENCE")
    shown = {
        name: value
        for name, value in setting_lines().items()
        if value and name not in PROVIDER_NAMES and name not in examples
    }
    assert AgentSettings.load(shown, env_file=None) == AgentSettings.load({}, env_file=None)


# --------------------------------------------------------------------------- targets, modules


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.MULTILINE))
    files = (
        "README.md",
        "CHANGELOG.md",
        "docs/ARCHITECTURE.md",
        "scripts/lock.py",
        "pyproject.toml",
    )
    named = {
        word
        for name in files
        for word in re.findall(r"(?:^|[`(\"])make ([a-z][a-z-]+)", read(name), re.MULTILINE)
    }
    assert {"demo", "dev", "test", "check"} <= named
    assert named <= targets


def test_every_make_target_says_what_it_does() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)
    assert phony is not None
    explained = set(re.findall(r"^([a-z-]+):.*## \S", read("Makefile"), re.MULTILINE))
    assert set(phony[1].split()) == explained


def test_the_adapter_imports_without_langgraph_and_stays_small(tmp_path: Path) -> None:
    code = """
import sys
BLOCKED = ("langchain", "langchain_core", "langgraph", "langgraph_sdk", "langsmith")
for name in BLOCKED:
    sys.modules[name] = None
import adapter, adapter.settings, adapter.langgraph, adapter.cli
for heavy in ("alembic", "fastapi", "jinja2", "mcp", "opentelemetry", "rich", "typer"):
    if heavy in sys.modules:
        print(heavy)
if "sqlalchemy" in sys.modules:
    print("sqlalchemy")
"""
    assert run_python(code, tmp_path) == ""


def test_using_the_langgraph_room_without_langgraph_says_how_to_get_it(tmp_path: Path) -> None:
    code = """
import sys
for name in ("langchain", "langchain_core", "langgraph"):
    sys.modules[name] = None
import adapter.langgraph
try:
    adapter.langgraph.AdapterMiddleware
except ImportError as error:
    print(error)
"""
    assert "agent-adapter[langgraph]" in run_python(code, tmp_path)


def test_the_graph_loads_without_what_it_does_not_use(tmp_path: Path) -> None:
    # The first start makes the store's schema, and needs Alembic for that; later ones do not.
    assert run_python("import agent.graph", tmp_path) == ""
    # Not rich and OpenTelemetry: where installed, httpx and langsmith load them for themselves.
    code = """
import sys
import agent.graph
for heavy in ("alembic", "fastapi", "jinja2", "mcp", "typer"):
    if heavy in sys.modules:
        print(heavy)
"""
    assert run_python(code, tmp_path) == ""


def test_the_wheel_holds_both_packages_and_the_migrations(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "adapter = adapter.cli:main" in archive.read(points).decode()
    assert {"agent/graph.py", "adapter/core/executor.py"} <= names
    assert "adapter/stores/migrations/versions/0001_first.py" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "adapter",
        "agent",
    }


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                "import importlinter.cli as cli; cli.lint_imports_command()",
            ),
            "--no-cache",
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources whose imports a test may break."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_directions_are_kept(tree: Path) -> None:
    done = lint_imports(tree)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("adapter/core/errors.py", "import langgraph.types", "core is pure"),
        ("adapter/stores/rows.py", "import langchain_core.messages", "LangGraph and LangChain"),
        ("adapter/flow/steps.py", "import langgraph.types", "LangGraph and LangChain"),
        ("adapter/flow/steps.py", "import adapter.sinks", "flow needs the core only"),
        ("adapter/core/keys.py", "import agent.prompts", "nothing in adapter imports agent"),
        ("adapter/stores/rows.py", "import adapter.client", "adapter: cli"),
        ("adapter/core/types.py", "import adapter.core.spec", "core: executor"),
        ("adapter/core/unplaced.py", "", "core: executor"),
        ("adapter/unplaced.py", "", "adapter: cli"),
        ("agent/tools.py", "import agent.wiring", "agent: graph"),
        ("agent/unplaced.py", "", "agent: graph"),
    ],
)
def test_a_broken_direction_is_found(tree: Path, module: str, line: str, contract: str) -> None:
    with (tree / "src" / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    done = lint_imports(tree)
    assert done.returncode == 1
    table = " ".join(done.stdout.split()).split("Contracts: ", 1)[0].rsplit("--- ", 1)[1]
    parts = re.split(r" (KEPT|BROKEN)(?: \(\d+ ignored imports?\))? ?", table)
    verdicts = dict(zip(parts[0::2], parts[1::2], strict=False))
    assert [name for name in verdicts if name.startswith(contract)], table
    assert "BROKEN" in [said for name, said in verdicts.items() if name.startswith(contract)]
