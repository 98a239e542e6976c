"""What travels between the command, the timer that ends a pause, and its one activity; names are a wire contract (layout rule 8).

Add a field only with a default (trap 21).
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class ResumeOrder:
    """Resume the schedule after so many seconds, unless `mark` is no longer in its note by then.

    `until` (UTC) is that moment for people: the seconds count, so that no clock that is off can shorten a pause.
    """

    schedule_id: str
    mark: str
    seconds: float
    until: datetime
    actor: str
    reason: str


@dataclass(frozen=True)
class ResumeResult:
    """Whether the timer resumed the schedule; `because` says why, or why not."""

    resumed: bool
    because: str
