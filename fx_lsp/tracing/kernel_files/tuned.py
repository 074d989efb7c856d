"""Keep the fastest choices of kernels, measured on a GPU, in a file that a project may commit: `fx_lsp_tuned.json`.

Each entry is for one target, with its inputs, on one card. It counts as long as the source of the target is the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fx_lsp import files
from fx_lsp.choices import read_choices
from fx_lsp.errors import ProtocolError
from fx_lsp.wire import from_json, to_json

TUNED = "fx_lsp_tuned.json"
"""The name of the file, in the root of a project."""
MEASURED = "measured"
"""The option of the work that generates kernels with the sentence about their times."""


@dataclass(frozen=True)
class TunedKernels:
    """Hold the fastest candidate for a target, "path/in/project.py::name", with the hash of its `source`.

    `inputs` are the specs of the measured inputs. `milliseconds` has the times of all candidates and their rivals, on
    the GPU and by the wall clock: {"kernels": {"forward graph": 0.031, …}}; `digests` are hashes of the files of
    candidates.
    """

    target: str
    source: str
    card: str
    torch: str
    triton: str
    inputs: tuple[str, ...]
    winner: str
    choices: dict[str, str]
    milliseconds: dict[str, dict[str, float]]
    digests: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def sentence(self) -> str:
        """Return a sentence on the times of the winner and of its rivals."""
        own, parts = self.milliseconds[self.winner], list[str]()
        clock = "graph" if any(key.endswith("graph") for key in own) else "wall"
        for key in (key for key in own if key.endswith(clock)):
            times = sorted((row[key], name) for name, row in self.milliseconds.items() if key in row)
            others = ", ".join(f"{name} {time:.3g}" for time, name in times if name != self.winner)
            what = "forward and backward" if key.startswith("both") else key.partition(" ")[0]
            parts.append(f"{what} {own[key]:.3g} ms ({others})")
        return f"The fastest of those measured on {self.card}, torch {self.torch}: {'; '.join(parts)}."

    def is_same_case(self, other: TunedKernels) -> bool:
        """Return True if it is for the same target, inputs and card."""
        return (self.target, self.inputs, self.card) == (other.target, other.inputs, other.card)


def read_tuned(root: str) -> list[TunedKernels]:
    """Return the entries of a project, [] without a file. Raises ProtocolError if it has another form, OSError."""
    path = Path(root) / TUNED
    if not path.exists():
        return []
    try:
        entries = json.loads(files.read_text(path))
        return [from_json(TunedKernels, entry) for entry in entries]
    except (ProtocolError, ValueError, TypeError) as error:
        raise ProtocolError(f"{TUNED} cannot be read: {error}; delete it, or restore it") from error


def keep_tuned(root: str, entry: TunedKernels) -> Path:
    """Write an entry after all others, in place of one for the same case; return the path. Raises ProtocolError,
    OSError.
    """
    others = [other for other in read_tuned(root) if not other.is_same_case(entry)]
    path = Path(root) / TUNED
    files.write(path, json.dumps([to_json(e) for e in (*others, entry)], indent=2) + "\n")
    return path


def target_in(root: str, file: str, name: str) -> str:
    """Return the name of a target in its project: "path/in/project.py::name"."""
    return f"{Path(os.path.relpath(os.path.realpath(file), os.path.realpath(root))).as_posix()}::{name}"


def kept_parts(root: str, file: str, name: str, source: str) -> dict[str, str]:
    """Return the choices that the project keeps for a target as parts of work, with the sentence on their times; {} if
    there are none for the hash of its present `source`.

    Raises ProtocolError, OSError, and ValueError for choices that do not exist.
    """
    entry = tuned_for(read_tuned(root), target_in(root, file, name), source)
    return {} if entry is None else {**read_choices(entry.choices).parts(), MEASURED: entry.sentence}


def tuned_for(entries: Sequence[TunedKernels], target: str, source: str) -> TunedKernels | None:
    """Return the entry that was measured last for a target with this hash of its source, None if there is none."""
    return next((e for e in reversed(entries) if (e.target, e.source) == (target, source)), None)
