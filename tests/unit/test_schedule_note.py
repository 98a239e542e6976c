"""The note on the schedule's page: what it says and how it is read back, whatever an operator writes (issue 4, section 4)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities import schedule_note
from activities.schedule_note import NOTE, Pause

AT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
OPEN = Pause("anna@host", AT, "wrong deadlines")
LIMITED = Pause("anna@host", AT, "wrong deadlines", AT + timedelta(minutes=30), "0123456789ab")


def test_the_note_of_a_pause() -> None:
    """Issue 4, section 1: what the schedule does, its owner and its runbook come first, then who, when, why and until when."""
    assert schedule_note.paused(LIMITED) == (
        f"{NOTE}\n\nPaused by anna@host at 2026-03-01 12:00:00 UTC: wrong deadlines\n"
        "Until 2026-03-01 12:30:00 UTC, then it resumes by itself (mark 0123456789ab)"
    )
    assert schedule_note.paused(OPEN).endswith("\nUntil somebody resumes it: booking-expiration schedule resume")


def test_the_note_after_it() -> None:
    """Issue 4, section 1: it still says what the schedule does, and who resumed it."""
    assert schedule_note.resumed("bob@host", AT, "corrected") == (
        f"{NOTE}\n\nResumed by bob@host at 2026-03-01 12:00:00 UTC: corrected"
    )
    assert schedule_note.read(schedule_note.resumed("bob@host", AT, "corrected")) is None


@pytest.mark.parametrize("note", ["", NOTE, "paused in the Web UI", "Paused by me at noon: (mark 0123456789ab)"])
def test_another_note_is_no_pause(note: str) -> None:
    """Issue 4, section 4: a note that somebody else wrote has no mark, whatever it looks like."""
    assert schedule_note.read(note) is None


@given(reason=st.text(max_size=500), by=st.text(alphabet="abc @.:", max_size=20), limited=st.booleans())
def test_no_reason_breaks_the_note(reason: str, by: str, *, limited: bool) -> None:
    """Issue 4, section 4: no reason, however odd, changes the mark or the end of its own pause."""
    pause = Pause(by, AT, reason, *((LIMITED.until, LIMITED.mark) if limited else ()))
    read = schedule_note.read(schedule_note.paused(pause))
    assert read is not None
    assert (read.until, read.mark) == (pause.until, pause.mark)


def test_a_reason_that_imitates_a_mark() -> None:
    """Issue 4, section 4: text of an earlier note in a reason is text."""
    imitation = schedule_note.paused(LIMITED)
    read = schedule_note.read(schedule_note.paused(Pause("bob", AT, imitation)))
    assert read is not None
    assert read == Pause("bob", AT, schedule_note.one_line(imitation))
