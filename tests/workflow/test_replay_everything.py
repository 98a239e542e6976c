"""What a replay is compared by, on a workflow that does everything: nothing is reported that did not change (trap 15)."""

import asyncio
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowContinuedAsNewError, WorkflowHandle, WorkflowHistory, WorkflowUpdateFailedError
from temporalio.worker import Worker

from operators.replaying.kinds import KINDS
from operators.replaying.steps import recorded
from tests.workflow.everything import Child, Everything, Order, note
from tests.workflow.gate import replayed
from workflows.sandbox import guarded_runner


@pytest.fixture
async def runs(client: Client) -> list[WorkflowHistory]:
    """Both runs of a chain of `Everything` and their children, as the server kept them."""
    queue = f"everything-{uuid4()}"
    worker = Worker(client, task_queue=queue, workflows=[Everything, Child], activities=[note], workflow_runner=guarded_runner())
    async with worker, asyncio.timeout(30):
        handle = await client.start_workflow(Everything.run, Order(rounds=2), id=queue, task_queue=queue)
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update(Everything.set_limit, -1)
        await handle.execute_update(Everything.set_limit, 3)
        with pytest.raises(WorkflowContinuedAsNewError) as continued:
            await client.get_workflow_handle(queue, run_id=handle.first_execution_run_id).result(follow_runs=False)
        newer: WorkflowHandle[Everything, str] = client.get_workflow_handle_for(
            Everything.run, queue, run_id=continued.value.new_execution_run_id
        )
        await newer.execute_update(Everything.set_limit, 4)
        assert await newer.result() == "1 alone, 1 left, 1 right, goodbye 1"
    ids = [(queue, handle.first_execution_run_id), (queue, newer.run_id), *((f"{queue}-child-{n}", None) for n in (1, 2))]
    return [await client.get_workflow_handle(name, run_id=run_id).fetch_history() for name, run_id in ids]


async def test_nothing_changed_nothing_reported(runs: list[WorkflowHistory]) -> None:
    """Trap 15: timers, activities at once, children, signals, updates, memo and new runs replay without a difference."""
    assert [
        (each.history.workflow_id, each.differences) for each in await replayed(runs, Everything, Child) if each.differences
    ] == []
    kinds = {step.kind for history in runs for step in recorded(history.events)}
    assert kinds == {kind.what for kind in KINDS} | {"update"}


async def test_a_history_that_goes_on(runs: list[WorkflowHistory]) -> None:
    """Issue 4 section 5: of a run that is not over, what its history cannot know yet is no difference."""
    [first, *_] = runs
    begun = [at for at, event in enumerate(first.events, 1) if event.HasField("workflow_task_started_event_attributes")]
    unfinished = [WorkflowHistory(first.workflow_id, first.events[:number]) for number in begun]
    assert [each.differences for each in await replayed(unfinished, Everything, Child)] == [[]] * len(begun)
