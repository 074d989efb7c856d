"""What runs next, and what loses its slot to something that a person waits for."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from waiting import until

from fx_lsp.tracing.scheduler import Job, Priority, Scheduler, Urgency


class Jobs:
    """Jobs that run until they are let go; `events` tells how they began and ended."""

    def __init__(self, preempt_seconds: float = 0.0) -> None:
        self.events: list[str] = []
        self.priority: dict[str, Priority | None] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.scheduler = Scheduler(2, self._urgency, lambda: None, preempt_seconds)

    def add(self, key: str, priority: Priority) -> None:
        self.priority[key] = priority
        self.gates.setdefault(key, asyncio.Event())
        self.scheduler.add(Job(key, "a lane", key, lambda: self._run(key)))

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def told(self) -> list[str]:
        """Return the events since the last call."""
        events, self.events = self.events, []
        return events

    def _urgency(self, key: str) -> Urgency | None:
        priority = self.priority[key]
        return None if priority is None else Urgency(priority)

    async def _run(self, key: str) -> None:
        self.events.append(f"{key} begins")
        try:
            await self.gates[key].wait()
            self.events.append(f"{key} is answered")
        except asyncio.CancelledError:
            self.events.append(f"{key} is cancelled")
            raise


@pytest_asyncio.fixture
async def jobs() -> AsyncIterator[Jobs]:
    it = Jobs()
    yield it
    await it.scheduler.close()


async def test_the_cursor_gets_the_slot_of_the_least_urgent_job_nobody_looks_at(jobs: Jobs) -> None:
    jobs.add("endless", Priority.ELSEWHERE)
    jobs.add("endless too", Priority.FOCUSED_FILE)
    await jobs.settle()
    assert jobs.told() == ["endless begins", "endless too begins"]
    jobs.add("at the cursor", Priority.AT_CURSOR)
    await jobs.settle()
    assert jobs.told() == ["endless is cancelled", "at the cursor begins"]
    jobs.gates["at the cursor"].set()
    await jobs.settle()
    assert jobs.told() == ["at the cursor is answered", "endless begins"]


async def test_a_job_that_lost_its_slot_runs_to_its_end_later(jobs: Jobs) -> None:
    for key in ("one", "two"):
        jobs.add(key, Priority.FOCUSED_FILE)
    await jobs.settle()
    for key in ("first", "second", "third"):
        jobs.add(key, Priority.AT_CURSOR)
    await jobs.settle()
    assert {"one is cancelled", "two is cancelled"} <= {*jobs.told()}
    for gate in jobs.gates.values():
        gate.set()
    await jobs.settle()
    assert {f"{key} is answered" for key in ("one", "two", "first", "second", "third")} <= {*jobs.told()}


async def test_the_most_urgent_job_nobody_looks_at_is_left_alone_by_one_that_is(jobs: Jobs) -> None:
    jobs.add("slow", Priority.FOCUSED_FILE)
    jobs.add("elsewhere", Priority.ELSEWHERE)
    await jobs.settle()
    for edit in range(5):
        jobs.add(f"edit {edit}", Priority.AT_CURSOR)
        await jobs.settle()
        jobs.gates[f"edit {edit}"].set()
        await jobs.settle()
    assert "slow is cancelled" not in jobs.told()


async def test_who_waits_for_an_answer_keeps_the_slot(jobs: Jobs) -> None:
    jobs.add("a view", Priority.REQUESTED)
    jobs.add("at the cursor", Priority.AT_CURSOR)
    jobs.add("another view", Priority.REQUESTED)
    await jobs.settle()
    assert jobs.told() == ["a view begins", "at the cursor begins"]
    jobs.priority["at the cursor"] = Priority.FOCUSED_FILE  # the cursor leaves it
    jobs.scheduler.refresh()
    await jobs.settle()
    assert jobs.told() == ["at the cursor is cancelled", "another view begins"]


async def test_background_jobs_do_not_take_slots_from_each_other(jobs: Jobs) -> None:
    jobs.add("variant", Priority.EXTRA)
    jobs.add("another variant", Priority.EXTRA)
    jobs.add("in the focused file", Priority.FOCUSED_FILE)
    await jobs.settle()
    assert jobs.told() == ["variant begins", "another variant begins"]


async def test_a_job_that_has_just_begun_has_a_moment() -> None:
    jobs = Jobs(preempt_seconds=3600)
    for key in ("one", "two"):
        jobs.add(key, Priority.ELSEWHERE)
    jobs.add("at the cursor", Priority.AT_CURSOR)
    await jobs.settle()
    assert jobs.told() == ["one begins", "two begins"]
    jobs.gates["two"].set()
    await jobs.settle()
    assert jobs.told() == ["two is answered", "at the cursor begins"]
    await jobs.scheduler.close()


async def test_its_slot_is_taken_once_the_moment_is_over() -> None:
    jobs = Jobs(preempt_seconds=0.01)
    for key in ("one", "two"):
        jobs.add(key, Priority.ELSEWHERE)
    jobs.add("at the cursor", Priority.AT_CURSOR)
    await until(lambda: "at the cursor begins" in jobs.events)
    assert jobs.told()[2:] == ["two is cancelled", "at the cursor begins"]
    await jobs.scheduler.close()
