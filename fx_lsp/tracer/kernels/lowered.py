"""Compile a target's kernels with Triton and its assemblers for a chip, without having one: from TTIR to SASS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch.utils._python_dispatch import _disable_current_modes

from fx_lsp.codegen.inspect.assembly import Access, Assembly, assemble
from fx_lsp.codegen.inspect.compilation import span_of
from fx_lsp.codegen.inspect.launches import launch_specs
from fx_lsp.codegen.inspect.occupancy import CHIPS
from fx_lsp.codegen.inspect.remarks import remarks
from fx_lsp.model import Failure, Remark, Stage
from fx_lsp.tracer.kernels.triton import file_name, kernels
from fx_lsp.tracer.stages.ledger import Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

Facts = Sequence[tuple[int, str]]
"""Sentences, each with its line of the kernels' file."""


def lowered(traced: TracedCall) -> Ledger:
    """Return the texts of every kernel for `target` of the options, `ptx:<kernel>`, and their `resources`.

    The origins of a text are lines of the kernels' file; remarks are on its lines under the stage's document name. A
    kernel that cannot be compiled has a remark, and no texts. Raises ValueError if none can.
    """
    target = traced.options.get("target", "")
    if target not in CHIPS:
        raise ValueError(f"there is no chip {target!r}: choose one of {', '.join(sorted(CHIPS))}")
    kernel_file = kernels(traced)
    generated = kernel_file.generated
    launches = [launch for program in generated.programs for launch in launch_specs(program, kernel_file.hints)]
    if not launches:
        raise ValueError("nothing to compile: the generated file has no kernels, it calls operations of PyTorch")
    file = file_name(traced.request.name)
    ledger = Ledger()
    listings: list[Stage] = []
    resources: list[tuple[int, str]] = []
    for launch in launches:
        with _disable_current_modes():
            assembly = assemble(generated.text, launch, target, file)
        if isinstance(assembly, Failure):
            if assembly.span is None:
                said = (f"the kernels cannot be compiled: {assembly.message}.", assembly.hint, _AFTERWARDS)
                raise ValueError(" ".join(part for part in said if part))
            ledger.remarks.append(Remark(assembly.message, assembly.span, "error"))
            resources.append((assembly.span.line, f"{launch.kernel} · {assembly.message}"))
            continue
        facts = _facts(assembly)
        resources += facts
        for remark in remarks(assembly):
            span = span_of(generated.text, file, remark.line)
            ledger.remarks.append(Remark(remark.message, span, remark.severity))
            facts.append((remark.line, f"line {remark.line}: {remark.message}"))
        listings += [_listing(assembly, name, facts) for name in assembly.texts]
    page = "".join(f"{fact}\n" for _, fact in resources)
    ledger.add(Stage("resources", text=page, origins=tuple(line for line, _ in resources)), "")
    for listing in listings:
        ledger.add(listing, "")
    return ledger


_AFTERWARDS = "The generated file can still be read and edited"


def _listing(assembly: Assembly, name: str, facts: Facts) -> Stage:
    """Return one text of a kernel under a header with its description and resources."""
    mark = ";" if name in ("llir", "amdgcn") else "//"
    (line, first), *others = facts
    head = [(line, f"{name} of {first}"), *others]
    text = "".join(f"{mark} {fact}\n" for _, fact in head) + "\n" + assembly.texts[name]
    origins = (*(line for line, _ in head), 0, *assembly.lines[name])
    return Stage(f"{name}:{assembly.launch.kernel}", text=text, origins=origins)


def _facts(assembly: Assembly) -> list[tuple[int, str]]:
    """Return the kernel and its chip, its resources, and the width of its memory accesses."""
    used, fits = assembly.resources, assembly.resources.occupancy
    spilled = f"{used.spill_stores} bytes spilled and {used.spill_loads} read back"
    parts = [
        f"{used.registers} registers",
        spilled if used.spill_stores + used.spill_loads else "no spills",
        f"{used.shared} bytes of shared memory" if used.shared else "no shared memory",
        *([f"{used.tensor_memory} columns of tensor memory"] if used.tensor_memory else []),
        f"{used.threads} threads",
    ]
    blocks = "1 block" if fits.blocks == 1 else f"{fits.blocks} blocks"
    head = [
        f"{assembly.launch.kernel} for {assembly.target} ({CHIPS[assembly.target].name})",
        " · ".join(parts),
        f"{blocks} on a multiprocessor: {fits.fraction:.0%} of its warps, limited by {fits.limited_by}",
    ]
    accesses = sorted((a for a in assembly.accesses if a.line), key=lambda a: (a.line, a.kind, -a.bits))
    return [*((assembly.line, text) for text in head), *((a.line, _access(a)) for a in accesses)]


def _access(access: Access) -> str:
    one, several = _KINDS.get(access.kind, _KINDS["bulk"])
    width = f" of {access.bits} bits for each thread" if access.bits else ""
    return f"line {access.line}: {access.count} {one if access.count == 1 else several}{width}"


_KINDS = {
    "load": ("load", "loads"),
    "store": ("store", "stores"),
    "copy": ("copy to shared memory", "copies to shared memory"),
    "atomic": ("atomic operation", "atomic operations"),
    "bulk": ("copy of a whole block", "copies of whole blocks"),
}
