"""What a drain accepts: pure checks, a sentence for each limit that is not acceptable (D14)."""

from typing import Final

from activities.drain_messages import DrainLimits, DrainOrder

MAX_LANES: Final = 8
MAX_BATCH: Final = 1000
MAX_TIME_BUDGET: Final = 86_400.0
MAX_PAUSE: Final = 600.0


def of_order(order: DrainOrder) -> DrainLimits:
    """The limits that a drain starts with."""
    return DrainLimits(cap=order.cap, lanes=order.lanes, time_budget=order.time_budget, pause=order.pause)


def refusals(wanted: DrainLimits, drain_limit: int | None, expired: int = 0) -> list[str]:
    """What is wrong with these limits. `drain_limit`: the settings' own, None while not known; `expired`: bookings so far."""
    wrong = []
    if wanted.cap is not None and wanted.cap < max(expired, 1):
        wrong.append(
            f"cap is {wanted.cap}: it must be at least {max(expired, 1)}{', which have expired already' * (expired > 0)}"
        )
    if wanted.cap is not None and drain_limit is not None and wanted.cap > drain_limit:
        wrong.append(f"cap is {wanted.cap}: the worker's settings allow {drain_limit} (BOOKING_EXPIRATION_DRAIN_LIMIT)")
    if wanted.lanes is not None and not 1 <= wanted.lanes <= MAX_LANES:
        wrong.append(f"lanes is {wanted.lanes}: it must be 1 to {MAX_LANES}")
    if wanted.time_budget is not None and not 0 < wanted.time_budget <= MAX_TIME_BUDGET:
        wrong.append(f"time_budget is {wanted.time_budget:g}: it must be above 0 and at most {MAX_TIME_BUDGET:g} seconds")
    if wanted.pause is not None and not 0 <= wanted.pause <= MAX_PAUSE:
        wrong.append(f"pause is {wanted.pause:g}: it must be 0 to {MAX_PAUSE:g} seconds")
    return wrong


def order_refusals(order: DrainOrder, drain_limit: int | None) -> list[str]:
    """The same for the order that a drain is started with."""
    expired = order.so_far.expired if order.so_far else 0
    wrong = refusals(of_order(order), drain_limit, expired)
    if order.cap is None:
        wrong.append('cap is missing: say how many bookings may expire at most, as in {"cap": 5000}')
    if not 1 <= order.batch_size <= MAX_BATCH:
        wrong.append(f"batch_size is {order.batch_size}: it must be 1 to {MAX_BATCH}")
    if order.rounds_per_run < 1:
        wrong.append(f"rounds_per_run is {order.rounds_per_run}: it must be at least 1")
    return wrong


def change_refusals(wanted: DrainLimits, drain_limit: int | None, expired: int) -> list[str]:
    """The same for a change of a running drain's limits."""
    nothing = [] if wanted.given() else ["nothing to change: give cap, lanes, time_budget or pause"]
    return refusals(wanted, drain_limit, expired) + nothing


def sizes(cap_left: int, lanes: int, batch_size: int) -> list[int]:
    """The batches of one round, in rows: full ones, as many as there are lanes, and never more than the cap leaves."""
    left = [cap_left - lane * batch_size for lane in range(lanes)]
    return [min(batch_size, rows) for rows in left if rows > 0]
