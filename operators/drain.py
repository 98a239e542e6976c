"""`booking-expiration drain …`: catch up a backlog on purpose, watch it, change its limits, stop it (D14)."""

import asyncio
from typing import Annotated, Any, Final

import typer
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.drain_messages import DrainLimits, DrainOrder, DrainProgress
from activities.messages import StopRequest
from db import controls, server
from db.unit_of_work import UnitOfWork
from operators import arguments, drain_runs, drain_view, frame, pollers, runs
from operators.frame import CommandError, Json, Reason
from settings import OperatorSettings
from workflows import drain_limits
from workflows.drain import WRITTEN_DOWN

SUMMARY: Final = "Drain: up to {cap:,} bookings, {lanes} batches at once"
DETAILS: Final = (
    "Expires overdue bookings beside the minute's cycle, in batches of their own, and publishes their events. "
    "Safe to stop (signal `stop`) and to cancel: batches in hand are committed or rolled back whole. "
    "Limits can be changed while it runs (update `set_limits`). Runbook: runbooks/booking-expiration.md, After an outage"
)
CHANGED_WITHIN: Final = 10.0
"""Seconds that a worker may take to answer an update."""

app = typer.Typer(help="Catch up a backlog on purpose; without a sub-command it starts a drain and watches it.")

Which = Annotated[str | None, typer.Argument(metavar="WORKFLOW_ID", help="As the Web UI shows it; without it the one that runs.")]
Cap = Annotated[int | None, typer.Option("--cap", metavar="N", help="Bookings that it may expire at most. Required.")]
Only = Annotated[str | None, typer.Option("--phase", metavar="PHASE", help="Only Reserve, or only Booking.")]
Lanes = Annotated[int | None, typer.Option("--lanes", metavar="1-8", help="Batches at once; 1 unless told.")]
Budget = Annotated[
    str | None, typer.Option("--time-budget", metavar="TIME", help="It ends after: 90s, 30m, 2h; 30m unless told.")
]
Pause = Annotated[
    str | None, typer.Option("--pause", metavar="TIME", help="Rest between rounds of batches: 1s, 10s; none unless told.")
]
Why = Annotated[str | None, typer.Option("--reason", "-r", help="Why; it is kept with the act. Required.")]
Detach = Annotated[bool, typer.Option("--detach", help="Start it and do not watch.")]
Watch = Annotated[bool, typer.Option("--watch", help="Until it ends.")]
PastHold = Annotated[bool, typer.Option("--past-hold", help="Start although the safety catch holds the cycles.")]


@app.callback(invoke_without_command=True)
def drain(
    context: typer.Context,
    *,
    cap: Cap = None,
    phase: Only = None,
    lanes: Lanes = None,
    time_budget: Budget = None,
    pause: Pause = None,
    reason: Why = None,
    detach: Detach = False,
    past_hold: PastHold = False,
    as_json: Json = False,
) -> None:
    """Expire up to --cap overdue bookings beside the minute's cycle, and publish their events."""
    if context.invoked_subcommand is not None:
        return
    if cap is None or reason is None:
        arguments.refuse(
            "drain: say --cap (bookings it may expire at most) and --reason; `booking-expiration preview` counts them"
        )
    wanted = _limits(cap, lanes, time_budget, pause)
    order = DrainOrder(
        **wanted.given(),
        phase=None if phase is None else arguments.phase(phase),
        reason=arguments.reason(reason),
        actor=frame.actor(),
    )
    given = frame.settings()
    started = frame.run(_start(given, order, past_hold=past_hold))
    if detach or as_json:
        frame.print_json(started) if as_json else typer.echo(
            f"drain {started['workflow_id']} started; booking-expiration drain status"
        )
        return
    typer.echo(f"drain {started['workflow_id']} started; Ctrl-C ends watching or the drain, as you choose")
    _watch(given, started["workflow_id"])


@app.command()
def status(workflow_id: Which = None, *, watch: Watch = False, as_json: Json = False) -> None:
    """Show the drain that runs, or how the last one ended."""
    given, which = frame.settings(), arguments.workflow_id(workflow_id)
    if watch and not as_json:
        _watch(given, frame.run(_to_watch(given, which)))
        return
    told = frame.run(_story(given, which))
    drain_view.print_story(told, as_json=as_json)


@app.command()
def stop(workflow_id: Which = None, *, reason: Reason, as_json: Json = False) -> None:
    """End the drain early and whole: the batches in hand commit and are published, nothing new starts."""
    done = frame.run(_stop(frame.settings(), arguments.workflow_id(workflow_id), arguments.reason(reason)))
    frame.print_json(done) if as_json else typer.echo("the drain ends after the batches in hand; booking-expiration drain status")


@app.command()
def limits(
    workflow_id: Which = None,
    *,
    cap: Cap = None,
    lanes: Lanes = None,
    time_budget: Budget = None,
    pause: Pause = None,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Change the limits of the running drain; what is left out stays. They hold from the next round on."""
    wanted = _limits(cap, lanes, time_budget, pause, reason=arguments.reason(reason), actor=frame.actor())
    if not wanted.given():
        arguments.refuse("drain limits: nothing to change; give --cap, --lanes, --time-budget or --pause")
    now = frame.run(_change(frame.settings(), wanted, arguments.workflow_id(workflow_id)))
    given = now.limits.given()
    frame.print_json({"limits": given}) if as_json else typer.echo(
        "limits from the next round on: " + ", ".join(f"{name} {value:g}" for name, value in given.items())
    )


def _limits(cap: int | None, lanes: int | None, time_budget: str | None, pause: str | None, **who: str) -> DrainLimits:
    """What was typed, refused with exit code 2 where no drain would take it."""
    seconds = None if time_budget is None else arguments.span(time_budget, "--time-budget").total_seconds()
    rest = None if pause is None else 0.0 if pause in ("0", "0s") else arguments.span(pause, "--pause").total_seconds()
    wanted = DrainLimits(cap=cap, lanes=lanes, time_budget=seconds, pause=rest, **who)
    if wrong := drain_limits.refusals(wanted, None):
        arguments.refuse(f"drain: {'; '.join(wrong)}")
    return wanted


def _watch(given: OperatorSettings, workflow_id: str) -> None:
    while (ended := frame.run(drain_view.watch(workflow_id))) is None:
        if drain_view.wants_to_stop():
            frame.run(_stop(given, workflow_id, "Ctrl-C while watching"))
            typer.echo("the drain ends after the batches in hand")
        else:
            typer.echo("the drain goes on: booking-expiration drain status --watch, booking-expiration drain stop --reason …")
            return
    drain_view.print_story(ended, as_json=False)
    if ended.failure:
        raise typer.Exit(1)


async def _start(given: OperatorSettings, order: DrainOrder, *, past_hold: bool) -> dict[str, Any]:
    client, workflow_id = await frame.temporal(), drain_runs.usual_id(given)
    async with frame.database(given) as pool, UnitOfWork(pool) as connection:
        hold = await controls.hold(connection, await server.clock(connection))
    if hold.on and not past_hold:
        raise CommandError(
            "the safety catch holds the cycles: more bookings are due than BOOKING_EXPIRATION_HOLD_ABOVE allows. Look at the "
            "deadlines first (booking-expiration preview --by tenant); to drain all the same add --past-hold"
        )
    if running := await drain_runs.running(client, given):
        raise CommandError(_already(running[0].id))
    if not await pollers.live(client, given.task_queue):
        typer.echo(f"warning: {pollers.none_polls(given.task_queue)}, so the drain waits for one", err=True)
    details = {"limits": drain_limits.of_order(order).given(), "phase": order.phase}
    row = await frame.write_down(given, "start_drain", f"workflow/{workflow_id}", order.reason, details)
    return {
        "workflow_id": workflow_id,
        "run_id": await _started(client, given, order.model_copy(update={"recorded": row})),
        "act": row,
    }


async def _started(client: Client, given: OperatorSettings, order: DrainOrder) -> str | None:
    try:
        handle = await client.start_workflow(
            runs.DRAIN,
            order,
            id=drain_runs.usual_id(given),
            task_queue=given.task_queue,
            memo={WRITTEN_DOWN: order.recorded},
            static_summary=SUMMARY.format(cap=order.cap, lanes=order.lanes),
            static_details=DETAILS,
        )
    except WorkflowAlreadyStartedError:
        raise CommandError(_already(drain_runs.usual_id(given))) from None
    return handle.first_execution_run_id


def _already(workflow_id: str) -> str:
    return f"a drain is running already ({workflow_id}): booking-expiration drain status, drain limits or drain stop"


async def _story(given: OperatorSettings, workflow_id: str | None) -> runs.Story:
    described = await drain_runs.to_look_at(given, workflow_id)
    return await runs.story((await frame.temporal()).get_workflow_handle(described.id), described)


async def _to_watch(given: OperatorSettings, workflow_id: str | None) -> str:
    return (await drain_runs.to_look_at(given, workflow_id)).id


async def _stop(given: OperatorSettings, workflow_id: str | None, reason: str) -> dict[str, Any]:
    handle = await drain_runs.to_act_on(given, workflow_id, "drain stop")
    row = await frame.write_down(given, "stop_drain", f"workflow/{handle.id}", reason, {})
    await handle.signal("stop", StopRequest(reason=reason, actor=frame.actor(), recorded=row))
    return {"workflow_id": handle.id, "act": row}


async def _change(given: OperatorSettings, wanted: DrainLimits, workflow_id: str | None = None) -> DrainProgress:
    """First asked whether it would be taken, so that what is written down is what was done."""
    handle = await drain_runs.to_act_on(given, workflow_id, "drain limits")
    now = await _now(handle)
    if not now.drain_limit:
        raise CommandError("the drain's limits stay as they are: it is just reading how much is due; try again in a few seconds")
    if wrong := drain_limits.change_refusals(wanted, now.drain_limit, now.so_far.expired):
        raise CommandError(f"the drain's limits stay as they are: {'; '.join(wrong)}")
    before = {name: value for name, value in now.limits.given().items() if name in wanted.given()}
    details = {"before": before, "after": wanted.given()}
    row = await frame.write_down(given, "set_drain_limits", f"workflow/{handle.id}", wanted.reason, details)
    try:
        async with asyncio.timeout(CHANGED_WITHIN):
            changed: DrainProgress = await handle.execute_update(
                "set_limits", wanted.model_copy(update={"recorded": row}), result_type=DrainProgress
            )
    except WorkflowUpdateFailedError as error:
        raise CommandError(f"the drain's limits stay as they are: {error.cause}") from None
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        raise CommandError(
            f"no worker has taken the limits within {CHANGED_WITHIN:.0f} s; one may yet: see booking-expiration drain status"
        ) from None
    return changed


async def _now(handle: "WorkflowHandle[Any, Any]") -> DrainProgress:
    try:
        now: DrainProgress = await handle.query("progress", result_type=DrainProgress, rpc_timeout=runs.QUERY_LIMIT)
    except runs.NO_ANSWER as error:
        raise CommandError(f"the drain's limits stay as they are: {runs.unanswered(error)}") from None
    return now
