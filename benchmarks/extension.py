"""What the VS Code extension costs: its size, its start, and typing with and without it.

    python benchmarks/extension.py

Needs Chromium, node and npm; builds the extension and VS Code where they are not there yet.
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests" / "e2e"
sys.path[0] = str(TESTS)  # in place of this folder, where `vscode` is this file

from vscode.workbench import Tools, extension, running, tools  # noqa: E402

MIB = 2**20
EMPTY = "exports.activate = () => {};\n"
"""What VS Code takes to start an extension that does nothing."""
SAME = """\
const { CodeLens, InlayHint, languages } = require("vscode");
const lines = (document) => [...Array(document.lineCount).keys()].map((line) => document.lineAt(line));
exports.activate = () => {
  languages.registerCodeLensProvider("python", {
    provideCodeLenses: (document) =>
      lines(document)
        .filter(({ text }) => text.startsWith("def "))
        .flatMap(({ range }) => Array(7).fill(new CodeLens(range, { title: "show a graph", command: "" }))),
  });
  languages.registerInlayHintsProvider("python", {
    provideInlayHints: (document, range) =>
      lines(document)
        .filter(({ text, range: { start } }) => range.contains(start) && / = /.test(text))
        .map(({ text, range: { start } }) => new InlayHint(start.translate(0, text.indexOf(" = ")), ": f32[4, 12]")),
  });
};
"""
"""As many lenses and shapes as fx-lsp shows, made of nothing."""


def main() -> int:
    """Prints a table."""
    made = tools()
    with_it = typed(made, peer=EMPTY)
    idle, same = typed(made, {"fx-lsp.traceOnOpen": False}), typed(made, ours=False, peer=SAME)
    without = typed(made, ours=False)
    ours, empty = (milliseconds(with_it["activation"][name]) for name in ("fx-lsp", "empty"))
    print("| what | with fx-lsp | not tracing | an extension that shows as much and computes nothing | without |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| size of the .vsix | {made.vsix.stat().st_size / MIB:.2f} MiB | – | – | – |")
    print(f"| activation | {ours} ms | – | – | {empty} ms, an extension that does nothing in the same run |")
    columns = " | ".join(times(found["times"]) for found in (with_it, idle, same, without))
    print(f"| key to screen, {len(with_it['times'])} keys | {columns} |")
    return 0


def typed(
    made: Tools, settings: Mapping[str, Any] = MappingProxyType({}), ours: bool = True, peer: str = ""
) -> dict[str, Any]:
    """What the scenario found in a VS Code of its own, with these settings, our extension, and one of this script."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "work"
        shutil.copytree(HERE.parent / "examples", folder)
        own = {"fx-lsp.interpreter": sys.executable, "fx-lsp.cache.path": str(Path(scratch) / "cache.db")}
        peers = (extension(Path(scratch), "peer", "empty", peer),) if peer else ()
        with running(
            made, Path(scratch) / "code", {**own, **settings}, (*((made.vsix,) if ours else ()), *peers)
        ) as code:
            there = "yes" if ours and not settings else "no"
            return code.play(str(HERE / "extension_typing.mjs"), folder, folder / "attention.py", FX_TRACES=there)


def milliseconds(row: str) -> str:
    """How long an extension took to load and to activate, by its row among the running ones."""
    found = re.search(r"Activation: (\d+)\s*ms", row.replace("\xa0", " "))
    return found[1] if found else row


def times(found: list[float]) -> str:
    """Median and 95th percentile in milliseconds."""
    return f"p50 {statistics.median(found):.1f} ms, p95 {statistics.quantiles(found, n=20)[-1]:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
