"""What a batch of records does to the sales grid: decided here, written by `applying`."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from chessboard.record import Expiry, Parsed, Reason, Refusal


class Effect(StrEnum):
    """What an expiry did; the first two words stand in the database."""

    FREED = "Freed"
    LATE = "Late"
    DUPLICATE = "Duplicate"


Verdict: TypeAlias = Effect | Refusal


def decide(parsed: Sequence[Parsed], held: Mapping[UUID, UUID | None], processed: Mapping[UUID, UUID]) -> list[Verdict]:
    """One verdict per record, in their order (D17).

    `held` says which booking holds an object, None for a free one; an object that is not in it does not exist. `processed` says
    which booking an event was about. An object is freed only if that booking still holds it: a late event changes nothing.
    """
    holders, seen = dict(held), dict(processed)
    return [each if isinstance(each, Refusal) else _one(each, holders, seen) for each in parsed]


def _one(expiry: Expiry, holders: dict[UUID, UUID | None], seen: dict[UUID, UUID]) -> Verdict:
    if (about := seen.get(expiry.event_id)) is not None:
        if about == expiry.booking_id:
            return Effect.DUPLICATE
        return Refusal(Reason.REUSED_EVENT_ID, f"event {expiry.event_id} was about booking {about} before")
    if expiry.object_id not in holders:
        return Refusal(Reason.UNKNOWN_OBJECT, f"there is no property object {expiry.object_id}")
    seen[expiry.event_id] = expiry.booking_id
    if holders[expiry.object_id] != expiry.booking_id:
        return Effect.LATE
    holders[expiry.object_id] = None
    return Effect.FREED
