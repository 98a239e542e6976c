"""The import table and the sizes of docs/decisions (layout rules 1, 8, 10, 11), read from the source with `ast`."""

import ast
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SKIPPED = {".venv", ".devstack", "build", "dist"}
FILES = sorted(
    path
    for top in ROOT.iterdir()
    if top.name not in SKIPPED and not top.name.startswith(".")
    for path in ([top] if top.suffix == ".py" else top.rglob("*.py") if top.is_dir() else [])
)
OURS = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
FREE = ("worker", "cli", "operators", "chessboard", "devstack", "traffic", "bench", "tests")
"""Units that may import anything but worker and cli."""
READS_ENVIRONMENT = ("settings", "devstack", "tests", "bench")


class Allowed(NamedTuple):
    """What a unit may import: modules of ours, and third-party ones."""

    ours: tuple[str, ...] = ()
    third_party: tuple[str, ...] = ()


# The table of the layout. The first unit whose name is the module's or its package's counts.
TABLE = {
    "domain": Allowed(("domain",)),
    "activities.messages": Allowed(("domain",), ("pydantic",)),
    "activities.drain_messages": Allowed(("domain", "activities.messages"), ("pydantic",)),
    "db": Allowed(("domain", "db"), ("asyncpg",)),
    "publishing": Allowed(("domain", "kafka_producer"), ("aiokafka",)),
    "kafka_producer": Allowed((), ("aiokafka",)),
    "telemetry": Allowed(("logs", "metrics", "tracing"), ("opentelemetry", "structlog")),
    "logs": Allowed((), ("opentelemetry", "structlog")),
    "metrics": Allowed((), ("opentelemetry", "prometheus_client")),
    "tracing": Allowed((), ("opentelemetry", "temporalio")),
    "exporting": Allowed(("metrics", "settings", "telemetry", "tracing"), ("aiohttp", "opentelemetry", "temporalio")),
    "gauges": Allowed(("db", "telemetry", "workflows"), ("temporalio",)),
    "settings": Allowed((), ("pydantic", "pydantic_core", "pydantic_settings", "temporalio.envconfig")),
    "health": Allowed((), ("aiohttp",)),
    "exits": Allowed(),
    "process": Allowed(("exits", "telemetry")),
    "connections": Allowed(("db", "exits", "publishing", "settings"), ("temporalio",)),
    "contracts.commands": Allowed(("connections", "contracts", "settings"), ("typer",)),
    "contracts": Allowed(("contracts", "domain"), ("aiokafka",)),
    "activities": Allowed(("domain", "db", "publishing", "telemetry", "activities"), ("temporalio",)),
    "workflows": Allowed(("activities", "domain", "workflows"), ("temporalio",)),
}


def is_in(module: str, units: tuple[str, ...]) -> bool:
    """Whether the module is one of these units, or part of one."""
    return any(module == unit or module.startswith(f"{unit}.") for unit in units)


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that the source imports, at whatever depth; a relative import as `.`, which no table allows."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else node.module or "."


def wrong_imports(module: str, source: str) -> list[str]:
    """What a module of ours imports against the table."""
    modules = [name for name in imported(ast.parse(source)) if name.partition(".")[0] not in sys.stdlib_module_names]
    wrong = [name for name in modules if is_in(name, ("worker", "cli", ".")) and not module.startswith("tests.")]
    if is_in(module, FREE):
        return wrong
    allowed = next((rule for unit, rule in TABLE.items() if is_in(module, (unit,))), Allowed())
    return wrong + [name for name in modules if name not in wrong and not is_in(name, allowed.ours + allowed.third_party)]


def environment_reads(source: str) -> list[int]:
    """The lines that read the environment, by `os` or by an option of the command line."""
    names = {"environ", "environb", "getenv", "getenvb"}
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any(alias.name in names for alias in node.names))
        or (isinstance(node, ast.Call) and any(keyword.arg == "envvar" for keyword in node.keywords))
    ]


def unsafe_workflow_imports(source: str) -> list[str]:
    """Imports of a workflow module that the sandbox would load again: not stdlib, not temporalio, not passed through."""
    tree = ast.parse(source)
    decorators = [word for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for word in node.decorator_list]
    if not any("workflow.defn" in ast.unparse(decorator) for decorator in decorators):
        return []
    passed = [
        node for node in ast.walk(tree) if isinstance(node, ast.With) and "imports_passed_through" in ast.dump(node.items[0])
    ]
    safe = {name for block in passed for name in imported(block)}
    harmless = (*sys.stdlib_module_names, "temporalio")
    return [name for name in imported(tree) if name not in safe and not is_in(name, harmless)]


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


every_file = pytest.mark.parametrize("path", FILES, ids=module_of)


@every_file
def test_imports_follow_the_table(path: Path) -> None:
    """Layout, "One way of data": each unit imports only what the table allows, and nobody imports worker or cli."""
    assert wrong_imports(module_of(path), path.read_text(encoding="utf-8")) == []


@every_file
def test_environment_is_read_in_one_place(path: Path) -> None:
    """Layout, trap 2: the environment is read in settings.py and nowhere else."""
    if not is_in(module_of(path), READS_ENVIRONMENT):
        assert environment_reads(path.read_text(encoding="utf-8")) == []


@every_file
def test_workflow_imports_pass_through(path: Path) -> None:
    """Trap 1: what a workflow module imports stands in `imports_passed_through()`."""
    if not is_in(module_of(path), ("tests",)):
        assert unsafe_workflow_imports(path.read_text(encoding="utf-8")) == []


@every_file
def test_sizes(path: Path) -> None:
    """Layout rule 10: a file has 300 lines at most, worker.py 120, a function 50; `__init__.py` is empty (trap 1)."""
    source = path.read_text(encoding="utf-8")
    limit = {"__init__": 0, "worker": 120}.get(path.stem, 300)
    assert len(source.splitlines()) <= limit
    assert [node.name for node in functions(source) if (node.end_lineno or 0) - node.lineno >= 50] == []


@pytest.mark.parametrize("path", [path for path in FILES if path.name.startswith("test_")], ids=module_of)
def test_every_test_says_what_it_proves(path: Path) -> None:
    """Layout rule 11: every test has a docstring."""
    tests = [node for node in functions(path.read_text(encoding="utf-8")) if node.name.startswith("test_")]
    assert [node.name for node in tests if not ast.get_docstring(node)] == []


def test_every_unit_is_in_the_table() -> None:
    """Layout: a new top-level unit is added to the table on purpose, not by accident."""
    units = {unit.partition(".")[0] for unit in TABLE} | set(FREE)
    assert units >= OURS


def test_no_unit_shadows_a_library() -> None:
    """Layout: no top-level name of ours is a module of the standard library or of an installed package."""
    installed = {
        name for name, owners in importlib.metadata.packages_distributions().items() if set(owners) != {"booking-expiration"}
    }
    assert OURS & (installed | set(sys.stdlib_module_names)) == set()


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("domain.booking", "import asyncpg", ["asyncpg"]),
        ("domain.booking", "from db.bookings import claim", ["db.bookings"]),
        ("domain.booking", "from domain.events import Phase\nimport json", []),
        ("db.bookings", "def f():\n    from activities.messages import BatchOrder", ["activities.messages"]),
        ("activities.messages", "import temporalio.activity", ["temporalio.activity"]),
        ("activities.expire_batch", "from temporalio import activity\nfrom db import bookings", []),
        ("settings", "from temporalio.envconfig import ClientConfig", []),
        ("settings", "from temporalio.client import Client", ["temporalio.client"]),
        ("devstack.stack", "import psutil, worker", ["worker"]),
        ("db.bookings", "from . import errors", ["."]),
        ("dbx", "import db", ["db"]),
    ],
)
def test_the_table_can_refuse(module: str, source: str, wrong: list[str]) -> None:
    """The check of the table finds an offence, at whatever depth, and lets the allowed pass."""
    assert wrong_imports(module, source) == wrong


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['X']", "import os\nos.getenv('X')", "from os import environ", "typer.Option(envvar='X')"]
)
def test_environment_reads_are_found(source: str) -> None:
    """The check of the environment finds each way to read it."""
    assert environment_reads(source) != []
    assert environment_reads("import os\nos.getpid()") == []


def test_unsafe_workflow_imports_are_found() -> None:
    """Trap 1: the check finds an import outside the block and accepts one inside."""
    inside = "with workflow.unsafe.imports_passed_through():\n    from activities.messages import BatchOrder\n"
    outside = "import asyncpg\nimport json\nfrom temporalio import workflow\n"
    assert unsafe_workflow_imports(f"{outside}{inside}@workflow.defn\nclass Cycle: ...") == ["asyncpg"]
