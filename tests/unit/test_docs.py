"""The documents say what is true: the map of rules, links, settings, commands and events (issue 3 section 1, layout rule 14)."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

import cli
import settings
from devstack import addresses
from settings import Settings
from tests.unit.test_architecture import FILES, ROOT, SKIPPED, TABLE, functions

SPEC_MAP = "docs/spec-map.md"
LAST = {"S": 8, "L": 5, "I": 3, "A": 8, "T": 4, "P": 4, "R": 5, "O": 6, "X": 8}
"""The last number of each letter's rules in the specification."""
RULES = [f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)]
DECISIONS = [f"D{number}" for number in range(1, 31)]
CITATION = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|sql|json|yml|md|sh)|\.ci/run|Makefile|Dockerfile)(?:::([\w.]+))?`")
LINK = re.compile(r"\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"")
MARKDOWN = sorted(
    path
    for top in ROOT.iterdir()
    if top.name not in SKIPPED and not top.name.startswith(".")
    for path in ([top] if top.suffix == ".md" else top.rglob("*.md") if top.is_dir() else [])
)
TESTS = [
    (test.name, ast.get_docstring(test))
    for path in FILES
    if path.name.startswith("test_")
    for test in functions(path.read_text(encoding="utf-8"))
    if test.name.startswith("test_")
]
every_document = pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))


def table(document: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its first two lines."""
    below = (ROOT / document).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1]
    lines = [line for line in re.split(r"\n## ", below)[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def exists(path: str, name: str) -> bool:
    """Whether the file exists and defines the name: a function, class, constant, or a method as `Class.method`."""
    if not (ROOT / path).is_file():
        return False
    scope: Any = ast.parse((ROOT / path).read_text(encoding="utf-8")) if name else None
    for part in filter(None, name.split(".")):
        scope = next((node for node in scope.body if part in defined(node)), None)
        if scope is None:
            return False
    return True


def defined(node: ast.stmt) -> set[str]:
    """The names that a statement gives something to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {getattr(node, "name", "")} | {target.id for target in targets if isinstance(target, ast.Name)}


def code(path: Path) -> Iterator[str]:
    """What stands in code spans and blocks of a document, line by line."""
    text = path.read_text(encoding="utf-8")
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        yield from map(str.strip, block.splitlines())
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def unknown(line: str) -> list[str]:
    """The words and options of a command line of ours that do not exist, up to the next program."""
    command: Any = typer.main.get_command(cli.app)
    words, wrong = iter(shlex.split(line, comments=True)[1:]), []
    for word in words:
        if word in {"|", ";", "&&", ">"}:
            break
        options = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)} | {
            "--help": None
        }
        name = word.partition("=")[0]
        if not word.startswith("-"):
            known = getattr(command, "commands", {})
            command = known.get(word, command)
            wrong += [word] if known and re.fullmatch(r"[a-z-]+", word) and word not in known else []
        elif name not in options:
            wrong.append(word)
        elif (option := options[name]) and not option.is_flag and "=" not in word:
            next(words, None)
    return wrong


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_rule_is_mapped() -> None:
    """Issue 3 section 1: the map has S1 to X8 and D1 to D30, each once and in order."""
    assert [row[0] for row in table(SPEC_MAP, "Rules")] == RULES
    assert [row[0] for row in table(SPEC_MAP, "Decisions")] == DECISIONS


@pytest.mark.parametrize("heading", ["Rules", "Decisions", "Traps"])
def test_every_line_has_a_test_or_says_why_not(heading: str) -> None:
    """Issue 3 section 1: each line of the map names a test, says "later: …", or a reason after "none:"."""
    assert [row[0] for row in table(SPEC_MAP, heading) if not re.search(r"`tests/.*::test_|later: \w|none: \w", row[3])] == []


@every_document
def test_what_a_document_cites_exists(path: Path) -> None:
    """Issue 3 section 1: a `path::name` in the map resolves, and so does each one in any other document."""
    cited = CITATION.findall(path.read_text(encoding="utf-8"))
    names = [(file, name) for file, name in cited if name or path == ROOT / SPEC_MAP]
    assert [f"{file}::{name}" for file, name in names if not exists(file, name)] == []


@pytest.mark.parametrize("rule", RULES[-8:-1])
def test_the_specifications_own_tests_exist(rule: str) -> None:
    """Issue 3 section 10: each of the specification's own tests but the last has one that names it, by name or docstring."""
    word = re.compile(rf"\b{rule}\b|\btest_{rule.lower()}_")
    assert [name for name, docstring in TESTS if word.search(f"{name} {docstring}")] != []


def test_every_trap_that_the_code_cites_is_mapped() -> None:
    """The list of traps in the map covers all that code and tests refer to by number."""
    mapped = {row[0] for row in table(SPEC_MAP, "Traps")}
    sources = "\n".join(path.read_text(encoding="utf-8") for path in [*FILES, *ROOT.glob("migrations/*.sql")])
    cited = {number for some in re.findall(r"\btraps? (\d[\d, and]*)", sources) for number in re.findall(r"\d+", some)}
    assert sorted(cited - mapped, key=int) == []


@every_document
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link of every document names a file and, after #, a heading that are there."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    dead = []
    for link in (markdown or html for markdown, html in LINK.findall(text)):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            dead.append(link)
    assert dead == []


def test_every_setting_is_documented() -> None:
    """Issue 3 section 8: docs/configuration.md has exactly the variables of `Settings`, with their defaults and examples."""
    documented = {row[0].strip("`"): (row[4].strip("`"), row[5].strip("`")) for row in table("docs/configuration.md", "Settings")}
    real = {}
    for name, field in Settings.model_fields.items():
        default = "none, required" if field.is_required() else "none" if field.default is None else str(field.default)
        real[settings._variable(name)] = (default, str((field.examples or [None])[0]))
    assert documented == real


def test_units_and_bounds_are_documented() -> None:
    """Issue 3 section 8: times are in seconds and nothing else is; bounds and choices are those that `Settings` enforces."""
    documented = {row[0].strip("`"): row for row in table("docs/configuration.md", "Settings")}
    for name, field in Settings.model_fields.items():
        row = documented[settings._variable(name)]
        assert (row[2] == "seconds") == (field.annotation is float), name
        low = next((f"{bound.ge} to" for bound in field.metadata if hasattr(bound, "ge")), "up to")
        high = min((bound.le for bound in field.metadata if hasattr(bound, "le")), default=None)
        choices = [str(option) for option in get_args(field.annotation) if isinstance(option, str)]
        if high is not None or choices:
            assert row[3].replace("`", "") == (", ".join(choices) or f"{low} {high}"), name


def test_other_programs_variables_are_documented() -> None:
    """The variables of the local stack are documented beside the worker's own, and none that nobody reads."""
    documented = {row[0].strip("`") for row in table("docs/configuration.md", "Variables of other programs")}
    others = set(addresses.NAMES) - {settings._variable(name) for name in Settings.model_fields}
    assert documented == {name for name in others if not name.startswith("TEMPORAL_") or name == addresses.TEMPORAL_UI} | {
        "DEVSTACK_POSTGRES_BIN"
    }


def test_make_targets_exist() -> None:
    """Decisions, fixed names: the README has the six fixed targets, and no document names one that the Makefile lacks."""
    real = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {path: {match[1] for line in code(path) if (match := re.match(r"make ([a-z][a-z-]*)", line))} for path in MARKDOWN}
    assert {str(path): sorted(targets - real) for path, targets in named.items() if targets - real} == {}
    assert named[ROOT / "README.md"] >= {"demo", "test", "lint", "stack", "worker", "bench"}


@every_document
def test_commands_exist(path: Path) -> None:
    """Layout rule 14: no document tells anybody to type a command of ours, or an option of it, that does not exist."""
    lines = [line for line in code(path) if re.match(r"booking-expiration [a-z]", line)]
    assert [wrong for line in lines for wrong in unknown(line)] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("booking-expiration cycle stopp", ["stopp"]),
        ("booking-expiration drain --cap 5 --lane 2 -r x", ["--lane"]),
        ("booking-expiration schedule pause --for 1h --jason | jq", ["--jason"]),
        ("booking-expiration outbox skip 42 --reason 'INC-123: --all of it' && booking-expiration nothing", []),
    ],
)
def test_a_wrong_command_is_found(line: str, wrong: list[str]) -> None:
    """Layout rule 14: the check above sees wrong words and options, and no value or second program."""
    assert unknown(line) == wrong


def test_every_error_has_a_place_in_a_runbook() -> None:
    """O6: whatever the worker logs as an error stands in a runbook by its event's name."""
    events = re.findall(r"_log\.error\(\s*\"([^\"]+)\"", (ROOT / "telemetry.py").read_text(encoding="utf-8"))
    runbooks = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "runbooks").glob("*.md"))
    assert events
    assert [event for event in events if f"`{event}`" not in runbooks] == []


def test_the_import_table_is_the_enforced_one() -> None:
    """Layout, "One way of data": the table in CONTRIBUTING.md is the one that the architecture test enforces."""
    rows = table("CONTRIBUTING.md", "Where things go")
    documented = {row[0].strip("`"): tuple(re.findall(r"[\w.]+", row[1])) + tuple(re.findall(r"[\w.]+", row[2])) for row in rows}
    assert documented == {unit: rule.ours + rule.third_party for unit, rule in TABLE.items()}
