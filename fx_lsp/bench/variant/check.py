"""Compare the kernels of a generated file with the original: `check FILE` prints a line for each result.

They are compared with poisoned memory, for the sizes of the file, and for others if it takes any. In the background of
an editor, the process is confined. Exit codes: 0 right or not checked, 1 wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fx_lsp.bench.variant.comparison import Make
    from fx_lsp.bench.variant.subject import BenchmarkSubject

NICENESS = 10
"""The niceness of a process in the background of an editor, which comes first."""
LABEL = 32
"""The width of the column of results."""
MAX_INTERPRETED = 64
"""The largest value of an open size in Triton's interpreter, which takes a while for each program."""


def main() -> int:
    """Compare the file that the command line names."""
    from fx_lsp.sandbox import confinement, limits

    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--scratch", default="", help="confine this process, which writes to this folder")
    parser.add_argument("--root", action="append", default=[], help="a folder of the project")
    parser.add_argument("--allow-read", action="append", default=[])
    parser.add_argument("--allow-program", action="append", default=[])
    parser.add_argument("--memory", type=int, default=0, help="the bytes that the comparison may use; 0: any")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    limits.die_with_parent()
    if options.scratch:
        if hasattr(os, "nice"):
            os.nice(NICENESS)
        allowance = confinement.Allowance(tuple(options.allow_read), tuple(options.allow_program))
        confinement.begin(options.scratch, allowance)
    import torch

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cpu":
        from fx_lsp.numerics import interpreter

        interpreter.repair()
    if options.scratch:
        confinement.enter(options.root, str(options.file))
        confinement.leave_no_processes()
    try:
        with limits.memory_limit(options.memory or None):
            return _compare(options.file, kind)
    except (MemoryError, RuntimeError) as error:
        if not limits.is_out_of_memory(error):
            raise
        print("not checked: the comparison needs more memory")
        return 0


def _compare(file: Path, kind: str) -> int:
    """Compare a file on a kind of device, and print the verdicts; return the exit code."""
    from fx_lsp.bench.variant.checking import poisoned
    from fx_lsp.bench.variant.devices import device
    from fx_lsp.bench.variant.subject import NotComparable, opened

    try:
        subject = opened(file, kind, kernels=True)
    except NotComparable as reason:
        print(f"not compared with the original: {str(reason).partition(': ')[2].removesuffix('.')}")
        return 0
    with poisoned(device(kind), ()):
        verdicts = [_compared(subject, sizes) for sizes in _tried(subject.sizes, kind == "cpu")]
        if all(is_wrong is None for is_wrong in verdicts):
            verdicts = [_verdict(subject, subject.make, "")]
    return int(any(verdicts))


def _tried(sizes: Mapping[str, int], interpreted: bool) -> list[dict[str, int]]:
    """Return the sizes to compare for: those of the file, odd ones, and a first one of 1; none for fixed sizes."""
    own = {name: min(size, MAX_INTERPRETED) if interpreted else size for name, size in sizes.items()}
    return [own, {name: size | 1 for name, size in own.items()}, {**own, next(iter(own)): 1}] if own else []


def _compared(subject: BenchmarkSubject, sizes: dict[str, int]) -> bool | None:
    """Print the verdicts for these sizes; return True if a result is wrong, None if the original or the kernels reject
    the sizes.
    """
    from fx_lsp.bench.variant.comparison import NotAccepted

    own = sizes == subject.sizes
    label = "" if own else f" ({', '.join(f'{name}={size}' for name, size in sizes.items())})"
    try:
        return _verdict(subject, subject.make if own else subject.with_sizes(**sizes), label)
    except (NotAccepted, ValueError):
        return None


def _verdict(subject: BenchmarkSubject, make: Make, label: str) -> bool:
    """Print the verdict on each result, under its name and a label; return True if one is wrong."""
    from fx_lsp.bench.variant.comparison import SEEDS, compare

    assert subject.kernels is not None
    verdicts = compare(subject.kernels, subject.reference, make, SEEDS[:1] if subject.sizes else SEEDS)
    for name, (wrong, off, far) in verdicts.items():
        verdict = "wrong" if wrong else "right"
        print(f"{verdict}  {name + label:<{LABEL}}  off by {off:.1e}, the original by {far:.1e}")
    return any(wrong for wrong, _, _ in verdicts.values())


if __name__ == "__main__":
    sys.exit(main())
