"""`make session`: the four stories play to their end on a stack of their own, and are written where the document has places."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from devstack import addresses, session_text
from devstack.session import DOCUMENT
from tests.acceptance.process import ROOT


def typed(blocks: dict[str, str]) -> list[str]:
    """What was typed, without the ids, which differ each time."""
    lines = [line for shown in blocks.values() for line in shown.splitlines() if line.startswith("$ ")]
    return [re.sub(r"[0-9a-f-]{36}|(?<= )\d+", "ID", line) for line in lines]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_session_can_be_recorded_again(tmp_path: Path) -> None:
    """Issue 4, show before it counts as done: the recorded session is real and repeatable, with the same commands each time."""
    document = tmp_path / DOCUMENT.name
    document.write_text(DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in addresses.NAMES}
    program = [sys.executable, "-m", "devstack.session", str(document)]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "operations.md: 18 blocks recorded\n"), done.stderr
    old, new = (session_text.blocks(each.read_text(encoding="utf-8")) for each in (DOCUMENT, document))
    assert (typed(old), old["outage-look"] == new["outage-look"]) == (typed(new), False)
