"""What an attack counts: cases tried, and faults found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

SHOWN = 10  # faults that are kept in words


@dataclass
class Tally:
    """Cases and faults of one attack; an attack ends by itself when it has its cases, or when `over` says so."""

    deadline: float  # of time.monotonic()
    cases: int = 0
    faults: int = 0
    examples: list[str] = field(default_factory=list)

    def case(self, count: int = 1) -> None:
        """So many more cases were tried."""
        self.cases += count

    def fault(self, what: str) -> None:
        """Something went wrong: say how to see it again."""
        self.faults += 1
        if len(self.examples) < SHOWN:
            self.examples.append(what)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline


Attack = Callable[[Tally, int, int], None]  # what to count in, how many cases are wanted, seed
