"""Who polls the task queue, for work on workflows and on activities: without a worker nothing that was started goes on."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from activities.schedule_state import Frontend

RECENT: Final = timedelta(seconds=75)
"""A worker asks again after a minute at the latest; the server remembers those that are gone for five."""

KINDS: Final = {"workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY}


@dataclass(frozen=True, slots=True)
class Poller:
    """One worker at one of the two kinds of work. `live`: it asked within the last minute; the server remembers it for five."""

    kind: str
    identity: str
    last_access: datetime
    seconds_ago: float
    live: bool


async def of(client: Frontend, task_queue: str) -> list[Poller]:
    """All pollers that the server remembers, the latest first. Raises `RPCError`."""
    found = []
    for kind, number in KINDS.items():
        answer = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=number),
            retry=True,
        )
        now = datetime.now(UTC)
        for poller in answer.pollers:
            last = poller.last_access_time.ToDatetime(UTC)
            found.append(Poller(kind, poller.identity, last, (now - last).total_seconds(), now - last <= RECENT))
    return sorted(found, key=lambda poller: (poller.kind, poller.last_access), reverse=True)


async def live(client: Frontend, task_queue: str) -> list[str]:
    """The identities of the workers that asked for work on workflows in the last minute. Raises `RPCError`."""
    return sorted({poller.identity for poller in await of(client, task_queue) if poller.live and poller.kind == "workflow"})


def none_polls(task_queue: str) -> str:
    """What to say where there is none."""
    return f"no worker polls the task queue {task_queue}: start one"
