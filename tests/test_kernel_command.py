"""`fx-lsp kernel`: the file, its comparison, and what stands at its top where that fails."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from terminal import Done, fx_lsp
from warm import warm_python

from fx_lsp.choices import read_choices
from fx_lsp.cli import main
from fx_lsp.commands import kernel as kernel_command
from fx_lsp.model import read_work
from fx_lsp.tracing.kernel_files.checking import Checked, CheckPlace, compared, syntax_errors, with_failure
from fx_lsp.tracing.kernel_files.generated import Generated
from fx_lsp.tracing.workers.launch import Limits

pytestmark = pytest.mark.torch

SOURCE = """\
import torch


# fx: x=f32[4, 8]
def doubled(x):
    return torch.relu(x) * 2


def wrong(x):
    return x @ undefined


# fx: x=f32[4, 8]
def ordered(x):
    return (x * 2).sort()[0]


# fx: x=f32[4, 8]
def averaged(x):
    return torch.stack([row.tanh() for row in x]).mean(0)
"""


MINIMAL = '"""f as operations of PyTorch."""\n{}\ndef original(): ...\ndef arguments(): ...\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("project")
    (found / "model.py").write_text(SOURCE)
    return found


def kernel(folder: Path, target: str, *arguments: str) -> Done:
    return fx_lsp(folder, "kernel", f"model.py::{target}", *arguments)


@pytest.fixture(scope="module")
def written(folder: Path) -> Done:
    return kernel(folder, "doubled", "-o", "kernels.py")


def test_the_file_is_compiled_and_compared_before_it_is_written(written: Done, folder: Path):
    """For the size of its comment, an odd one, and one."""
    assert (written.returncode, written.stdout) == (0, ""), written.stderr
    lines = [line for line in written.stderr.splitlines() if line.startswith("right")]
    assert [line.split("  ")[1] for line in lines] == [
        *("out", "gradient of x"),
        *("out (x_0=5)", "gradient of x (x_0=5)"),
        *("out (x_0=1)", "gradient of x (x_0=1)"),
    ]
    assert (folder / "kernels.py").read_text().startswith('"""doubled as Triton kernels: forward and backward.')


def test_a_wrong_file_says_so_at_its_top(written: Done, folder: Path):
    text = (folder / "kernels.py").read_text()
    broken = text.replace("return grad_x\n", "return grad_x * 1.01\n")
    assert broken != text
    checked = asyncio.run(compared(broken, CheckPlace(sys.executable, (str(folder),))))
    assert checked.wrong
    first, _, what, *_ = with_failure(broken, checked).splitlines()
    assert first == "# These kernels failed their check:"
    assert what.startswith("#     wrong  gradient of x ")


def test_kernels_that_fail_their_check_are_replaced_by_those_of_inductor(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The compiler refuses the kernels of fx-lsp, as where they need more shared memory than the chip has."""

    async def refused(engine: object, kernels: Generated, compiled: object) -> tuple[str, ...]:
        return () if read_choices(read_work(kernels.work)).inductor == "all" else ("doubled cannot be launched",)

    monkeypatch.setattr(kernel_command, "compile_errors", refused)
    monkeypatch.chdir(folder)
    arguments = ["kernel", "model.py::doubled", "-o", "replaced.py", "--python", warm_python()]
    assert main(arguments) == 0
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "fx-lsp: Inductor replaces the kernels: doubled cannot be launched"
    assert [line.split()[0] for line in lines] == [*["right"] * 6, "replaced.py:"]
    text = (folder / "replaced.py").read_text()
    assert "torch.compile" in text and "@triton.jit" not in text
    assert main([*arguments, "--inductor", "none", "--force"]) == 1
    assert (folder / "replaced.py").read_text().startswith("# These kernels failed their check:")


def test_text_that_an_older_python_cannot_read_is_not_called_written():
    assert syntax_errors("x = 1\n") == []
    assert syntax_errors("try: ...\nexcept* ValueError: ...\n") == snapshot(
        ["line 2 is not valid in Python 3.10: Exception groups are only supported in Python 3.11 and greater"]
    )


def test_what_stays_a_call_is_said_with_its_line(folder: Path):
    done = kernel(folder, "ordered", "-o", "ordered.py", "--no-check")
    assert done.returncode == 0
    first, *_ = done.stderr.splitlines()
    assert first == f"{folder / 'model.py'}:15: aten.sort falls back to PyTorch: there is no kernel that sorts"


def test_no_file_of_the_user_is_written_over(folder: Path):
    theirs = folder / "thesis.txt"
    theirs.write_text("my thesis")
    view = ("doubled", "--view", "ttir", "-o", "thesis.txt", "--python", sys.executable)
    done = kernel(folder, *view)
    assert (done.returncode, theirs.read_text()) == (2, "my thesis")
    reason = "it already exists, and fx-lsp did not write it: --force overwrites it"
    assert done.stderr == f"fx-lsp: thesis.txt cannot be written: {reason}\n"
    assert kernel(folder, *view, "--force").returncode == 0
    assert theirs.read_text().startswith("// ttir of doubled_forward_kernel")


def test_a_folder_for_passes_keeps_what_the_user_has_in_it(folder: Path):
    dump = folder / "mine"
    dump.mkdir()
    (dump / "00_joint.py").write_text("mine")
    (dump / "01_joint_derive_sizes_from_inputs.py").write_text("mine")
    done = kernel(folder, "averaged", "--dump-passes", "mine")
    assert done.returncode == 2
    assert done.stderr.startswith("fx-lsp: mine/00_joint.py cannot be written: it already exists")
    assert {file.name: file.read_text() for file in dump.iterdir()} == {
        "00_joint.py": "mine",
        "01_joint_derive_sizes_from_inputs.py": "mine",
    }


def test_graphs_are_written_after_each_rewrite_that_changed_them(folder: Path):
    dump = folder / "passes"
    dumping = ("--dump-passes", "passes", "--no-check")
    done = kernel(folder, "averaged", "-o", "averaged.py", *dumping)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in dump.iterdir()) == snapshot(
        [
            "00_joint.py",
            "09_joint_sum_stacked_parts.py",
            "14_partition_recomputing_forward.py",
            "15_partition_recomputing_backward.py",
            "index.txt",
        ]
    )
    graph = (dump / "09_joint_sum_stacked_parts.py").read_text()
    assert [line for line in graph.splitlines() if "def " in line or "total" in line] == snapshot(
        [
            "def joint_sum_stacked_parts(x: f32[4, 8], grad_out: f32[8]):",
            "    total: f32[8] = aten.add.Tensor(tanh, tanh_1)",
            "    total_1: f32[8] = aten.add.Tensor(total, tanh_2)",
            "    total_2: f32[8] = aten.add.Tensor(total_1, tanh_3)",
            "    mean: f32[8] = aten.div.Tensor(total_2, 4)",
        ]
    )
    rows = (dump / "index.txt").read_text().splitlines()
    assert [
        row[:53].rstrip() for row in rows if "sum_stacked_parts" in row or "backward_fuse_matmuls" in row
    ] == snapshot(
        [
            "# 09_joint_sum_stacked_parts             41  +3 −2 ~1",
            "# 32_backward_fuse_matmuls               37  nothing",
        ]
    )
    assert [rows[n + 1] for n, row in enumerate(rows) if "partition_balancing" in row] == snapshot(
        ["#   it does not run: other choices", "#   it does not run: other choices"]
    )

    done = kernel(folder, "averaged", "-o", "apart.py", *dumping, "--fuse", "no")
    assert done.returncode == 0, done.stderr
    assert not (dump / "09_joint_sum_stacked_parts.py").exists(), "what changed nothing now is not there"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("model.py::wrong",), 1, "undefined"),
        (("model.py::wrong", "--dump-passes", "nothing"), 1, "undefined"),
        (("model.py",), 2, "is not a target"),
        (("model.py::doubled", "-o", "missing/kernels.py"), 2, "missing/kernels.py cannot be written"),
    ],
)
def test_what_writes_no_kernels(folder: Path, arguments: tuple[str, ...], code: int, said: str):
    done = fx_lsp(folder, "kernel", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert not (folder / "nothing").exists()


@pytest.mark.parametrize(
    ("statement", "seconds", "said"),
    [
        ("import no_such_package", 120.0, "has no no_such_package, which the comparison needs"),
        ("import time; time.sleep(60)", 0.1, "not checked: the comparison takes more than 0 s\n"),
    ],
)
def test_a_comparison_that_cannot_be_done_is_no_error(tmp_path: Path, statement: str, seconds: float, said: str):
    place = CheckPlace(warm_python(), (str(tmp_path),), seconds=seconds)
    checked = asyncio.run(compared(MINIMAL.format(statement), place))
    assert (checked.done, checked.wrong) == (False, False)
    assert said in checked.output


def test_a_comparison_in_the_background_is_confined(folder: Path, tmp_path: Path):
    written = tmp_path / "written"
    checked = asyncio.run(in_background(f"open({str(written)!r}, 'w')", folder))
    assert (checked.done, written.exists()) == (False, False)
    assert "PermissionError: " in checked.output


def test_a_comparison_in_the_background_has_a_limit_on_memory(folder: Path):
    checked = asyncio.run(in_background("import torch; torch.zeros(1 << 28)", folder, memory_bytes=1 << 28))
    assert checked == Checked("not checked: the comparison needs more memory\n")


async def in_background(statement: str, folder: Path, memory_bytes: int = 4 << 30) -> Checked:
    limits = Limits(memory_bytes=memory_bytes)
    return await compared(MINIMAL.format(statement), CheckPlace(warm_python(), (str(folder),), limits))


def test_kernels_are_those_of_the_call_under_autocast(tmp_path: Path):
    (tmp_path / "model.py").write_text(
        """\
import torch


def projected(x, weight):
    return torch.tanh(x @ weight)


with torch.autocast("cuda", torch.bfloat16):
    projected(torch.randn(4, 8), torch.randn(8, 16, requires_grad=True)).sum().backward()
"""
    )
    done = kernel(tmp_path, "projected", "-o", "kernels.py")
    assert done.returncode == 0, done.stderr
    right = [line.split("  ")[1] for line in done.stderr.splitlines() if line.startswith("right")]
    assert right[:2] == ["out", "gradient of weight"]
    assert "torch.autocast(" in (tmp_path / "kernels.py").read_text()
