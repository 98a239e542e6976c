"""The guard on workflow code: a module that should not be reloaded for each run fails the worker's start (trap 1)."""

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy


def guarded_runner() -> SandboxedWorkflowRunner:
    """The sandbox for workers and replays alike.

    Without the policy such an import costs 100 ms per run, silently, and asyncpg in the sandbox crashes the process.
    """
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_import_notification_policy(
            SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
            | SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        )
    )
