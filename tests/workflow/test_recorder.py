"""That a release can be recorded: the recorder is run by hand only, and would rot unseen."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from operators.replaying.replay import from_json
from tests.workflow.gate import FOLDER
from tests.workflow.test_replay import KINDS


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_recorder_records_every_kind(addresses: Mapping[str, str], tmp_path: Path) -> None:
    """Issue 4 section 5: `make histories` works with the code at hand, and what it records is what its name says."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-cov", "-p", "no:cacheprovider"]
    recorders = [str(FOLDER.parent / "workflow" / f"record_{what}.py") for what in ("histories", "drains")]
    environment = {**os.environ, **addresses, "HISTORIES_TO": str(tmp_path)}
    done = subprocess.run(
        [*command, *recorders], env=environment, cwd=FOLDER.parent.parent, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    recorded = {path.stem.split("-", 1)[1]: from_json(path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()}
    assert recorded.keys() == KINDS.keys()
    assert [kind for kind, history in recorded.items() if not all(check(history) for check in KINDS[kind])] == []
