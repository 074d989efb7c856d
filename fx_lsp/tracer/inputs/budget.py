"""Count the work of a search for inputs: what it finds depends on no clock, and so on no other program."""

from __future__ import annotations

from dataclasses import dataclass

CALLS_PER_SECOND = 750
"""How many torch calls on fake tensors take a second on an idle machine: the unit in which work is shown."""
CALLS_PER_RUN, CALLS_PER_EXPLORATION = 4, 8
"""The work of one run besides its calls, and of one on symbols with the sizes that are solved for afterwards."""
CALLS_PER_PARAMETER = 2
"""How many torch calls make a parameter of a module."""
QUESTIONS_PER_CALL = 6
"""How many questions about symbols take as long as a torch call."""


@dataclass
class Work:
    """The work that was done for a target so far, in `seconds` of an idle machine."""

    seconds: float = 0.0

    def spend_run(self, calls: int) -> None:
        """Count a run that made so many torch calls."""
        self.seconds += (CALLS_PER_RUN + max(calls, 0)) / CALLS_PER_SECOND

    def spend_exploration(self, questions: int) -> None:
        """Count that a run was one on symbols, of which so many questions were asked."""
        self.seconds += (CALLS_PER_EXPLORATION + questions / QUESTIONS_PER_CALL) / CALLS_PER_SECOND


@dataclass(frozen=True)
class Budget:
    """The work that may be done until there is as much of it as `until`."""

    work: Work
    until: float

    @property
    def seconds(self) -> float:
        """Return how much is left; less than nothing if more was done."""
        return self.until - self.work.seconds

    @property
    def is_spent(self) -> bool:
        """Return True if nothing is left."""
        return self.seconds <= 0

    def part(self, seconds: float) -> Budget:
        """Return a budget of so many seconds from now on."""
        return Budget(self.work, self.work.seconds + seconds)
