"""Files of kernels as a user gets them, and what their comparison prints under Triton's interpreter."""

from __future__ import annotations

import os
import re
import runpy
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from conftest import request_for

from fx_lsp import wire
from fx_lsp.model import TraceReply, write_work


def names_in(text: str) -> list[str]:
    """The functions and classes of a text."""
    return re.findall(r"^(?:def|class) (\w+)", text, re.M)


def generated(file: Path, text: str, names: list[str], sizes: str = "traced", inductor: str = "none") -> dict[str, str]:
    """The files for targets of a text, for the sizes of their comments alone, or for any."""
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:  # each in a process of its own, as in use
        replies = pool.starmap(replied, [(file, text, name, sizes, inductor) for name in names], chunksize=1)
    assert all("triton" in reply.stages for reply in replies), [reply.outcome for reply in replies]
    return {n: wire.decode_stage(reply.stages["triton"]).text for n, reply in zip(names, replies, strict=True)}


def replied(file: Path, text: str, name: str, sizes: str = "traced", inductor: str = "none") -> TraceReply:
    from fx_lsp.tracer.job import run

    work = write_work({"triton": "", "sizes": sizes, "inductor": inductor})
    return run(replace(request_for(str(file), text, name), work=work))


def script(text: str, lines: str) -> str:
    """A script that uses a generated file."""
    return "# a script\n" + text.partition('\nif __name__ == "__main__":')[0] + lines


def outputs(folder: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """What comparisons of generated files with their originals print, and what scripts print, one after the other, in
    a process that has the modules of this one."""
    import fx_lsp.numerics.interpreter  # noqa: F401 - it imports triton, once for all

    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    process = get_context("fork").Process(target=_run, args=(folder, list(texts)))
    process.start()
    process.join(600)
    said = {name: (folder / f"{name}.out").read_text() for name in texts if (folder / f"{name}.out").exists()}
    assert process.exitcode == 0 and len(said) == len(texts), (process.exitcode, said)
    return said


def _run(folder: Path, names: list[str]) -> None:
    from fx_lsp.bench.variant import check
    from fx_lsp.numerics import interpreter

    interpreter.repair()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    for name in names:
        sys.argv[1:] = [f"{name}.py"]
        with open(f"{name}.out", "w", encoding="utf-8") as out, redirect_stdout(out):
            try:
                if Path(sys.argv[1]).read_text().startswith('"""'):
                    print("exit", check.main())
                else:
                    runpy.run_path(sys.argv[1], run_name="__main__")
            except Exception:
                print(traceback.format_exc())
