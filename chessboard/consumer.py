"""Reading the topic: a batch is committed in the database first, its offsets after (D17).

What was read twice changes nothing, so after any trouble the answer is the same: read again from what is known to be done.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from chessboard import moments
from chessboard.batch import apply_batch
from chessboard.membership import Group, join, member
from chessboard.record import Record
from db.errors import DatabaseError
from db.unit_of_work import Pool

GRACE: Final = 3.0
"""Seconds that the batch in hand gets after a stop was asked for, before it is rolled back."""

COMMIT_TIMEOUT: Final = 2.0
POLL_MS: Final = 500
RETRY_EVERY: Final = 1.0
"""Seconds between two attempts at a database or a broker that is away."""

Fetched: TypeAlias = dict[TopicPartition, list[Record]]


class Consumer(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Frees property objects as their bookings' expiries come in, until it is cancelled."""

    def __init__(self, pool: Pool, group: Group, batch_size: int) -> None:
        self._pool = pool
        self._group = group
        self._batch_size = batch_size
        self._member: AIOKafkaConsumer | None = None
        self._stop = asyncio.Event()
        self._busy = asyncio.Lock()
        self._one_by_one = False
        self._away_since: float | None = None
        self._next: dict[TopicPartition, int] = {}
        self._to_commit: dict[TopicPartition, int] = {}
        self._trouble = "has not joined the group yet"

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop`: the batch in hand is finished, its offsets are committed, the group is left."""
        self._stop = stop
        while not stop.is_set():
            try:
                async with member(self._group) as joining:
                    await self._until_stopped(self._consume(joining))
            except UnicodeDecodeError:
                # aiokafka lost what it had read before this record, so a new member starts from the committed offsets.
                self._one_by_one = True
            except (KafkaError, OSError, TimeoutError) as error:
                self._trouble = f"{type(error).__name__}: {error}"
                moments.kafka_unavailable(self._trouble)
                await self._wait(RETRY_EVERY)

    async def check(self) -> str | None:
        """What keeps us from reading, or None."""
        if self._member is None:
            return self._trouble
        try:
            topics = await self._member.topics()
        except KafkaError as error:
            return str(error)
        if self._group.topic not in topics:
            return f"topic {self._group.topic} does not exist, or may not be read: create it, or grant Read and Describe on it"
        return None

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Interrupt `work` at a stop, but not in the middle of a batch, unless that takes longer than the grace."""
        working, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE), self._busy:
                working.cancel()
        working.cancel()
        await asyncio.wait({working})
        if not working.cancelled():
            working.result()

    async def _consume(self, joining: AIOKafkaConsumer) -> None:
        await join(joining, self._group, self)
        self._member = joining
        try:
            while not self._stop.is_set():  # a cancel alone could get lost: a transaction that cannot begin hides it
                fetched = await self._poll(joining)
                async with self._busy:
                    await self._apply(joining, fetched)
                    await self._commit(joining)
        finally:
            self._member = None

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _poll(self, joined: AIOKafkaConsumer) -> Fetched:
        if self._one_by_one:
            return await self._poll_one_by_one(joined)
        fetched = await joined.getmany(timeout_ms=POLL_MS, max_records=self._batch_size)
        return {partition: [_record(each) for each in records] for partition, records in fetched.items()}

    async def _poll_one_by_one(self, joined: AIOKafkaConsumer) -> Fetched:
        """Find the record that cannot be read: with one record per call, its partition's position is its offset.

        aiokafka can then read no later record of the same Kafka batch either. A batch has one producer, and the worker's cannot
        write such records: whatever else is in the batch is not the worker's.
        """
        fetched: Fetched = {}
        for partition in joined.assignment():
            try:
                read = await joined.getmany(partition, max_records=1)
                fetched |= {source: [_record(each) for each in records] for source, records in read.items()}
            except UnicodeDecodeError as error:
                offset = await joined.position(partition)
                fetched[partition] = [Record(partition.topic, partition.partition, offset, 0, None, None, (), str(error))]
                joined.seek(partition, offset + 1)
        if fetched:
            self._one_by_one = any(record.unreadable for [record] in fetched.values())
        else:
            await asyncio.sleep(0.02)
        return fetched

    async def _apply(self, joined: AIOKafkaConsumer, fetched: Fetched) -> None:
        """One transaction per partition. The first that the database cannot take ends the round, and nothing is skipped."""
        for index, (partition, records) in enumerate(fetched.items()):
            self._notice_gap(partition, records[0].offset)
            try:
                counts = await apply_batch(self._pool, records, self._group.topic)
            except DatabaseError as error:
                await self._pause(joined, list(fetched.items())[index:], str(error))
                return
            self._next[partition] = self._to_commit[partition] = records[-1].offset + 1
            moments.batch_applied(partition.partition, records[-1].offset, counts, self._lag(joined, partition))
            self._back()

    async def _pause(self, joined: AIOKafkaConsumer, undone: Iterable[tuple[TopicPartition, list[Record]]], reason: str) -> None:
        """Wait for the database without leaving the group: heartbeats go on, nothing is fetched, the place is kept."""
        if self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
            moments.database_unavailable(reason)
        assigned = joined.assignment()
        joined.pause(*assigned)
        for partition, records in undone:
            if partition in assigned:
                joined.seek(partition, records[0].offset)
        await self._wait(RETRY_EVERY)
        joined.resume(*joined.paused())

    def _back(self) -> None:
        if self._away_since is not None:
            moments.database_back(asyncio.get_running_loop().time() - self._away_since)
            self._away_since = None

    async def _commit(self, joined: AIOKafkaConsumer) -> None:
        """Tell the group how far the database is; what cannot be told now goes with the next batch."""
        assigned = joined.assignment()
        self._to_commit = {partition: offset for partition, offset in self._to_commit.items() if partition in assigned}
        if not self._to_commit:
            return
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT):
                await joined.commit(dict(self._to_commit))
        except (CommitFailedError, IllegalStateError) as error:
            moments.offsets_not_committed(str(error))  # the partitions have moved on, and their new owner reads again
        except (KafkaError, TimeoutError) as error:
            moments.offsets_not_committed(str(error) or "no answer in time")
            return
        self._to_commit.clear()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Let the batch in hand end first: its offsets are still ours to commit, and nobody else reads it again."""
        async with self._busy:
            if self._member is not None:
                await self._commit(self._member)
            self._next.clear()
            self._to_commit.clear()
        if revoked:
            moments.partitions_revoked(partition.partition for partition in revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Reading starts at the committed offsets."""
        moments.partitions_assigned(partition.partition for partition in assigned)

    def _notice_gap(self, partition: TopicPartition, found: int) -> None:
        expected = self._next.get(partition, found)
        if found > expected:
            moments.records_missing(partition.partition, expected, found)

    def _lag(self, joined: AIOKafkaConsumer, partition: TopicPartition) -> int | None:
        """Records that Kafka had at the last fetch and the database has not."""
        highest: int | None = joined.highwater(partition) if partition in joined.assignment() else None
        return None if highest is None else max(highest - self._next[partition], 0)


def _record(read: ConsumerRecord) -> Record:
    return Record(read.topic, read.partition, read.offset, read.timestamp, read.key, read.value, tuple(read.headers))
