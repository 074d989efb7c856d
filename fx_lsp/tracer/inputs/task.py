"""The target whose inputs are resolved, and what every step of that needs."""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fx_lsp.model import Failure, TraceRequest
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.inputs.budget import Budget
from fx_lsp.tracer.inputs.evidence.offers import Offer
from fx_lsp.tracer.inputs.plan.values import Context
from fx_lsp.tracer.run.observation import Statements, Stopped
from fx_lsp.tracer.source.provenance import Sources

MIN_SECONDS = 0.2
"""The seconds that a step of the search gets even when the budget is used up."""


@dataclass
class Task:
    """One target whose inputs are looked for within a `budget` of work.

    Its program is followed until `deadline`, by the clock of this process: what it does cannot be counted. `retried`
    tells whether code that needs the values of tensors was tried without them; `stopped` takes the run of a target that
    fails, under its failure. `seen` is what a program that ran in this process calls the target with.
    """

    request: TraceRequest
    module: ModuleType
    sources: Sources
    lines: list[str]
    tree: ast.Module
    statements: Statements
    budget: Budget
    deadline: float
    context: Context
    mode: FakeTensorMode
    stopped: dict[Failure, Stopped]
    seen: tuple[Offer, ...] = ()
    retried: bool = False

    @property
    def seconds(self) -> float:
        """Return what is left of the budget, but never nothing."""
        return max(self.budget.seconds, MIN_SECONDS)

    @property
    def program_seconds(self) -> float:
        """Return the seconds that are left for its program, at least MIN_SECONDS."""
        return max(self.deadline - time.process_time(), MIN_SECONDS)

    def evaluate(self, text: str) -> Any:
        """The value of an expression in the user's module."""
        return eval(text, self.module.__dict__)
