"""`doctor`: Temporal. The namespace, the schedule against the code, who works, and what cycles can be found by."""

import json
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from temporalio.api.schedule.v1 import Schedule
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import RPCError

from activities import schedule_state
from activities.schedule_note import moment
from exits import CannotStartError
from operators import pollers, schedule_view, sources
from operators.checks.finding import Finding, NotLookedAtError, State
from operators.checks.places import Places
from settings import ScheduleSettings
from workflows import schedule, search_attributes

APPLY: Final = "booking-expiration schedule apply"


async def connection(places: Places) -> Finding:
    """Whether Temporal answers and has our namespace."""
    try:
        client = await places.client.there()
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except (CannotStartError, RuntimeError, RPCError, TimeoutError) as error:
        return Finding(
            "Temporal", State.FAIL, str(error) or "no answer", "see whether the server is up, and the TEMPORAL_* variables"
        )
    return Finding("Temporal", State.OK, f"connected, namespace {client.namespace}")


async def schedule_code(places: Places) -> Finding:
    """Whether the server's schedule is the one that this program would make (D1)."""
    client, given = await places.client.needed(), _given(places)
    described = await schedule_state.describe(client, given.schedule_id)
    if described is None:
        return Finding("schedule", State.FAIL, f"there is none called {given.schedule_id}: no cycle starts", APPLY)
    ours = await schedule.as_proto(client, schedule.ScheduleSettings(given.schedule_id, given.task_queue, given.batch_size))
    if not (parts := schedule.differences(described.schedule, ours)):
        return Finding("schedule", State.OK, "as this program makes it: every minute (UTC), no overlap")
    theirs = _values(described.schedule)
    _take_values(ours, described.schedule)
    if not schedule.differences(described.schedule, ours):
        here = {"batch size": given.batch_size, "task queue": given.task_queue}
        what = "; ".join(
            f"{name} {theirs[name]} there, {here[name]} by the settings here" for name in here if theirs[name] != here[name]
        )
        todo = f"give the workers' values here too; or, if those here are the right ones: {APPLY}"
        return Finding("schedule", State.WARN, what or "its argument is not as this program writes it", todo)
    return Finding(
        "schedule", State.FAIL, f"not as this program makes it: {', '.join(parts)}", f"if this program is the newest: {APPLY}"
    )


def _values(found: Schedule) -> dict[str, Any]:
    start = found.action.start_workflow
    data = [json.loads(payload.data) for payload in start.input.payloads if payload.metadata.get("encoding") == b"json/plain"]
    size = data[0].get("batch_size") if data and isinstance(data[0], dict) else None
    return {"batch size": size, "task queue": start.task_queue.name}


def _take_values(ours: Schedule, theirs: Schedule) -> None:
    """What the settings decide, as it is there: what still differs then is the program's."""
    ours.action.start_workflow.input.CopyFrom(theirs.action.start_workflow.input)
    ours.action.start_workflow.task_queue.CopyFrom(theirs.action.start_workflow.task_queue)


async def schedule_fires(places: Places) -> Finding:
    """Whether anything keeps the schedule from firing."""
    client, given = await places.client.needed(), _given(places)
    try:
        shown = await schedule_view.of_server(client, given.schedule_id)
    except schedule_state.NoScheduleError as error:
        raise NotLookedAtError(f"there is no schedule {given.schedule_id}") from error
    state, info = shown.described.schedule.state, shown.described.info
    if shown.pause:
        what = f"paused by {shown.pause.by}: {shown.pause.reason}"
        if shown.pause.until:
            what += f"; until {moment(shown.pause.until)}" + ("" if shown.timer_runs else ", but its timer is gone")
        return Finding(
            "schedule fires", State.WARN, what, "when the reason is over: booking-expiration schedule resume --reason …"
        )
    if sources.used_up(state):
        return Finding("schedule fires", State.FAIL, sources.USED_UP, sources.renew(given.schedule_id))
    nexts = MessageToDict(info).get("futureActionTimes", [])
    if not nexts:
        return Finding("schedule fires", State.FAIL, "the server plans no next run", APPLY)
    return Finding("schedule fires", State.OK, f"next run {nexts[0]}")


async def workers(places: Places) -> Finding:
    """Whether somebody does what the schedule starts."""
    client, given = await places.client.needed(), _given(places)
    live = [poller for poller in await pollers.of(client, given.task_queue) if poller.live]
    for kind in pollers.KINDS:
        if not any(poller.kind == kind for poller in live):
            what = f"nobody polls the task queue {given.task_queue} for {kind} work"
            return Finding("workers", State.FAIL, what, "start a worker: runbooks/booking-expiration.md, No successful cycle")
    names = sorted({poller.identity for poller in live})
    return Finding("workers", State.OK, f"{len(names)} at work on task queue {given.task_queue}: {', '.join(names)}")


async def attributes(places: Places) -> Finding:
    """Whether cycles can be filtered by what came of them (D28)."""
    missing = await search_attributes.missing(await places.client.needed())
    if not missing:
        return Finding("search attributes", State.OK, f"all {len(search_attributes.ALL)} registered")
    commands = "; ".join(f"temporal operator search-attribute create --name {key.name} --type {_type(key)}" for key in missing)
    what = f"missing, or of another type: {', '.join(key.name for key in missing)}"
    return Finding("search attributes", State.WARN, what, f"{commands}; then restart the workers")


def _type(key: Any) -> str:
    return str(key.indexed_value_type.name).title()


def _given(places: Places) -> ScheduleSettings:
    if places.schedule.value is None:
        raise NotLookedAtError("the settings are wrong")
    return places.schedule.value
