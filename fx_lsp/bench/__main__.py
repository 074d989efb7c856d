"""`python -m fx_lsp.bench JOB.json`: runs a job, prints its events.

The job is a `measured.Job` as JSON, from a file, or with `-` the first line of standard input. Each line printed is an
event (`wire.event_to_json`); the last one is `found` or `failed`. Exit codes: 0 found, 1 failed, 2 usage.

With `--watch` the end of standard input ends the run: its processes are killed. `--remove FOLDER` removes that folder
whenever the run is over, unless it is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from fx_lsp import wire
from fx_lsp.bench.runner.children import ChildError, kill_all
from fx_lsp.bench.runner.job import run
from fx_lsp.errors import ProtocolError
from fx_lsp.measured import BenchmarkJob, Event, Failed
from fx_lsp.sandbox.removal import remove_tree

_GRACE_SECONDS = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fx_lsp.bench", description="Run a benchmark.")
    parser.add_argument("job", help="a file, or - to read the first line of standard input")
    parser.add_argument("--watch", action="store_true", help="end when standard input ends")
    parser.add_argument("--remove", metavar="FOLDER", help="a folder to remove at the end")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    try:
        text = sys.stdin.readline() if arguments.job == "-" else Path(arguments.job).read_text(encoding="utf-8")
        job = wire.from_json(BenchmarkJob, json.loads(text))
    except (OSError, ValueError, ProtocolError) as error:
        print(f"fx_lsp.bench: no job: {error}", file=sys.stderr)
        return 2
    alone = threading.Event()
    if arguments.watch:
        threading.Thread(target=_watch, args=(alone, arguments.remove), daemon=True).start()
    try:
        last = run(job, _print)
    except ChildError:  # processes were ended, and no more may start
        return 1
    finally:
        kill_all()
        if arguments.remove:
            remove_tree(arguments.remove)
    return int(isinstance(last, Failed) or alone.is_set())


def _print(event: Event) -> None:
    print(json.dumps(wire.event_to_json(event), separators=(",", ":")), flush=True)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _watch(alone: threading.Event, folder: str | None) -> None:
    """End everything at the end of standard input: nobody is listening any more."""
    while os.read(0, 1 << 16):
        pass
    alone.set()
    kill_all()
    time.sleep(_GRACE_SECONDS)  # without processes, the run soon ends
    if folder:
        remove_tree(folder)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
