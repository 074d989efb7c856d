"""Shapes as people write them, and demands as code states them."""

import ast

import pytest

from fx_lsp.tracer.inputs.evidence.requirements import Requirement, requirements
from fx_lsp.tracer.inputs.plan.dims import parameter_shape, shapes_in, sizes_of, words
from fx_lsp.tracer.inputs.solve.conditions import conditions_at


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("Input must have a shape of (*, 3, H, W). Got torch.Size([4, 8])", [("...", 3, "H", "W"), (4, 8)]),
        ("we expect BxCxHxW. Got: torch.Size([4, 64])", [("B", "C", "H", "W"), (4, 64)]),
        ("Input matrix must be a Bx2x3 tensor", [("B", 2, 3)]),
        ("[h or 1, m, d]", [("h", "m", "d")]),
        ("3 x H x W", [(3, "H", "W")]),
        (":math:`(N, C, d_1)` where C = number of classes", [("N", "C", "d_1")]),
        ("of shape (batch_size, seq_len, dim // 2)", [("batch_size", "seq_len", "dim//2")]),
        ("(..., 3)", [("...", 3)]),
        ("got torch.Size([32])", [(32,)]),
        ("shape (N,)", [("N",)]),
        ("eps (float, optional): small number (default: 1e-5)", []),
        ("one of the modes (see below), e.g. (mean, sum)", []),
        ("a max pooling of size 2x2 pixels", []),
    ],
)
def test_shapes_in_words(text: str, shapes: list[tuple[int | str, ...]]) -> None:
    assert shapes_in(text) == shapes


def test_the_same_name_is_the_same_size() -> None:
    named: dict[str, int] = {}
    assert sizes_of(words("b t d"), named, set()) == (4, 8, 64)
    assert sizes_of(words("*lead b d 3"), named, set()) == (12, 4, 64, 3)
    assert sizes_of(("B", "..."), {}, set()) == (64,)


GOOGLE = """Convert.

Args:
    image: RGB image
        with shape :math:`(*, 3, H, W)`.
    eps (float, optional): small
    weight (Tensor): one for each class, of shape [C]
"""
NUMPY = """Convert.

Parameters
----------
image : Tensor
    of shape (B, H, W)
"""
SPHINX = """Convert.

:param image: the image, (N, 1, H, W)
"""


def test_shapes_of_parameters_in_docstrings() -> None:
    assert parameter_shape(GOOGLE, "image") == ("...", 3, "H", "W")
    assert parameter_shape(GOOGLE, "eps") is None
    assert parameter_shape(NUMPY, "image") == ("B", "H", "W")
    assert parameter_shape(SPHINX, "image") == ("N", 1, "H", "W")
    assert parameter_shape("raw: [rays, samples along a ray, 4]\nrays: [rays, 3]", "raw") is None


@pytest.mark.parametrize(
    ("code", "demands"),
    [
        ("assert x.dim() == 4", [Requirement("x", rank=4)]),
        ("assert x.ndim >= 3 and x.shape[-1] == 2", [Requirement("x", min_rank=3), Requirement("x", index=-1, size=2)]),
        ("if len(x.shape) != 3: raise E", [Requirement("x", rank=3)]),
        ("if not (len(x.shape) == 3): raise E", [Requirement("x", rank=3)]),
        (
            "if len(x.shape) < 3 or x.shape[-3] != 3: raise E",
            [Requirement("x", min_rank=3), Requirement("x", index=-3, size=3)],
        ),
        ("if x.dim() not in (2, 3): raise E", [Requirement("x", rank=2)]),
        ("if x.size(1) != 7: raise E", [Requirement("x", index=1, size=7)]),
        (
            "if x.shape[-2:] != (3, 4): raise E",
            [Requirement("x", index=-1, size=4), Requirement("x", index=-2, size=3)],
        ),
        ("if 3 > x.ndim: raise E", [Requirement("x", min_rank=3)]),
        ("if x.dim() == 3: x = x[None]", []),
        ("if x.sum() > 3: raise E", []),
    ],
)
def test_demands(code: str, demands: list[Requirement]) -> None:
    assert list(requirements(ast.parse(code))) == demands


def test_the_conditions_of_a_raise_are_the_innermost_first() -> None:
    tree = ast.parse("if a:\n  if x.dim() != 2:\n    raise E\nelif c:\n  y = 1\nelse:\n  raise E\nassert b\n")
    found = [[(ast.unparse(test), truth) for test, truth in conditions_at(tree, line)] for line in (3, 7, 8)]
    assert found == [[("x.dim() != 2", False), ("a", False)], [("c", True), ("a", True)], [("b", True)]]
