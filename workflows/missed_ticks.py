"""Ticks that did not become a cycle. Temporal has no such metric, and a schedule can stop firing while it looks well (trap 6)."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_MINUTE: Final = timedelta(minutes=1)
LATE: Final = timedelta(seconds=30)
"""How late a cycle may start before its tick counts as missed."""


@dataclass(slots=True)
class MissedTicks:
    """What the server counted as skipped or too late, and beyond that each minute's tick that it passed over in silence.

    Asked again and again; it must see every recent start, of which the server keeps the last ten, so at least every few minutes.
    """

    total: int = 0
    _counted: int = 0
    _base: int = 0
    _silent: int = 0
    _unfired: int = 0
    _next: datetime | None = None

    def look(self, now: datetime, *, counted: int, fired: Collection[datetime], paused: bool) -> int:
        """All missed ticks until `now` (UTC). `counted`: the server's own counters; `fired`: the ticks of recent cycles."""
        if self._next is None or counted < self._counted:  # the first look, or the schedule was made anew
            self._next = now.replace(second=0, microsecond=0) + _MINUTE
            self._base, self._silent, self._unfired = counted, 0, 0
        self._counted = counted
        while self._next <= now - LATE:
            self._unfired += not paused and self._next not in fired
            self._next += _MINUTE
        # A skipped tick is unfired too, and the server has counted it.
        self._silent = max(self._silent, self._unfired - (counted - self._base))
        self.total = counted + self._silent
        return self.total
