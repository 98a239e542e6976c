"""How an activity fails: which errors are worth a retry, in a form that Temporal understands (trap 4, R4)."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

import telemetry
from activities.messages import BatchOrder
from db.errors import DatabaseUnavailableError, StaleClaimError

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

HEALING = (DatabaseUnavailableError, StaleClaimError)
"""What the same call can expect to get over by itself; everything else needs somebody to act."""


def reported(
    step: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Put the run id on the log lines of an activity, and say every failure once.

    Raises `ApplicationError` named for the condition, retryable only for what can heal (R4).
    """

    @wraps(step)
    async def activity_method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        telemetry.bind_run(activity.info().workflow_run_id or "")
        try:
            return await step(self, *args, **kwargs)
        except Exception as error:
            retryable = isinstance(error, HEALING)
            phases = [order.phase for order in args if isinstance(order, BatchOrder)]
            telemetry.step_failed(" ".join([activity.info().activity_type, *phases]), str(error), retryable=retryable)
            raise ApplicationError(str(error), type=type(error).__name__, non_retryable=not retryable) from error

    return activity_method
