"""Who polls a task queue: without a worker nothing that was started goes on."""

from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

RECENT: Final = timedelta(seconds=75)
"""A worker asks again after a minute at the latest; the server remembers those that are gone for five."""


async def polling(
    client: Client, task_queue: str, kind: "TaskQueueType.ValueType" = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
) -> list[str]:
    """The identities of the workers that asked this task queue for work in the last minute. Raises `RPCError`."""
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind),
        retry=True,
    )
    since = datetime.now(UTC) - RECENT
    return sorted({poller.identity for poller in answer.pollers if poller.last_access_time.ToDatetime(UTC) > since})


def none_polls(task_queue: str) -> str:
    """What to say where there is none."""
    return f"no worker polls the task queue {task_queue}: start one"
