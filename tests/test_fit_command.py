"""`fx-lsp fit` prints the peak memory of each training program in files and folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from terminal import fx_lsp

pytestmark = pytest.mark.torch

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 8)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    data = TensorDataset(torch.randn(640, 512), torch.randint(0, 8, (640,)))
    for x, y in DataLoader(data, batch_size=64):
        loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


def test_the_peak_and_the_largest_batch(tmp_path: Path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "model.py").write_text("import torch\n\n\ndef f(x):\n    return torch.relu(x)\n")
    done = fx_lsp(tmp_path, "fit")
    assert done.returncode == 0
    name, *lines = done.stdout.splitlines()
    assert name == "train.py"
    assert lines == snapshot(
        [
            "  peak 69.1 MiB = parameters 1 MiB + gradients 1 MiB + optimizer 2 MiB + saved 512 B + temporary 1 MiB + "
            "workspaces 64 MiB: in optimizer, at train.py:15",
            "  reserved 70 MiB, by the rules of PyTorch's allocator",
            "  with B samples, now 64: forward 6.1 KiB · B + 68.1 MiB, backward 8.3 KiB · B + 67.8 MiB, "
            "optimizer 69.1 MiB, reserved 21.3 KiB · B + 68.7 MiB",
            "  largest batch (a guess): 733,984 in 16 GiB, 1,127,200 in 24 GiB, 1,913,632 in 40 GiB, "
            "3,879,711 in 80 GiB, with 1 GiB for all else",
        ]
    )
    assert done.stderr.startswith("workspaces are those of cuBLAS")
    (row,) = json.loads(fx_lsp(tmp_path, "fit", "--json").stdout)
    assert row["peak"] == sum(row["parts"].values())
    assert (row["target"], row["device"], row["batch"]) == (f"{tmp_path / 'train.py'}::__main__", "cuda", 64)


def test_why_there_is_no_peak(tmp_path: Path):
    (tmp_path / "train.py").write_text(TRAIN.replace("nn.Linear(512, 8)", "nn.Linear(500, 8)"))
    done = fx_lsp(tmp_path, "fit", "train.py")
    assert done.returncode == 1
    assert done.stdout.startswith("train.py\n  no peak: train.py does not train to its second step here: ")
    assert fx_lsp(tmp_path, "fit", "train.py", "--json").returncode == 1


def test_files_that_are_no_programs_say_so_where_they_are_named(tmp_path: Path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "parts.py").write_text("import torch\n")
    done = fx_lsp(tmp_path, "fit", "broken.py", "parts.py")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == snapshot(
        [
            "broken.py",
            "  no peak: broken.py:1: syntax error: invalid syntax.",
            "parts.py",
            "  no peak: it is no program that imports torch",
        ]
    )


def test_nothing_trains(tmp_path: Path):
    (tmp_path / "model.py").write_text("import torch\n\n\ndef f(x):\n    return torch.relu(x)\n")
    done = fx_lsp(tmp_path, "fit")
    assert (done.returncode, done.stderr) == (1, "nothing to measure: no file trains a model\n")
