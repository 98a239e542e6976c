"""The safety catch against a mistaken mass update of deadlines: too many bookings due at once, and nothing expires."""


def allowed(due: int, hold_above: int, allowance: int) -> int | None:
    """How many bookings may expire now, or None when the catch does not speak: it is off (0), or no more are due than it allows.

    `allowance`: what an operator lets through (`release-hold`), in bookings.
    """
    return allowance if 0 < hold_above < due else None
