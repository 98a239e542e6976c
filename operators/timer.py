"""The timer that ends a pause of the schedule with `--for`: its workflow, and whether it is still there."""

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.service import RPCError

from activities import schedule_state
from activities.schedule_note import Pause
from activities.schedule_state import Frontend


def workflow_id(mark: str) -> str:
    """The workflow that will end the pause of this mark."""
    return f"booking-expiration-resume-{mark}"


async def runs(client: Frontend, pause: Pause | None) -> bool | None:
    """Whether the timer of this pause is there; None where it has none, as nobody gave it an end. Raises `RPCError`."""
    if pause is None or pause.mark is None:
        return None
    try:
        described = await client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(
                namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id(pause.mark))
            ),
            retry=True,
        )
    except RPCError as error:
        if schedule_state.not_there(error):
            return False
        raise
    return described.workflow_execution_info.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
