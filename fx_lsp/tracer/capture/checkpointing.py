"""Mark checkpoints in the user's code as `torch.compile` does: their operations are recomputed in backward.

AOTAutograd alone traces through `torch.utils.checkpoint` without noticing it. Dynamo marks the nodes inside, and the
partitioner obeys the marks: this module sets the same marks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.fx.traceback as fx_traceback
import torch.utils.checkpoint as torch_checkpoint
from torch.utils.checkpoint import CheckpointPolicy

_RECOMPUTE, _REGION = "recompute", "ac_graph_id"


@contextmanager
def tagged_checkpoints() -> Generator[None, None, None]:
    """Mark operations that `torch.utils.checkpoint` runs while traced inside to be recomputed, or as its policy says.

    Nodes keep the marks if metadata is preserved (`preserve_node_meta`). A nested checkpoint is part of the outer one.
    """
    numbers = itertools.count(1)

    def without_reentrant(
        function: Any, preserve: Any, context_fn: Callable[[], Any], *rest: Any, **kwargs: Any
    ) -> Iterator[None]:
        with _tagged(numbers, context_fn):
            yield

    class Reentrant:
        @staticmethod
        def apply(function: Callable[..., Any], preserve: Any, *args: Any) -> Any:
            with _tagged(numbers, torch_checkpoint.noop_context_fn):
                return function(*args)

    with ExitStack() as stack:
        for name, stand_in in (
            ("_checkpoint_without_reentrant_generator", without_reentrant),
            ("CheckpointFunction", Reentrant),
        ):
            stack.enter_context(mock.patch.object(torch_checkpoint, name, stand_in))
        yield


@contextmanager
def _tagged(numbers: Iterator[int], context_fn: Callable[[], Any]) -> Generator[None, None, None]:
    meta = fx_traceback.current_meta
    if _REGION in meta:
        yield
        return
    meta[_RECOMPUTE], meta[_REGION] = CheckpointPolicy.PREFER_RECOMPUTE, next(numbers)
    forward, _ = context_fn()
    if hasattr(forward, _REGION):
        forward.ac_graph_id = meta[_REGION]
    try:
        with forward:
            yield
    finally:
        meta.pop(_RECOMPUTE, None)
        meta.pop(_REGION, None)


def tag(nodes: Iterable[torch.fx.Node], number: int) -> None:
    """Mark nodes of a joint graph as those of one checkpoint, the `number`th in execution order."""
    for node in nodes:
        node.meta[_RECOMPUTE], node.meta[_REGION] = CheckpointPolicy.MUST_RECOMPUTE, number
