"""docs/commands.md has every command with its options, the keys of its JSON, and the codes of a verdict (issue 4 section 4)."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

import cli
from operators import explain, preview, replay, spreading, status, verdict
from operators.preview import Preview
from operators.status import Status
from tests.unit.test_architecture import ROOT
from tests.unit.test_docs import table
from tests.unit.test_verdict import CASES, NOW

DOCUMENT = "docs/commands.md"
ROWS = {row[0].strip("`"): row for heading in ("Looking", "Acting", "The contract") for row in table(DOCUMENT, heading)}


def options(command: Any) -> set[str]:
    """The long options of a command but --help, which all have."""
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    return {flag for flag in flags if flag.startswith("--")} - {"--help", "--install-completion", "--show-completion"}


def commands(command: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command by its whole name, with its options; a group that does something by itself is one too."""
    if options(command) or not hasattr(command, "commands"):
        yield name, options(command)
    for each in getattr(command, "commands", {}):
        yield from commands(command.commands[each], f"{name} {each}".strip())


def documented_keys(name: str) -> set[str]:
    """The words in code spans of a command's JSON column, without those in parentheses."""
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", ROWS[name][2])))


def test_every_command_has_a_row_with_its_options() -> None:
    """Issue 4 section 4: no command, and no option, is missing from the document, and none is there that does not exist."""
    real = {name: each for name, each in commands(typer.main.get_command(cli.app)) if name}
    assert {name: set(re.findall(r"`(--[\w-]+)`", row[1])) for name, row in ROWS.items()} == real
    assert [name for name, each in real.items() if "--json" not in each] == ["contract samples"]  # which prints nothing else


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("status", status.as_data(Status(None, None, None, None))),
        ("preview", preview.as_data(Preview(NOW, NOW, 200, [], {}, True, []), "tenant")),  # groups_complete
        ("explain", explain.as_data(CASES["locked"][0], [], {})),
        ("replay", replay.as_data(replay.Found(""))),
        ("outbox requeue", dict.fromkeys(spreading.Requeued.__dataclass_fields__)),
    ],
)
def test_the_keys_are_the_documented_ones(name: str, answer: dict[str, Any]) -> None:
    """Issue 4 section 4: the keys of the JSON are a contract."""
    assert documented_keys(name) == answer.keys()


def test_every_verdict_is_documented() -> None:
    """Issue 4 section 4, explain: the codes that programs may rely on are those that the verdict can give."""
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8").partition("The codes of `verdict`")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", text)) == {each.code for known, _, _ in CASES.values() for each in verdict.judge(known)}
