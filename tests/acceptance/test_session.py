"""`make session`: the four stories play to their end on a stack of their own, and are written where the document has places."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devstack import addresses, session_text
from devstack.session import DOCUMENT
from tests.acceptance.process import ROOT


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
    assert old.keys() == new.keys()
    assert [name for name in old if old[name] == new[name]] == []
