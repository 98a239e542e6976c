"""What arrives on the topic, as any consumer gets it: every record, and whether a second copy has the same bytes (D11)."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from aiokafka import AIOKafkaConsumer


class Arrived(NamedTuple):
    """One record: whose it is, and the MD5 of its value."""

    event_id: UUID
    booking_id: UUID
    digest: str


@dataclass(slots=True)
class Topic:
    """All that came so far; `copies` counts the records beyond one per event."""

    name: str
    seen: dict[UUID, Arrived] = field(default_factory=dict)
    copies: int = 0
    _new: list[Arrived] = field(default_factory=list)

    def take_new(self) -> list[Arrived]:
        """What came since the last call, each different record once."""
        new, self._new = self._new, []
        return new

    def arrived(self, record: Arrived) -> None:
        """Note a record."""
        if self.seen.get(record.event_id) == record:
            self.copies += 1
            return
        self.seen[record.event_id] = record
        self._new.append(record)

    async def follow(self, arguments: dict[str, Any]) -> None:
        """Read the topic from its beginning until cancelled. Raises `KafkaError` when the broker is not there at first."""
        consumer = AIOKafkaConsumer(
            self.name, **arguments, group_id=None, auto_offset_reset="earliest", metadata_max_age_ms=5000, retry_backoff_ms=500
        )
        try:
            await consumer.start()
            while True:
                received: dict[Any, Iterable[Any]] = await consumer.getmany(timeout_ms=200)
                for record in (each for records in received.values() for each in records):
                    headers = dict(record.headers)
                    digest = hashlib.md5(record.value, usedforsecurity=False).hexdigest()
                    self.arrived(Arrived(UUID(headers["ce_id"].decode()), UUID(record.key.decode()), digest))
        finally:
            await consumer.stop()
