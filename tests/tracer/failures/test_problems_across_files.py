"""Problems of programs that need more than one file or trace; others are cases of `tests/diagnostics`."""

from __future__ import annotations

from pathlib import Path

from conftest import TraceFixture

from fx_lsp.model import Failure

PRELUDE = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
LANGUAGE_MODEL = """
class Model(nn.Module):
    def __init__(self, words: int = 1000, width: int = 64):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)

    def forward(self, ids, targets=None):
        logits = self.head(self.words(ids))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, 64), targets.view(-1))
"""
HEAD = """
from heads_of_nets import head

class Net(nn.Module):
    def __init__(self, in_features: int = 48):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 8))

    def forward(self, x):
        return head(x, self.weight)
"""
FOLDER = """
import sources_of_kernels

def f(x: torch.Tensor):
    return sources_of_kernels.forward(x.relu())
"""


def severities(trace: TraceFixture, source: str, name: str) -> list[str]:
    """Return the severities of the problems of a target that are worse than information."""
    outcome = trace(PRELUDE + source, name).outcome
    problems = [outcome] if isinstance(outcome, Failure) else outcome.remarks
    return [problem.severity for problem in problems if problem.severity != "information"]


def test_a_warning_about_an_optional_tensor_remains_after_an_edit(trace: TraceFixture) -> None:
    first = trace(PRELUDE + LANGUAGE_MODEL, "Model").trace
    assert [remark.severity for remark in first.remarks] == ["warning"]
    assert trace(PRELUDE + LANGUAGE_MODEL, "Model", previous=first.inputs).trace.remarks == first.remarks


def test_expressions_in_other_files_have_no_problems(trace: TraceFixture, tmp_path: Path) -> None:
    (tmp_path / "heads_of_nets.py").write_text("def head(x, weight):\n    return x @ weight\n")
    assert severities(trace, HEAD, "Net") == []
    assert severities(trace, HEAD.replace("head(x, self.weight)", "x @ self.weight"), "Net") == ["warning"]


def test_a_folder_that_is_no_package_is_no_mistake(trace: TraceFixture, tmp_path: Path) -> None:
    (tmp_path / "sources_of_kernels").mkdir()
    assert severities(trace, FOLDER, "f") == []
