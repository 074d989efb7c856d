"""Hold the target whose inputs are resolved, and the common data of every step."""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fx_lsp.model import Failure, TraceRequest
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.inputs.budget import Budget
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.inputs.plan.values import Context
from fx_lsp.tracer.run.observation import Statements, Stopped
from fx_lsp.tracer.source.provenance import Sources

MIN_SECONDS = 0.2
"""The seconds that a step of the search gets even after the budget is spent."""


@dataclass
class LoadedRequest:
    """Hold a request and the loaded module of its target; `tree` is the text, and `sources` its expressions."""

    request: TraceRequest
    module: ModuleType
    sources: Sources
    tree: ast.Module
    mode: FakeTensorMode


@dataclass
class Task(LoadedRequest):
    """Hold one target whose inputs are searched within a `budget` of work.

    Its program is followed until `deadline`, by the clock of this process, because its work cannot be counted.
    `retried` is True once code that needs the values of tensors was tried without them; `stopped` receives the run of a
    failing target, under its failure. `seen` are the arguments that a program in this process passed to the target.
    """

    lines: list[str]
    statements: Statements
    budget: Budget
    deadline: float
    context: Context
    stopped: dict[Failure, Stopped]
    seen: tuple[Offer, ...] = ()
    retried: bool = False

    @property
    def seconds(self) -> float:
        """Return the remaining seconds of the budget, at least MIN_SECONDS."""
        return max(self.budget.seconds, MIN_SECONDS)

    @property
    def program_seconds(self) -> float:
        """Return the remaining seconds for its program, at least MIN_SECONDS."""
        return max(self.deadline - time.process_time(), MIN_SECONDS)

    def evaluate(self, text: str) -> Any:
        """Return the value of an expression in the user's module."""
        return eval(text, self.module.__dict__)
