"""Record one run of each kind for the replay test.

`python -m devstack exec -- python -m tests.workflow.record_histories VERSION`

Run it before a release; the files stay for as long as runs of that version may still be open.
"""

import asyncio
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from temporalio.client import Client, WorkflowFailureError
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.workflow.steps import Behaviour, Steps, hang_until_cancelled, refuse, running, start

FOLDER: Final = Path(__file__).parent.parent / "histories"
KINDS: Final[dict[str, dict[str, Behaviour]]] = {
    "completed": {},
    "failed": {"Reserve": refuse},
    "canceled": {"Reserve": hang_until_cancelled},
}


async def _record(version: str) -> None:
    client = await Client.connect(
        os.environ["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter, identity="record_histories"
    )
    for kind, behave in KINDS.items():
        steps = Steps()
        steps.behave = behave
        async with running(client, steps) as queue:
            handle = await start(client, queue)
            if kind == "canceled":
                await steps.called["Reserve"].wait()
                await handle.cancel()
            with suppress(WorkflowFailureError):
                await handle.result()
        history = await handle.fetch_history()
        text = re.sub(r'"stackTrace": "(\\.|[^"\\])*"', '"stackTrace": ""', history.to_json())  # no paths of somebody's machine
        (FOLDER / f"{version}-{kind}.json").write_text(text + "\n")


if __name__ == "__main__":
    asyncio.run(_record(sys.argv[1]))
