"""The time of a call: when its work must be written down, and how long its machine stays."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

from algoformer.checks import real

RESERVE = 12.0  # seconds to write a checkpoint and leave
TRAVELS = 48 * 2**20  # bytes: a checkpoint above this is not moved to another machine


@dataclass(frozen=True)
class Clock:
    """Work goes on until `deadline` and its files stay until `leave`, both as `time.time` counts; None: for ever."""

    deadline: float | None = None
    leave: float | None = None

    @classmethod
    def of(cls, minutes: float | None, more: float = 0.0) -> Self:
        """A clock of so many minutes from now, on a machine that stays for `more` after them."""
        real("more", more, least=0)
        if minutes is None:
            if more:
                raise ValueError(f"more must be left out without minutes, which it comes after; got {more:g}")
            return cls()
        real("minutes", minutes, above=0)
        now = time.time()
        return cls(now + max(60 * minutes - RESERVE, 0.5 * 60 * minutes), now + 60 * (minutes + more) - RESERVE)

    @property
    def over(self) -> bool:
        """Is there no time for new work?"""
        return self.deadline is not None and time.time() > self.deadline

    def fits(self, seconds: float) -> bool:
        """Can work of so many seconds end on this machine?"""
        return self.leave is None or time.time() + seconds < self.leave
