"""Hold the inputs that one source provides: plans by parameter, and the target's object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fx_lsp.model import CallContext, Span, WrittenInputs
from fx_lsp.tracer.inputs.plan.plans import Plan, ValuePlan


@dataclass(frozen=True)
class Offer:
    """Hold plans by parameter, and by constructor parameter (None: the constructor is not mentioned).

    `instance` is the object itself if the source has created one, `mode` a plan for its `training` if it is a module
    with a stated mode. An offer that is `final` is complete: if the target does not run with it, nothing else is tried.
    `later` are further calls of the same program on the same object. It is `guessed` if the target's caller was itself
    called with guesses, and `unset` if options of its command line have no value. It `is_copy` if the object is a copy
    of one that was tried, with other parameters or attributes. The call is made in `context`, None if nothing says so.
    """

    args: Mapping[str, Plan]
    init: Mapping[str, Plan] | None = None
    instance: Any = None
    final: bool = False
    mode: ValuePlan | None = None
    guessed: bool = False
    unset: bool = False
    is_copy: bool = False
    later: tuple[WrittenInputs, ...] = ()
    context: CallContext | None = None

    @property
    def is_empty(self) -> bool:
        """Return True if the offer leaves all values to the search."""
        stated = (self.init, self.instance, self.mode)
        return not self.args and all(part is None for part in stated)

    def with_copy(self, instance: Any) -> Offer:
        """Return the offer with a changed copy of its object."""
        return replace(self, instance=instance, is_copy=True)

    def over(self, other: Offer) -> Offer:
        """Return both offers as one; this one takes precedence for common parameters.

        An object that was constructed with other arguments than this offer's is dropped.
        """
        init = None if self.init is None and other.init is None else {**(other.init or {}), **(self.init or {})}
        instance = self.instance if self.init is not None or self.instance is not None else other.instance
        mode = other.mode if self.mode is None else self.mode
        guessed, unset = self.guessed or other.guessed, self.unset or other.unset
        args, final = {**other.args, **self.args}, self.final or other.final
        later, context = self.later or other.later, self.context or other.context
        return Offer(args, init, instance, final, mode, guessed, unset, later=later, context=context)


@dataclass(frozen=True)
class Written:
    """Hold the author's offer, which always applies, and recorded ones, which are tried one by one.

    `named` are the dynamic dimensions: the name of each with a size for it; `spans` are the places of the written
    parameters (those of a constructor as `init.name`).
    """

    author: Offer
    recorded: tuple[Offer, ...] = ()
    named: Mapping[str, int] = field(default_factory=dict[str, int])
    spans: Mapping[str, Span | None] = field(default_factory=dict[str, "Span | None"])
