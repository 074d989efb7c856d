"""New values of tensors that a function changes in place: they overwrite the old values if nothing needs those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import sympy
from torch import fx

from fx_lsp.codegen.graph.query import view_chain
from fx_lsp.codegen.ir.kernel import KernelLaunch
from fx_lsp.codegen.ir.statement import rename
from fx_lsp.codegen.ir.tile import Tile
from fx_lsp.codegen.ir.values import AtomicAdd, Buffer, IndexedStore, Load, Store, values_of


def can_overwrite(stores: Sequence[Store], tile: Tile, new: Buffer, old: Buffer) -> bool:
    """Return True if a kernel may write one buffer over another: it reads each old element only where it writes it.

    A kernel with a loop may not: one iteration could overwrite an element that the next one reads.
    """
    if (new.dtype, new.shape, new.strides) != (old.dtype, old.shape, old.strides):
        return False
    if any(d.role == "loop" for d in tile.dims) or any(isinstance(s, AtomicAdd) for s in stores):
        return False
    index = next(s.index for s in stores if s.buffer is new)
    return all(sympy.expand(v.index - index) == 0 for v in _loads_of(old, stores))


def reads_what_it_overwrites(stores: Sequence[Store], tile: Tile, write: Store) -> bool | None:
    """Return whether a kernel reads the tensor that it writes into: None if it may not, because it reads an element
    that another program may have written.
    """
    loads = _loads_of(write.buffer, stores)
    if not loads:
        return False
    looped = any(d.role == "loop" for d in tile.dims)
    own = all(sympy.expand(v.index - write.index) == 0 for v in loads)
    return None if looped or isinstance(write, IndexedStore) or not own else True


def _loads_of(buffer: Buffer, stores: Sequence[Store]) -> list[Load]:
    values = values_of(v for s in stores for v in s.values)
    return [v for v in values if isinstance(v, Load) and v.buffer.name == buffer.name]


def overwrite_inputs(
    steps: Sequence[KernelLaunch | fx.Node],
    changed: Mapping[fx.Node, fx.Node],
    results: Iterable[fx.Node | None],
    buffers: Mapping[fx.Node, Buffer],
) -> tuple[tuple[KernelLaunch | fx.Node, ...], dict[fx.Node, fx.Node]]:
    """Return the steps with new values that overwrite old ones, and a dict from new to old for the values overwritten.

    `changed` maps new values to old ones. An old value is kept if a later step or a result needs it.
    """
    results_with_bases = {n for r in results if r is not None for n in view_chain(r)}
    run = list(steps)
    overwritten: dict[fx.Node, fx.Node] = {}
    for new, old in changed.items():
        place = next((i for i, s in enumerate(run) if isinstance(s, KernelLaunch) and new in s.writes), None)
        if (
            place is None
            or old in results_with_bases
            or old in overwritten.values()
            or any(_reads(s, old) for s in run[place + 1 :])
        ):
            continue
        step = run[place]
        assert isinstance(step, KernelLaunch)
        run[place] = _write_over(step, new, old, buffers)
        overwritten[new] = old
    return tuple(run), overwritten


def _reads(step: KernelLaunch | fx.Node, node: fx.Node) -> bool:
    inputs = step.reads if isinstance(step, KernelLaunch) else step.all_input_nodes
    return any(node in view_chain(i) for i in inputs)


def _write_over(step: KernelLaunch, new: fx.Node, old: fx.Node, buffers: Mapping[fx.Node, Buffer]) -> KernelLaunch:
    """Return a launch that writes into `old` instead of `new`."""
    kernel, target = step.kernel, buffers[old]
    was, now = f"{buffers[new].name}_ptr", f"{target.name}_ptr"
    parameters = dict.fromkeys(replace(p, name=now) if p.name == was else p for p in kernel.parameters)
    overwriting = replace(
        kernel,
        parameters=tuple(parameters),
        body=rename(kernel.body, {was: now}),
        writes=[target if b is buffers[new] else b for b in kernel.writes],
        overwrites=(*kernel.overwrites, target.name),
    )
    return KernelLaunch(overwriting, step.reads, tuple(old if n is new else n for n in step.writes))
