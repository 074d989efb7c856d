"""Values that code accepts, as its checks, its tables and the words of its errors tell them."""

from __future__ import annotations

import pytest
from conftest import TraceFixture

SOURCE = '''
import torch
import torch.nn.functional as F
from torch import nn

KINDS = {"sum": torch.sum, "top": torch.amax}
BORDERS = ("mirror", "wrap")
STRICT = True

def check(holds: bool, message: str = "") -> bool:
    if not holds:
        raise ValueError(message)
    return True

def compared(x: torch.Tensor, kind: str):
    if kind.lower() not in KINDS:
        raise ValueError("unknown")
    return KINDS[kind](x)

def chosen(x: torch.Tensor, kind: str):
    return helped(x, kind)

def helped(x, kind):
    if kind == "left":
        return x - 1
    elif kind == "right":
        return x + 1
    else:
        raise ValueError("not a side")

def matched(x: torch.Tensor, kind: str):
    match kind:
        case "left":
            return x - 1
        case "right":
            return x + 1
        case _:
            raise ValueError("not a side")

def ranks(x: torch.Tensor):
    return helped_by_rank(x)

def helped_by_rank(x):
    if len(x.shape) == 3:
        return x.sum(0)
    elif len(x.shape) == 4:
        return x.sum((0, 1))
    else:
        raise ValueError("not an image")

def looked_up(x: torch.Tensor, kind: str):
    return KINDS[kind](x)

def checked(x: torch.Tensor, kind: str, power: int = 2):
    check(kind in BORDERS, "unknown")
    check(x.ndim == 3, "not of three dimensions")
    return x.roll(1) ** power if kind == "wrap" else x.flip(-1)

def worded(x: torch.Tensor, border: str):
    known = sorted(BORDERS)
    if known.count(border) == 0:
        raise ValueError(f"Invalid border, {border}. Expected one of {', '.join(known)}")
    return x * known.index(border)

def quoted(x: torch.Tensor, border: str):
    if not border.endswith("ap"):
        raise NotImplementedError(f"Border should be `mirrorap` or `wrap`. Got {border}")
    return x * 2

def padded(x: torch.Tensor, mode: str):
    return F.pad(x[None], (1, 1), mode=mode)

def reduced(x: torch.Tensor, y: torch.Tensor, reduction: str):
    return F.mse_loss(x, y, reduction=reduction)

def colored(x: torch.Tensor):
    if len(x.shape) < 3 or x.shape[-3] not in [1, 3]:
        if STRICT:
            raise ValueError("no colors")
    return x.mean(-3)

def ranged(image: torch.Tensor):
    """Makes it lighter.

    Args:
        image: values in the range [0, 255], of shape (*, 3, H, W).
    """
    return image / 255

class Window(nn.Module):
    def __init__(self, window_size: int):
        super().__init__()
        self.window_size = window_size

    def forward(self, x: torch.Tensor):
        check(self.window_size % 2 == 1, f"The size has to be odd, it is {self.window_size}")
        return F.avg_pool1d(x[None], self.window_size, 1, self.window_size // 2)

class Shaped(nn.Module):
    def __init__(self, shape: int, border: str):
        super().__init__()
        self.shape, self.border = shape, border

    def forward(self, x: torch.Tensor):
        if self.border not in BORDERS:
            raise ValueError(f"border is '{self.border}', not 'wrap'")
        return x.expand((3,) + self.shape) * 2
'''


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("compared", ["f32[4, 64]", "'sum'"], id="what a check compares with"),
        pytest.param("chosen", ["f32[4, 64]", "'right'"], id="the branches before one that raises"),
        pytest.param("matched", ["f32[4, 64]", "'left'"], id="the cases before one that raises"),
        pytest.param("ranks", ["f32[8, 12, 4, 64]"], id="the ranks that other branches take"),
        pytest.param("looked_up", ["f32[4, 64]", "'sum'"], id="the keys of a table"),
        pytest.param("checked", ["f32[8, 4, 64]", "'wrap'", "2"], id="a function that checks"),
        pytest.param("worded", ["f32[4, 64]", "'mirror'"], id="a list in the words"),
        pytest.param("quoted", ["f32[4, 64]", "'mirrorap'"], id="quoted words"),
        pytest.param("padded", ["f32[4, 64]", "'constant'"], id="modes of PyTorch"),
        pytest.param("reduced", ["f32[4, 64]", "f32[4, 64]", "'mean'"], id="reductions of PyTorch"),
        pytest.param("colored", ["f32[1, 4, 64]"], id="the condition around a condition"),
        pytest.param("ranged", ["f32[4, 3, 12, 64]"], id="a range is no shape"),
        pytest.param("Window", ["5", "f32[8, 64]"], id="an odd number that a constructor takes"),
        pytest.param("Shaped", ["(2, 2)", "'wrap'", "f32[3, 2, 2]"], id="a string and a tuple of a constructor"),
    ],
)
def test_what_is_found(trace: TraceFixture, name: str, found: list[str]) -> None:
    assert [given.spec for given in trace(SOURCE, name).trace.inputs] == found
