"""docs/operations.md has the recorded session, as it was shown, and nothing of the machine where it was made (issue 4)."""

import re
import shlex

import pytest
import typer

import cli
from devstack import session_text
from devstack.errors import StackError
from devstack.session import DOCUMENT
from devstack.session_terminal import Screen, _with_what_is_gone
from operators import frame

TEXT = DOCUMENT.read_text(encoding="utf-8")
BLOCKS = session_text.blocks(TEXT)
TYPED = [line[2:] for shown in BLOCKS.values() for line in shown.splitlines() if line.startswith("$ ")]
STORIES = {
    "outage": ["status", "preview", "drain", "drain limits", "drain status", "status", "history"],
    "poison": ["status", "preview", "explain", "schedule trigger", "explain"],
    "kafka": ["outbox list", "outbox requeue", "schedule trigger", "outbox list"],
    "parked": ["outbox list", "outbox show", "outbox requeue", "schedule trigger", "outbox list"],
    "pause": ["schedule pause"],
    "still": ["schedule apply", "schedule show", "status"],
    "resumed": ["schedule resume", "schedule show", "history"],
}


def command(line: str) -> str:
    """The command and its sub-command of a typed line; raises `KeyError` where there is none such."""
    _, first, *rest = shlex.split(line)
    found = typer.main.get_command(cli.app).commands[first]  # type: ignore[attr-defined] # a group
    known = getattr(found, "commands", {})
    return f"{first} {rest[0]}" if rest and rest[0] in known else first


@pytest.mark.parametrize("story", STORIES)
def test_each_story_is_told(story: str) -> None:
    """Issue 4, show before it counts as done: the four stories, each with the commands that it is about, which all exist."""
    shown = "\n".join(text for name, text in BLOCKS.items() if name.partition("-")[0] == story)
    assert [command(line[2:]) for line in shown.splitlines() if line.startswith("$ ")] == STORIES[story]


def test_the_stories_end_well() -> None:
    """Issue 4: drained, expired as it should, nothing left in the outbox, running again; in the words of the commands."""
    assert "│ drained " in BLOCKS["outage-limits"]
    assert "attention" not in BLOCKS["outage-done"]
    assert "as it should; Kafka has its event" in BLOCKS["poison-repaired"]
    assert BLOCKS["parked-done"].endswith("No such record waits, and none is set aside.")
    assert "│ paused " in BLOCKS["still-paused"]
    assert "│ running " in BLOCKS["resumed"]


def test_the_session_fits_a_page_and_tells_nothing_of_its_machine() -> None:
    """Issue 4: at most 120 columns but for a link, which is never wrapped; no broken character, no path, a neutral host."""
    session_text.require_neutral(BLOCKS, "root@", "localhost")
    lines = [line for shown in BLOCKS.values() for line in shown.splitlines() if not line.startswith("in the Web UI: ")]
    assert max(map(len, lines)) <= 120
    assert "\ufffd" not in TEXT
    assert set(re.findall(r"\d@([\w.-]+)", TEXT)) == {"crm-worker-1"}


def test_pictures_are_small() -> None:
    """Issue 4: the Web UI's schedule, a running cycle, a drain and its form are shown, each in less than 300 kB."""
    pictures = [DOCUMENT.parent / name for name in re.findall(r"\]\((images/ui-[\w-]+\.png)\)", TEXT)]
    assert {picture.stem for picture in pictures} == {"ui-schedule", "ui-cycle", "ui-drain", "ui-drain-form"}
    assert [picture.name for picture in pictures if not 10_000 < picture.stat().st_size < 300_000] == []


def test_a_document_without_a_place_is_refused() -> None:
    """The session writes into the places that the document has for it, and says so when they are not the same."""
    document = "before\n<!-- session: one -->\n```console\nold\n```\n<!-- end -->\nafter\n"
    assert session_text.replaced(document, {"one": "$ new"}) == document.replace("old", "$ new")
    with pytest.raises(StackError, match="two"):
        session_text.replaced(document, {"one": "$ new", "two": "$ more"})


@pytest.mark.parametrize("leak", ["see /home/anna/x", "at /var/y", "7@my-host"])
def test_what_belongs_to_the_machine_is_refused(leak: str) -> None:
    """A transcript with a path or this machine's name is not written; an address within the Web UI is no path."""
    session_text.require_neutral({"one": "in the Web UI: /namespaces/default/workflows/x"}, "my-host")
    with pytest.raises(StackError, match="belongs to this machine"):
        session_text.require_neutral({"one": leak}, "my-host")


def test_a_progress_bar_is_kept_as_it_stood() -> None:
    """What a person saw stays: a line that was overwritten, or erased, is put back where it stood when a key was pressed."""
    screen = Screen()
    screen.feed("started\r\n\x1b[?25l\x1b[1m4/9\x1b[0m")
    before = screen.text()
    screen.feed("\r\x1b[2K\r\nStop? y\r\ndone\r\n")
    assert (before, screen.text()) == ("started\n4/9", "started\n\nStop? y\ndone")
    assert _with_what_is_gone(screen.text(), [before, "started\n\nStop?"]) == "started\n4/9\n\nStop? y\ndone"


def test_the_actor_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 4: BOOKING_EXPIRATION_ACTOR says who acts where several people share an account; else the login name does."""
    monkeypatch.setenv("BOOKING_EXPIRATION_OPERATOR_DATABASE_URL", "postgresql://operator@db.example/crm")
    assert "@" in frame.actor()
    monkeypatch.setenv("BOOKING_EXPIRATION_ACTOR", "anna")
    assert frame.actor() == "anna"
    monkeypatch.setenv("BOOKING_EXPIRATION_ACTOR", "anna\nbob")
    with pytest.raises(SystemExit, match="2"):
        frame.actor()
