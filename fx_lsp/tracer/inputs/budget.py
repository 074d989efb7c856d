"""Count the work of a search for inputs. The results depend on no clock, and so on no other program."""

from __future__ import annotations

from dataclasses import dataclass

CALLS_PER_SECOND = 750
"""The number of torch calls on fake tensors per second on an idle machine: the unit of work."""
CALLS_PER_RUN, CALLS_PER_EXPLORATION = 4, 8
"""The work of one run besides its calls, and of one with symbolic sizes that are solved for afterwards."""
CALLS_PER_PARAMETER = 2
"""The number of torch calls that creating a parameter of a module costs."""
QUESTIONS_PER_CALL = 10
"""The number of questions about symbols that cost as much as one torch call."""


@dataclass
class Work:
    """Hold the work that was done for a target so far, in `seconds` of an idle machine."""

    seconds: float = 0.0

    def spend_run(self, calls: int) -> None:
        """Count a run that made `calls` torch calls."""
        self.seconds += _of_run(calls)

    def spend_exploration(self, questions: int) -> None:
        """Count a symbolic run with that many questions about symbols."""
        self.seconds += (CALLS_PER_EXPLORATION + questions / QUESTIONS_PER_CALL) / CALLS_PER_SECOND


def _of_run(calls: int) -> float:
    return (CALLS_PER_RUN + max(calls, 0)) / CALLS_PER_SECOND


@dataclass(frozen=True)
class Budget:
    """Hold a limit on work: up to `until`, in seconds of `work`."""

    work: Work
    until: float

    @property
    def seconds(self) -> float:
        """Return the remaining seconds; negative if exceeded."""
        return self.until - self.work.seconds

    @property
    def is_spent(self) -> bool:
        """Return True if no work is left."""
        return self.seconds <= 0

    def part(self, seconds: float) -> Budget:
        """Return a budget of that many seconds from now on."""
        return Budget(self.work, self.work.seconds + seconds)

    def beside_run(self, calls: int) -> Budget:
        """Return the budget without the cost of a run that made `calls` torch calls, and that counts for nothing."""
        return Budget(self.work, self.until + _of_run(calls))
