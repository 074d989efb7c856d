"""`fx-lsp bench`: the inputs that a file is generated for, and the sizes of a sweep."""

from __future__ import annotations

from itertools import pairwise

import pytest
from inline_snapshot import snapshot

from fx_lsp.errors import TargetError
from fx_lsp.tracing.remote.cases import BenchRequest, Sweep, analysed, function_of, read_sweep, texts_of

SOURCE = """\
import torch
from torch import nn


def plain(x):
    return torch.relu(x)


# fx: x=f32[N, 64],
# fx: scale=2.0
@torch.no_grad()
def written(x, scale):
    return x * scale


class Block(nn.Module):
    def __init__(self, N):
        super().__init__()
        self.linear = nn.Linear(N, N)

    # fx: init(N=N), x=f32[8, N](N, 1)
    def forward(self, x):
        return self.linear(x)
"""


def texts(name: str, inputs: str | None = None, sweep: str | None = None) -> list[tuple[str, str]]:
    asked = BenchRequest("/p/model.py", name, SOURCE, ("/p",), inputs, read_sweep(sweep) if sweep else None)
    return texts_of(asked, *analysed(asked))


def comments(name: str, inputs: str | None = None, sweep: str | None = None) -> dict[str, list[str]]:
    """The `# fx:` comments in the text of each case, and the line above each."""
    found: dict[str, list[str]] = {}
    without_comments = [line for line in SOURCE.splitlines() if "fx:" not in line]
    for label, text in texts(name, inputs, sweep):
        lines = text.splitlines()
        assert [line for line in lines if "fx:" not in line] == without_comments
        found[label] = [f"{line}  above {below}" for line, below in pairwise(lines) if "fx:" in line]
    return found


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("N=1024..8192", (1024, 2048, 4096, 8192)),
        ("N = 1000 .. 5000", (1024, 2048, 4096)),
        ("N=7", (7,)),
        ("N=3, 1,3", (3, 1)),
    ],
)
def test_sweeps(text: str, values: tuple[int, ...]):
    assert read_sweep(text) == Sweep("N", values)


@pytest.mark.parametrize("text", ["N", "N=", "N=a..b", "1=2", "N=5..7", "N=9..3", "N=0", "N=1..1000000000000"])
def test_what_is_no_sweep(text: str):
    with pytest.raises(TargetError, match=text.partition("=")[0]):
        read_sweep(text)


def test_without_inputs_the_text_is_as_it_is():
    assert texts("plain") == [("", SOURCE)]


def test_inputs_are_written_above_a_definition():
    assert comments("plain", "x=f32[8, 4]") == snapshot(
        {
            "": [
                "# fx: x=f32[8, 4]  above def plain(x):",
                "# fx: x=f32[N, 64],  above # fx: scale=2.0",
                "# fx: scale=2.0  above @torch.no_grad()",
                "    # fx: init(N=N), x=f32[8, N](N, 1)  above     def forward(self, x):",
            ]
        }
    )


def test_inputs_take_the_place_of_those_that_are_written_down():
    assert comments("written", "x=f32[2], scale=1.0") == snapshot(
        {
            "": [
                "# fx: x=f32[2], scale=1.0  above # fx:",
                "# fx:  above @torch.no_grad()",
                "    # fx: init(N=N), x=f32[8, N](N, 1)  above     def forward(self, x):",
            ]
        }
    )


def test_a_sweep_over_what_is_written_down():
    assert comments("written", sweep="N=2,4") == snapshot(
        {
            "N=2": [
                "# fx: x=f32[2, 64], scale=2.0  above # fx:",
                "# fx:  above @torch.no_grad()",
                "    # fx: init(N=N), x=f32[8, N](N, 1)  above     def forward(self, x):",
            ],
            "N=4": [
                "# fx: x=f32[4, 64], scale=2.0  above # fx:",
                "# fx:  above @torch.no_grad()",
                "    # fx: init(N=N), x=f32[8, N](N, 1)  above     def forward(self, x):",
            ],
        }
    )


def test_a_sweep_of_a_module():
    assert comments("Block", sweep="N=2,4") == snapshot(
        {
            "N=2": [
                "# fx: x=f32[N, 64],  above # fx: scale=2.0",
                "# fx: scale=2.0  above @torch.no_grad()",
                "    # fx: init(N=2), x=f32[8, 2](2, 1)  above     def forward(self, x):",
            ],
            "N=4": [
                "# fx: x=f32[N, 64],  above # fx: scale=2.0",
                "# fx: scale=2.0  above @torch.no_grad()",
                "    # fx: init(N=4), x=f32[8, 4](4, 1)  above     def forward(self, x):",
            ],
        }
    )


def test_a_sweep_needs_its_size():
    with pytest.raises(TargetError) as raised:
        comments("plain", "x=f32[8, 4]", "N=2,4")
    assert str(raised.value) == snapshot(
        'no input of plain has a size N: name it, as in "x=f32[N, 1024], …", with the benchmark or in its '
        "`# fx:` comment"
    )


def test_inputs_that_cannot_be_read():
    with pytest.raises(TargetError) as raised:
        comments("plain", "x=f32[")
    assert str(raised.value) == snapshot("cannot parse the inputs `x=f32[`: not `name=value, …`: '[' was never closed")


def test_the_function_of_a_file():
    assert function_of('"""rms_norm as Triton kernels: forward.\n\nMore.\n"""\nimport os\n') == "rms_norm"
