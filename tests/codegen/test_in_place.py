"""Functions that change their arguments: kernels write new values over the old ones where nothing else needs those."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from files import names_in
from inline_snapshot import snapshot

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch


# fx: p=f32[33, 40], grad=f32[33, 40], m=f32[33, 40], v=f32[33, 40]
@torch.no_grad()
def adamw(p, grad, m, v, lr: float = 1e-3, decay: float = 0.1):
    m.mul_(0.9).add_(grad, alpha=0.1)
    v.mul_(0.95).addcmul_(grad, grad, value=0.05)
    p.mul_(1 - lr * decay)
    p.addcdiv_(m, v.sqrt() + 1e-8, value=-lr)
    return p


# fx: p=f32[8, 8], sp=f32[8, 8], psp=f32[8, 8]
@torch.no_grad()
def alike(p, sp, psp):
    p.add_(sp)
    sp.mul_(p)
    psp.add_(sp)


# fx: shadow=f32[7, 129], p=f32[7, 129]
@torch.no_grad()
def ema(shadow, p):
    shadow.lerp_(p, 0.01)


# fx: x=f32[9, 100]
@torch.no_grad()
def softmax_(x):
    x.sub_(x.amax(-1, keepdim=True)).exp_()
    x.div_(x.sum(-1, keepdim=True))


# fx: x=i64[40], y=f32[5, 7]
@torch.no_grad()
def filled(x, y):
    y.fill_(3.0)
    return x.add_(1)


# fx: x=f32[40]
@torch.no_grad()
def rolled(x):
    x.copy_(x.roll(1))
    return x


# fx: x=f32[8, 8], y=f32[8, 8]
@torch.no_grad()
def transposed(x, y):
    x.add_(x.t() * y)
    return x


# fx: x=f32[40]
@torch.no_grad()
def old(x):
    before = x.clone()
    x.mul_(2)
    return before


# fx: x=f32[6, 40]
@torch.no_grad()
def later(x):
    weights = x.exp()
    x.mul_(2)
    return weights.sum(0) @ torch.ones(40, 3, device=x.device)


# fx: x=f32[6, 20000]
@torch.no_grad()
def long_rows(x):
    x.div_(x.norm(dim=-1, keepdim=True))


# fx: x=f32[20], index=torch.tensor([1, 4, 4]), y=f32[3]
@torch.no_grad()
def added(x, index, y):
    x.index_add_(0, index, y)


# fx: x=f32[4, 10]
@torch.no_grad()
def part(x):
    x[:, 2:5].mul_(3)


# fx: x=f32[4, 10], y=f32[4, 10]
@torch.no_grad()
def row(x, y):
    x.sub_(y, alpha=0.1)
    return x[1]


# fx: x=torch.randn(12)
def plain(x):
    x.mul_(2)
    return x.sum()
"""
NAMES = names_in(SOURCE)

CALLS = """\
import torch
from adamw import adamw, adamw_forward
from ema import ema
from plain import plain

p, grad, m, v = (torch.rand(33, 40) for _ in range(4))
version = p._version
print("the same tensor", adamw(p, grad, m, v) is p, p._version > version)
print(torch.ops.adamw_triton.forward.default._schema)
shadow, weight = torch.rand(7, 129), torch.rand(7, 129, requires_grad=True)
product = (shadow * weight).sum()
ema(shadow, torch.rand(7, 129))
for wrong in (product.backward, lambda: plain(torch.rand(12, requires_grad=True))):
    try:
        wrong()
    except (RuntimeError, ValueError) as error:
        print(str(error).partition(" [")[0])
with torch.inference_mode():
    print("inference", plain(torch.ones(12)).item())
"""
SCRIPTS = {"calls": CALLS}
"""What else holds of functions that change tensors in place."""


@pytest.mark.parametrize("name", NAMES)
def test_values_are_right(name: str, said: dict[str, str]) -> None:
    assert "wrong" not in said[name]
    assert "off by" in said[name]
    assert said[name].endswith("exit 0\n")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_overwritten(name: str, files: dict[str, str]) -> None:
    """What another program, a later round or a later kernel still reads is computed aside."""
    found = re.findall(r"overwrites=\[(.*)\]", files[name])
    expected = {
        "adamw": ['"p", "m", "v"'],
        "alike": ['"p", "sp", "psp"'],
        "ema": ['"shadow"'],
        "softmax_": ['"x"'],
        "filled": ['"y", "x"'],
        "old": ['"x"'],
        "added": ['"x"'],
        "part": ['"x"'],
        "row": ['"x"'],
        "plain": ['"x"'],
    }
    assert found == expected.get(name, [])
    assert (".copy_(" in files[name].partition("def original")[0]) == (not found)


def test_an_optimizer_reads_and_writes_each_tensor_once(files: dict[str, str]) -> None:
    kernel = files["adamw"].partition("@triton.jit\n")[2].partition("\n\n\n")[0]
    assert kernel == snapshot("""\
def adamw_kernel(m_ptr, grad_ptr, v_ptr, p_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    m = tl.load(m_ptr + cols, mask=mask)
    grad = tl.load(grad_ptr + cols, mask=mask)
    # model.py:7  m.mul_(0.9).add_(grad, alpha=0.1)
    new_m = m * 0.9 + grad * 0.1
    v = tl.load(v_ptr + cols, mask=mask)
    p = tl.load(p_ptr + cols, mask=mask)
    tl.store(m_ptr + cols, new_m, mask=mask)
    # model.py:8  v.mul_(0.95).addcmul_(grad, grad, value=0.05)
    new_v = v * 0.95 + grad * 0.05 * grad
    tl.store(v_ptr + cols, new_v, mask=mask)
    # model.py:10  p.addcdiv_(m, v.sqrt() + 1e-8, value=-lr)
    p_1 = p * 0.9999 + new_m * -0.001 / (tl.sqrt(new_v) + 1e-08)
    tl.store(p_ptr + cols, p_1, mask=mask)\
""")


def test_nothing_outside_of_no_grad(files: dict[str, str]) -> None:
    text = files["row"]
    assert text[text.index("    with torch.no_grad():") : text.index("\n\n\ndef original")] == snapshot("""\
    with torch.no_grad():
        row_forward(*tensors)
        return x.select(0, 1)\
""")


def test_tuning_leaves_values_as_they_are(files: dict[str, str]) -> None:
    for name in ("adamw", "ema"):
        tuned = "@autotuned(" in files[name]
        assert tuned == ("restore_value=[" in files[name])


def test_torch_compile_sees_what_is_overwritten(files: dict[str, str], tmp_path: Path) -> None:
    """Without a GPU it cannot run the kernels."""
    script = """\
import torch
from torch._dynamo.backends.common import aot_autograd
from adamw import adamw


def shown(module, inputs):
    print(*sorted({n.target.__name__ for n in module.graph.nodes if n.op == "call_function"}))
    raise SystemExit


torch.compile(adamw, backend=aot_autograd(fw_compiler=shown), fullgraph=True)(*(torch.rand(33, 40) for _ in range(4)))
"""
    (tmp_path / "adamw.py").write_text(files["adamw"])
    environment = {n: v for n, v in os.environ.items() if n != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == snapshot(["auto_functionalized_v2", "getitem"]), done.stderr


def test_autograd_notices(said: dict[str, str]) -> None:
    assert said["calls"] == snapshot("""\
the same tensor True True
adamw_triton::forward(Tensor(a0!) p, Tensor grad, Tensor(a2!) m, Tensor(a3!) v) -> ()
one of the variables needed for gradient computation has been modified by an inplace operation:
x gets no gradient from these kernels: pass x.detach()
inference 24.0
""")
