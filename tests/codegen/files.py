"""Files of kernels as a user gets them, and what their comparison prints under Triton's interpreter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from fx_lsp import wire
from fx_lsp.model import TraceReply, write_work
from fx_lsp.tracing.analysis import analyse

RUN = """\
import runpy, sys, traceback
from pathlib import Path
from fx_lsp.bench.variant import check
for path in sys.argv[1:]:
    print("file", path, flush=True)
    sys.argv[1:] = [path]
    try:
        if Path(path).read_text().startswith('\"\"\"'):
            print("exit", check.main(), flush=True)
        else:
            runpy.run_path(path, run_name="__main__")
    except Exception:
        print(traceback.format_exc(), flush=True)
"""


def generated(file: Path, text: str, names: list[str], sizes: str = "traced") -> dict[str, str]:
    """The files for targets of a text, for the sizes of their comments alone, or for any."""
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:  # each in a process of its own, as in use
        replies = pool.starmap(replied, [(file, text, name, sizes) for name in names], chunksize=1)
    assert all("triton" in reply.stages for reply in replies), [reply.outcome for reply in replies]
    return {n: wire.decode_stage(reply.stages["triton"]).text for n, reply in zip(names, replies, strict=True)}


def replied(file: Path, text: str, name: str, sizes: str = "traced") -> TraceReply:
    from fx_lsp.tracer.job import run

    work = write_work({"triton": "", "sizes": sizes})
    return run(replace(analyse(str(file), text, ()).request(name, {}, 5.0), work=work))


def outputs(folder: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """What comparisons of generated files with their originals print, and what scripts print, one after the other."""
    paths = {str(folder / f"{name}.py"): name for name in texts}
    for path, name in paths.items():
        Path(path).write_text(texts[name])
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", RUN, *paths]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = re.split(r"^file (.*)\n", done.stdout, flags=re.M)[1:]
    return {paths[path]: output for path, output in zip(parts[::2], parts[1::2], strict=True)}
