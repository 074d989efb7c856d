"""What a GPU can launch: grids within the limits of their axes, loops within shared memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from inline_snapshot import snapshot
from interpreted import captured, generated, wrong

from fx_lsp.choices import Choices
from fx_lsp.codegen.ir import tile
from fx_lsp.codegen.ir.index import size_symbol


def attention(q, k, v):
    keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return (q @ k.mT * 0.25).masked_fill(~keep, float("-inf")).softmax(-1) @ v


def biased(q, k, v):
    return (q @ k.mT * 0.25 + v[:, :, :1]).softmax(-1) @ v


def transposed(x):
    return x.transpose(1, 2).contiguous() * 2


def columns(x):
    return x.sum(1)


def products(a, b):
    return F.gelu(a @ b)


GRIDS = {
    "attention": (attention, [(5, 70, 16)] * 3),
    "biased": (biased, [(5, 70, 16)] * 3),
    "transposed": (transposed, [(3, 130, 170)]),
    "columns": (columns, [(3, 40, 170)]),
    "products": (products, [(5, 40, 33), (5, 33, 50)]),
}


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("most", [1, 2, 65535])
def test_the_dimension_with_the_most_programs_comes_first(name: str, most: int, monkeypatch: pytest.MonkeyPatch):
    """Only the first axis of a grid takes more than 65,535."""
    monkeypatch.setattr(tile, "MAX_PROGRAMS", most)
    function, sizes = GRIDS[name]
    assert wrong(function, [torch.randn(size, requires_grad=True) for size in sizes]) == []


def test_there_may_be_many_batches() -> None:
    inputs = [torch.empty(70_000, 64, 16) for _ in range(3)]
    text = generated(captured(attention, inputs)).text
    assert re.findall(r"launch\(\w+, (?:lambda meta: )?(\(.*70000.*?\)), ", text) == snapshot(["(70000, -(-64 // 64))"])


def test_a_batch_of_open_size_may_be_many() -> None:
    batch = tile.Dim((size_symbol("i"),), (size_symbol("b"),), "grid", 1, "batch", "B", "")
    rows = tile.Dim((size_symbol("j"),), (size_symbol("n"),), "grid", 64, "rows", "M", "ROWS")
    assert tile.Tile((rows, batch), {}, ()).grid == (batch, rows)


@pytest.mark.parametrize(("width", "stages"), [(1024, 3), (8192, 3), (16384, 2)])
def test_no_more_rows_are_under_way_than_shared_memory_has_room_for(width: int, stages: int) -> None:
    inputs = [torch.empty(64, width, requires_grad=True), torch.empty(width, requires_grad=True)]
    choices = Choices(inductor="none")
    text = generated(captured(lambda x, w: F.layer_norm(x, (width,), w), inputs, choices), choices=choices).text
    assert set(re.findall(r"num_stages=(\d)\)", text)) == {str(stages)}


LAUNCHED = """\
import os
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget

import scaled


class Driver:
    \"\"\"A device that compiles kernels and prints how they are launched.\"\"\"

    def __init__(self):
        limits = {"max_shared_mem": 232448}
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (self, self, 0, 0, 1024),
            unload_module=lambda module: None,
            get_device_properties=lambda device: limits,
        )
        self.get_current_device = self.get_current_stream = lambda *_: 0
        self.get_current_target = lambda: GPUTarget("cuda", 90, 32)
        self.get_benchmarker = lambda: lambda call, quantiles: [call(), 0.0, 0.0][1:] * 2

    def launcher_cls(self, src, metadata):
        def launch(*args):
            values = [a if type(a) is int or a is None else a.data_ptr() for a in args[9:]]
            launched.append((args[:3], metadata.num_warps, values))

        return launch


triton.runtime.driver.set_active(Driver())
os.environ["TRITON_INTERPRET"] = "1"  # from now on: the tensors may be on the CPU
first = torch.empty(48 * 500 + 1)
last = None
for x in (first[:-1].view(48, 500), first[1:].view(48, 500), first[:-1].view(48, 500), first[1:].view(48, 500)):
    launched = []
    out = scaled.f(x)
    grid, warps, values = launched[-1]
    assert values[:2] == [x.data_ptr(), out.data_ptr()]
    print(len(launched), len(scaled.LAUNCHES), grid, warps, values[2:])
scaled.f_forward(first[:-1].view(48, 500).half())
print(len(scaled.LAUNCHES))
"""


def test_the_second_launch_does_what_the_first_did(tmp_path: Path) -> None:
    """The first one may try configurations; it compiles anew for memory that is not aligned, and other dtypes."""
    text = generated(captured(lambda x: x.relu() * 2, [torch.empty(48, 500)])).text
    assert text.count("config(BLOCK=") > 1
    (tmp_path / "scaled.py").write_text(text)
    environment = {n: v for n, v in os.environ.items() if n != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", LAUNCHED]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == snapshot(
        [
            "5 1 (24, 1, 1) 4 [24000, 1024]",
            "1 2 (24, 1, 1) 4 [24000, 1024]",
            "1 2 (24, 1, 1) 4 [24000, 1024]",
            "1 2 (24, 1, 1) 4 [24000, 1024]",
            "3",
        ]
    ), done.stderr
