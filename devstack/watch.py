"""When a command of the stack has to end: a signal, or the death of whoever started it."""

import os
import signal
from types import FrameType
from typing import Final

from devstack.errors import StackStopped

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Watch:
    """Notices a signal or the death of the parent process; called often, it raises `StackStopped`."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._parent = os.getppid()
        for which in SIGNALS:
            signal.signal(which, self._note)

    def __call__(self) -> None:
        """Raise `StackStopped` if it is time to stop."""
        if self.signal is None and os.getppid() != self._parent:
            self.signal = signal.SIGHUP
        if self.signal is not None:
            raise StackStopped

    def _note(self, which: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or which
