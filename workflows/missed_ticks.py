"""Ticks that did not become a cycle. Temporal has no such metric, and a schedule can stop firing while it looks well (trap 6)."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_MINUTE: Final = timedelta(minutes=1)
LATE: Final = timedelta(seconds=30)
"""How late a cycle may start before its tick counts as missed."""


KEPT: Final = 10
"""How many recent starts the server keeps: about what lies before the oldest of them nothing can be said."""


@dataclass(slots=True)
class MissedTicks:
    """Since the first look: what the server counted as skipped or too late, and each minute's tick that it passed over silently.

    It starts from 0 with the process, as a counter must: the server's own figures go on over a restart, and would make it jump.
    """

    total: int = 0
    _before: int = 0
    _counted: int = 0
    _base: int = 0
    _silent: int = 0
    _unfired: int = 0
    _next: datetime | None = None
    _paused_at: datetime | None = None

    def look(self, now: datetime, *, counted: int, fired: Collection[datetime], paused: bool) -> int:
        """All missed ticks until `now` (UTC). `counted`: the server's own counters; `fired`: the ticks of recent cycles."""
        if self._next is None or counted < self._counted:  # the first look, or the schedule was made anew
            self._next = now.replace(second=0, microsecond=0) + _MINUTE
            self._before, self._base, self._silent, self._unfired = self.total, counted, 0, 0
        self._counted = counted
        if paused:
            self._paused_at = now
        if len(fired) >= KEPT:
            self._next = max(self._next, min(fired))
        while self._next <= now - LATE:
            excused = self._paused_at is not None and self._next <= self._paused_at
            self._unfired += not excused and self._next not in fired
            self._next += _MINUTE
        # A skipped tick is unfired too, and the server has counted it.
        self._silent = max(self._silent, self._unfired - (counted - self._base))
        self.total = self._before + (counted - self._base) + self._silent
        return self.total
