"""runbooks/: a section for each alert, the same questions answered everywhere, all that one types is tested (issue 4 §6)."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.unit.test_architecture import ROOT
from tests.unit.test_ops import ALERTS, RUNBOOKS

TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("runbooks/*.md"))}
APART = {"What you need", "First look", "Causes", "Procedures"}
"""Sections of a runbook that are no alert's."""
ALL = ["You see", "How sure", "Over when", "Wake"]
WANTED = {"alerts": ALL, "Causes": ALL, "Procedures": ["Over when", "Wake"]}
"""The questions that a section answers, in this order; what to type stands in its blocks."""


class Part(NamedTuple):
    """A heading of a runbook and what stands below it up to the next one; `kind`: a key of `WANTED`, or empty."""

    file: str
    kind: str
    heading: str
    text: str


def _parts() -> Iterator[Part]:
    for file, text in TEXTS.items():
        large = ""
        for piece in re.split(r"^##(?=#? )", text, flags=re.MULTILINE)[1:]:
            heading, _, below = piece.partition("\n")
            if heading.startswith("# "):
                yield Part(file, large, heading[2:], below)
            else:
                large = heading[1:]
                yield Part(file, "" if large in APART else "alerts", large, below)


PARTS = list(_parts())
ANSWERING = [part for part in PARTS if part.kind]


def _named(heading: str) -> str:
    """The alert that a heading names."""
    return "BookingExpiration" + "".join(word[0].upper() + word[1:] for word in heading.split())


def test_alerts_and_runbook_sections_match_one_to_one() -> None:
    """O6, layout rule 14: every alert leads to the section that has its name, and every such section has an alert."""
    real = {(alert["alert"], alert["annotations"]["runbook_url"].removeprefix(RUNBOOKS)) for alert in ALERTS}
    own = [part for part in PARTS if part.kind == "alerts"]
    assert real == {(_named(part.heading), f"{part.file}#{part.heading.lower().replace(' ', '-')}") for part in own}


@pytest.mark.parametrize("part", ANSWERING, ids=lambda part: f"{part.file}-{part.heading}".replace(" ", "-"))
def test_every_section_answers_the_same_questions(part: Part) -> None:
    """Issue 4 section 6: what you see, how sure, what to type, when it is over, whom to wake; a procedure the last three."""
    bold = re.findall(r"\*\*([^*]+)\*\*", part.text)
    assert [words for words in dict.fromkeys(bold) if words in ALL] == WANTED[part.kind]
    assert "```sh" in part.text or part.heading == "Stop, cancel or terminate"  # which of the three that follow


@pytest.mark.parametrize("file", TEXTS)
def test_procedures_say_how_they_differ(file: str) -> None:
    """Issue 4 section 6: at their head: what you see and how sure you can be stands in the section that leads there."""
    [head] = [part.text for part in PARTS if (part.file, part.heading) == (file, "Procedures")]
    assert [
        words for words in ("what you see", "how sure", "what to type", "when it is over", "whom to wake") if words not in head
    ] == []


def test_what_a_sentence_tells_to_type_is_typed() -> None:
    """Issue 4 section 6: a command or an option in a table or sentence stands in a block, too; tests type every block."""
    texts = "\n".join(TEXTS.values())
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", texts, re.DOTALL))
    sentences = re.sub(r"```.*?```", "", texts, flags=re.DOTALL)
    told = re.findall(r"`((?:booking-expiration|python -m|temporal|dbmate|psql|amtool) [^`\n]+|--[a-z-]+[^`\n]*)`", sentences)
    assert "booking-expiration doctor" in told
    assert sorted({each for each in told if each not in blocks} - {"--help"}) == []
