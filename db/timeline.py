"""The deal timeline as its readers see it: the cards of a deal, in order (P3, D8).

A card is written with the transition, in the same transaction (`db/bookings.py::record`), so there is exactly one per expiry.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from db.unit_of_work import Connection

TEXT_KEYS: Final = {
    "ReserveExpired": "deal.timeline.reserve_expired",
    "BookingExpired": "deal.timeline.booking_expired",
}
"""What a translation file is asked for, by the kind of the card. These keys are a contract with the screens that show it."""


@dataclass(frozen=True, slots=True)
class Card:
    """One entry. `kind`: the booking's status since then; `at`: when the timer was found to be over (AsOf), UTC.

    `deadline`: when the timer ran out. `booking_version`: the booking's after the transition; with `booking_id` the card's name.
    """

    deal_id: UUID
    booking_id: UUID
    booking_version: int
    kind: str
    at: datetime
    deadline: datetime

    @property
    def text_key(self) -> str:
        """The key of the text that a user reads."""
        return TEXT_KEYS[self.kind]


# Two bookings of a deal that expire in one batch have the same moment: deadline, then booking decide, so that the order is always
# the same. A terminal booking never changes (INV-BKG-8), so its deadline is still the one that ran out.
_CARDS: Final = """
    SELECT card.deal_id, card.booking_id, card.booking_version, card.kind, card.at,
           CASE card.kind WHEN 'ReserveExpired' THEN booking.reserve_expires_at ELSE booking.booking_expires_at END AS deadline
      FROM crm.deal_timeline_cards AS card JOIN crm.bookings AS booking ON booking.id = card.booking_id
     WHERE card.deal_id = $1
     ORDER BY card.at, deadline, card.booking_id, card.booking_version
     LIMIT $2"""


async def cards(connection: Connection, deal_id: UUID, limit: int = 200) -> list[Card]:
    """The cards of a deal, oldest first, up to `limit` rows; an empty list where nothing expired. For the role `crm_app`."""
    return [Card(**row) for row in await connection.fetch(_CARDS, deal_id, limit)]
