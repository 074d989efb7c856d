"""Mutate one line of the code at a time, and list which mutations the tests find.

    python benchmarks/mutations.py fx_lsp/features --tests tests/features --base main --count 60

A mutation turns a comparison, changes a number or a truth value, never takes a branch, or leaves out a call.
With `--base REV`, the tests of that revision run on the same mutations. The choice depends on `--seed` and the code.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TURNED = {
    ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip


class Mutation(NamedTuple):
    """Describe a change of the text between two columns (UTF-8 bytes) of a line of a file of the package."""

    file: str
    line: int
    start: int
    end: int
    text: str
    kind: str

    def applied(self, source: str) -> str:
        """Return the source with the change."""
        lines = source.encode().split(b"\n")
        row = lines[self.line - 1]
        lines[self.line - 1] = row[: self.start] + self.text.encode() + row[self.end :]
        return b"\n".join(lines).decode()

    def described(self) -> str:
        """Return place, kind and change: `fx_lsp/specs.py:12 comparison: a < b → a >= b`."""
        row = (ROOT / self.file).read_text(encoding="utf-8").encode().split(b"\n")[self.line - 1]
        return f"{self.file}:{self.line} {self.kind}: {row[self.start : self.end].decode()} → {self.text}"


def mutations(file: Path) -> Iterator[Mutation]:
    """Yield all mutations of a file."""
    source = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        change = _change(node, source)
        if change is not None:
            place, text, kind = change
            if place.lineno == place.end_lineno:
                columns = place.col_offset, place.end_col_offset or 0
                yield Mutation(file.relative_to(ROOT).as_posix(), place.lineno, *columns, text, kind)


def _change(node: ast.AST, source: str) -> tuple[ast.expr | ast.stmt, str, str] | None:
    """Return what to replace in a node, by which text, and the kind of the change; None if it is left as it is."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
        left, right = (ast.get_source_segment(source, side) for side in (node.left, node.comparators[0]))
        return node, f"{left} {TURNED[type(node.ops[0])]} {right}", "comparison"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return node, str(not node.value), "constant"
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node, str(node.value + 1), "constant"
    if isinstance(node, ast.If):
        return node.test, "False", "branch"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return node, "pass", "call"
    return None


def chosen(paths: Sequence[str], count: int, seed: int) -> list[Mutation]:
    """Return `count` mutations of the files and folders at `paths`."""
    files = sorted(
        {f for path in paths for f in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py"))}
    )
    every = [mutation for file in files for mutation in mutations(file)]
    return random.Random(seed).sample(every, min(count, len(every)))


def laid_out(folder: Path, revision: str | None) -> Path:
    """Return a folder with the package of the working tree, and with the tests of a revision or of the working tree."""
    folder.mkdir()
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        if not (revision and name.startswith("tests/")) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    if revision:
        archive = subprocess.run(
            ["git", "archive", revision, "tests"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
    return folder


def finds(folder: Path, mutation: Mutation, tests: Sequence[str], seconds: float) -> str:
    """Return the first test that fails with the mutation, "time" or "error"; "" if none does."""
    file = folder / mutation.file
    source = file.read_text(encoding="utf-8")
    file.write_text(mutation.applied(source), encoding="utf-8")
    present = [test for test in tests if (folder / test).exists()]
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "-rfE",
        *present,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )
    except subprocess.TimeoutExpired:
        return "time"
    finally:
        file.write_text(source, encoding="utf-8")
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" ")[1] if failed else "error"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", help="files and folders of the package")
    parser.add_argument(
        "--tests", nargs="+", required=True, help="tests to run, below the root; absent ones are left out"
    )
    parser.add_argument("--base", help="a revision whose tests are run, too")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600, help="for one run of the tests")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        revisions = [options.base, None] if options.base else [None]
        folders = [laid_out(Path(scratch) / str(number), revision) for number, revision in enumerate(revisions)]
        counts = [0] * len(folders)
        for number, mutation in enumerate(chosen(options.paths, options.count, options.seed), 1):
            found = [finds(folder, mutation, options.tests, options.seconds) for folder in folders]
            counts = [count + bool(one) for count, one in zip(counts, found, strict=True)]
            print(
                f"{number:3} {mutation.described()}\n    {' | '.join(one or 'not found' for one in found)}", flush=True
            )
        print(f"found: {' | '.join(map(str, counts))} of {number}")


if __name__ == "__main__":
    main()
