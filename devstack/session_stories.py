"""The four stories of the recorded session (issue 4): each does to the stack what happens at night, and types what helps."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from devstack.errors import StackError
from devstack.session_stage import Stage
from devstack.session_terminal import Key, Terminal

OUTAGE: Final = 1_420
LATE: Final = timedelta(minutes=40)
_DUE: Final = "SELECT count(*) FROM crm.bookings WHERE expired_at IS NULL AND id = ANY($1)"
_PARKED: Final = "SELECT min(id) FROM crm.outbox WHERE parked_at IS NOT NULL"
_WAITING: Final = "SELECT min(id) FROM crm.outbox WHERE published_at IS NULL AND parked_at IS NULL AND skipped_at IS NULL"
_SMALL: Final = 300
"""Bytes: less than any of our events has, with its headers."""

_NORMAL: Final = 1_048_588


@dataclass(slots=True)
class Stories:
    """What was shown, block by block, under the names that the document has for them."""

    stage: Stage
    terminal: Terminal
    shown: dict[str, str] = field(default_factory=dict)

    async def play(self) -> None:
        """All four, one after the other. Raises `StackError` when one does not end as it should."""
        await self.stage.start_worker()
        await self.outage()
        await self.poison()
        await self.kafka_down()
        await self.redeploy()

    async def outage(self) -> None:
        """Outage → backlog → preview → drain → done."""
        stage = self.stage
        await stage.cycle()
        await stage.stop_worker()
        late = await stage.book(OUTAGE, over=LATE)
        late += await stage.book(OUTAGE // 4, "Booked", over=LATE)
        await stage.nobody_polls()
        await self._show("outage-look", "booking-expiration status")
        await self._show("outage-preview", "booking-expiration preview")
        await stage.start_worker()
        start = (
            'booking-expiration drain --cap 2000 --pause 10s --time-budget 10m --reason "INC-2041: worker down 02:10 to 02:50"'
        )
        keys = [Key(r"[1-9]\d*/\d+ .*s left", "\x03"), Key(r"\[y/N\]", "n\n")]
        await self._show("outage-drain", start, keys=keys)
        await self._show(
            "outage-limits",
            'booking-expiration drain limits --lanes 4 --pause 0s --reason "INC-2041: the database copes well"',
            "booking-expiration drain status --watch",
        )
        if left := await stage.number(_DUE, late):
            raise StackError(f"{left} bookings are still due after the drain")
        await stage.cycle_over()
        await self._show("outage-done", "booking-expiration status", "booking-expiration history --operator --limit 2")

    async def poison(self) -> None:
        """Poison → explain → repaired → expires."""
        stage = self.stage
        await stage.quiet()
        refused = (await stage.book(3, over=timedelta(minutes=3)))[0]
        await stage.freeze_deal(refused)
        await stage.cycle()
        await self._show("poison-seen", "booking-expiration status", "booking-expiration preview")
        await self._show("poison-explain", f"booking-expiration explain {refused}")
        await stage.unfreeze_deal()
        await self._trigger("poison-repaired", "INC-2042: the rule is repaired", f"booking-expiration explain {refused}")
        if await stage.number(_DUE, [refused]):
            raise StackError("the repaired booking did not expire")

    async def kafka_down(self) -> None:
        """Kafka down → outbox list → requeue; what waits goes out by itself, what is parked must be requeued."""
        stage = self.stage
        await stage.quiet()
        await stage.stop_kafka()
        await stage.book(2, over=timedelta(minutes=1))
        await stage.cycle()
        await self._show("kafka-down", "booking-expiration outbox list")
        waiting = await stage.number(_WAITING)
        await self._show(
            "kafka-waits", f'booking-expiration outbox requeue {waiting} --reason "INC-2043: Kafka was down"', code=1
        )
        await stage.start_kafka()
        await self._trigger("kafka-back", "INC-2043: Kafka is back", "booking-expiration outbox list")
        await self._parked()

    async def _parked(self) -> None:
        stage = self.stage
        await stage.limit_records(_SMALL)
        await stage.book(2, over=timedelta(minutes=1))
        await stage.cycle()
        await self._show("parked-list", "booking-expiration outbox list --parked")
        record = await stage.number(_PARKED)
        await self._show("parked-show", f"booking-expiration outbox show {record}")
        await stage.limit_records(_NORMAL)
        await self._show(
            "parked-requeue",
            'booking-expiration outbox requeue --parked --limit 10 --reason "INC-2044: the limit of the topic is right again"',
        )
        await self._trigger("parked-done", "INC-2044: send them now", "booking-expiration outbox list")
        if await stage.number(_WAITING) or await stage.number(_PARKED):
            raise StackError("events are left in the outbox")

    async def redeploy(self) -> None:
        """Pause → redeploy → still paused → resumed."""
        stage = self.stage
        await stage.quiet()
        pause = 'booking-expiration schedule pause --reason "CHG-77: tenants are moved to another database"'
        await self._show("pause", pause)
        await stage.stop_worker()
        await stage.start_worker()
        await self._show(
            "still-paused", "booking-expiration schedule apply", "booking-expiration schedule show", "booking-expiration status"
        )
        resume = 'booking-expiration schedule resume --reason "CHG-77: done"'
        await self._show("resumed", resume, "booking-expiration schedule show", "booking-expiration history --operator --limit 2")

    async def _show(self, block: str, *commands: str, keys: list[Key] | None = None, code: int = 0) -> None:
        shown = [await self.terminal.run(command, keys=keys or [], code=code) for command in commands]
        self.shown[block] = "\n\n".join(shown)

    async def _trigger(self, block: str, reason: str, *commands: str) -> None:
        """Type the trigger, and when its cycle is over the rest."""
        await self.stage.quiet()
        first = await self.terminal.run(f'booking-expiration schedule trigger --reason "{reason}"')
        await self.stage.cycle_over()
        await self._show(block, *commands)
        self.shown[block] = f"{first}\n\n{self.shown[block]}"
