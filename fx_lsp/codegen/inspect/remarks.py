"""Remarks on a compiled kernel, as sentences that recommend an action. Standard library only."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from fx_lsp.codegen.inspect.assembly import Assembly
from fx_lsp.codegen.inspect.occupancy import CHIPS
from fx_lsp.model import ProblemSeverity

LOW_OCCUPANCY = 0.25
SPILLED_BYTES = 64
NARROW_BITS = 64
VECTOR_BITS = 128
TENSOR_MEMORY = 512


@dataclass(frozen=True)
class LineRemark:
    """A sentence about a line of the Python file."""

    line: int
    severity: ProblemSeverity
    message: str


def remarks(assembly: Assembly) -> tuple[LineRemark, ...]:
    """Return remarks: exceeded limits, spills, low occupancy, dots off the tensor cores, narrow loads and stores."""
    sentences = [
        *_over_limits(assembly),
        *_spills(assembly),
        *_low_occupancy(assembly),
        *_dots(assembly),
        *_narrow(assembly),
        *(LineRemark(note.line or assembly.line, "hint", note.text) for note in assembly.notes),
    ]
    return tuple(sorted(set(sentences), key=lambda remark: (remark.line, sentences.index(remark))))


def _over_limits(assembly: Assembly) -> list[LineRemark]:
    chip, used, launch = CHIPS[assembly.target], assembly.resources, assembly.launch
    excesses: list[str] = []
    if used.shared > chip.shared_per_block:
        excesses.append(
            f"needs {used.shared} bytes of shared memory, and a block on {chip.name} has {chip.shared_per_block}: "
            f"take {_smaller_blocks(assembly)} or fewer stages than num_stages={launch.num_stages}"
        )
    if used.threads > chip.threads_per_block:
        excesses.append(
            f"has {used.threads} threads in a block, and the limit is {chip.threads_per_block}: use fewer warps"
        )
    if used.tensor_memory > TENSOR_MEMORY:
        excesses.append(
            f"needs {used.tensor_memory} columns of tensor memory, and {chip.name} has {TENSOR_MEMORY}: "
            f"take {_smaller_blocks(assembly)}"
        )
    return [LineRemark(assembly.line, "error", f"{launch.kernel} cannot be launched: it {text}") for text in excesses]


def _spills(assembly: Assembly) -> list[LineRemark]:
    used, launch = assembly.resources, assembly.launch
    if used.spill_stores + used.spill_loads < SPILLED_BYTES:
        return []
    maxnreg = launch.options.get("maxnreg")
    cure = f"raise maxnreg={maxnreg}, or " if maxnreg else ""
    lines = _lines_that_spill(assembly)
    where = f", most at {'line' if len(lines) == 1 else 'lines'} {' and '.join(map(str, lines))}" if lines else ""
    message = (
        f"{launch.kernel} spills: {used.registers} registers for each thread are too few, and it writes "
        f"{used.spill_stores} bytes to memory and reads {used.spill_loads} back{where}. To avoid it, {cure}"
        f"take {_smaller_blocks(assembly)} or more warps than num_warps={launch.num_warps}"
    )
    return [LineRemark(assembly.line, "information", message)]


def _lines_that_spill(assembly: Assembly) -> list[int]:
    """Return the two lines of the Python file with the most spilling instructions, in their order."""
    name = "amdgcn" if "amdgcn" in assembly.texts else "sass"
    rows = zip(assembly.texts[name].splitlines(), assembly.lines[name], strict=False)
    counts = Counter(line for row, line in rows if line and _SPILL.search(row))
    return sorted(line for line, _ in counts.most_common(2))


def _low_occupancy(assembly: Assembly) -> list[LineRemark]:
    used = assembly.resources
    fits = used.occupancy
    if not 0 < fits.fraction < LOW_OCCUPANCY or fits.limited_by not in ("registers", "shared memory"):
        return []
    if _DOT.search(assembly.texts["ttgir"]):  # tensor cores need few warps with large blocks
        return []
    amount = f"{used.registers} for each thread" if fits.limited_by == "registers" else f"{used.shared} bytes a block"
    blocks = "1 block" if fits.blocks == 1 else f"{fits.blocks} blocks"
    message = (
        f"a multiprocessor holds {blocks} of {assembly.launch.kernel} at a time, {fits.fraction:.0%} of its warps, "
        f"because of {fits.limited_by} ({amount}): too few to hide the latency of memory. "
        f"Take {_smaller_blocks(assembly)}" + (" or more warps" if fits.limited_by == "registers" else "")
    )
    return [LineRemark(assembly.line, "hint", message)]


def _dots(assembly: Assembly) -> list[LineRemark]:
    text = assembly.texts["ttgir"]
    layouts = dict(_LAYOUT.findall(text))
    sentences: list[LineRemark] = []
    for row, line in zip(text.splitlines(), assembly.lines["ttgir"], strict=False):
        dot = _TT_DOT.search(row)
        layout = layouts.get(dot["layout"], "") if dot else ""
        if dot and line and layout.startswith("blocked"):
            precise = dot["type"] == "f32" and "inputPrecision = tf32" not in row
            cure = 'allow input_precision="tf32", or cast both sides to bf16' if precise else "cast both sides to bf16"
            message = f"tl.dot of {dot['type']} became multiply-adds, not instructions of the tensor cores: {cure}"
            sentences.append(LineRemark(line, "information", message))
        elif dot and line and "versionMajor = 2" in layout and assembly.target in _FAST_DOTS:
            fast = _FAST_DOTS[assembly.target]
            message = (
                f"tl.dot became mma.sync, not {fast}, which is faster on {CHIPS[assembly.target].name}: "
                f"{fast} needs blocks of at least 64 rows, and num_warps=4 or more"
            )
            sentences.append(LineRemark(line, "hint", message))
    return sentences


def _narrow(assembly: Assembly) -> list[LineRemark]:
    possible = _possible_bits(assembly)
    sentences: list[LineRemark] = []
    for access in assembly.accesses:
        kind = "store" if access.kind == "store" else "load"
        blocks = possible.get((access.line, kind), [])
        if not blocks or access.kind not in ("load", "copy", "store") or access.bits >= NARROW_BITS:
            continue
        most = min(bits for _, bits in blocks)
        if most >= NARROW_BITS:
            types = ", ".join(dict.fromkeys(name for name, _ in blocks))
            message = (
                f"{kind}s of {types} move {access.bits} bits for each thread, where {most} are possible: "
                f"{_why_narrow(assembly)}"
            )
            sentences.append(LineRemark(access.line, "hint", message))
    return sentences


def _possible_bits(assembly: Assembly) -> dict[tuple[int, str], list[tuple[str, int]]]:
    """Return, for each line that loads or stores blocks, their types and the bits of each per thread, at most
    a vector.
    """
    bits_by_line: dict[tuple[int, str], list[tuple[str, int]]] = {}
    for row, line in zip(assembly.texts["ttgir"].splitlines(), assembly.lines["ttgir"], strict=False):
        block = _BLOCK_ACCESS.search(row)
        if block and line:
            elements = 1
            for size in block["sizes"].split("x"):
                elements *= int(size)
            width = max(int("".join(re.findall(r"\d+", block["type"])[:1]) or 0), 8)
            bits = min(elements // assembly.resources.threads * width, VECTOR_BITS)
            kind = "store" if "store" in block["op"] else "load"
            bits_by_line.setdefault((line, kind), []).append((block["type"], bits))
    return bits_by_line


def _why_narrow(assembly: Assembly) -> str:
    launch = assembly.launch
    loose = {name: kind for name, kind in launch.signature.items() if name not in launch.aligned}
    pointers = [name for name, kind in loose.items() if kind.startswith("*")]
    if pointers:
        return f"{_listed(pointers)} not known to be aligned to 16 bytes. Pass tensors whose data_ptr() is"
    sizes = [name for name, kind in loose.items() if kind in ("i32", "i64")]
    if sizes:
        return (
            f"{_listed(sizes)} not known to be divisible by 16. Pass multiples of 16, or, "
            "if the mask never changes within a vector, declare it with tl.max_constancy"
        )
    return (
        "the elements of a thread are not known to be contiguous. Let the last dimension of the block run "
        "along the contiguous one of the tensor, or declare it with tl.multiple_of and tl.max_contiguous"
    )


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} {'is' if len(names) == 1 else 'are'}"


def _smaller_blocks(assembly: Assembly) -> str:
    sizes = [f"{k}={v}" for k, v in assembly.launch.constants.items() if type(v) is int and v >= 16]
    return f"smaller blocks than {', '.join(sizes)}" if sizes else "smaller blocks"


_SPILL = re.compile(r" (?:STL|LDL)[. ]|\tscratch_(?:load|store)_")
_DOT = re.compile(r"\b(?:tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma)")
_TT_DOT = re.compile(r"= tt\.dot\b.* : tensor<[\dx]+x(?P<type>\w+),.* -> tensor<[^,>]*, (?P<layout>#\w+)>")
_LAYOUT = re.compile(r"^(#\w+) = #ttg\.(.*)$", re.MULTILINE)
_BLOCK_ACCESS = re.compile(
    r"\b(?P<op>tt\.load|tt\.store|ttg\.async_copy_global_to_local|amdg\.buffer_load\w*|amdg\.buffer_store)\b"
    r".*?tensor<(?P<sizes>\d+(?:x\d+)*)x(?:!tt\.ptr<)?(?P<type>\w+)"
)
_FAST_DOTS = {"cuda:90": "wgmma", "cuda:100": "tcgen05.mma"}
