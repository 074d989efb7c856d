"""What a user chooses: the engine, fusing, what is recomputed, precision."""

import pytest
import torch
import torch.nn.functional as F
from interpreted import captured, generated, loaded, wrong

from fx_lsp.choices import Choices, read_choices
from fx_lsp.model import write_work


def gated(x, w):
    return (F.gelu(x) * torch.sigmoid(w)).sum(-1)


def inputs():
    torch.manual_seed(0)
    return [torch.randn(33, 65, requires_grad=True) for _ in range(2)]


def text(function, found, **chosen):
    choices = Choices(**chosen)
    return generated(captured(function, found, choices), choices=choices).text


@pytest.mark.parametrize(
    "chosen", [{"fuse": "no"}, {"backward": "save"}, {"backward": "balance"}, {"precision": "tf32"}], ids=str
)
def test_right_with_every_choice(chosen):
    assert wrong(gated, inputs(), choices=Choices(**chosen)) == []


def test_without_fusing_every_operation_has_a_kernel():
    one, each = (text(gated, [t.detach() for t in inputs()], fuse=fuse) for fuse in ("yes", "no"))
    assert one.count("@triton.jit\ndef f_kernel") == 1
    assert each.count("@triton.jit\ndef f_kernel") > 5


def test_what_backward_gets():
    saved = {
        b: text(gated, inputs(), backward=b).split("save_for_backward(")[1].split(")")[0] for b in ("recompute", "save")
    }
    assert saved["recompute"].count(",") < saved["save"].count(",")


def test_precision_is_that_of_products():
    def product(x, w):
        return torch.tanh(x @ w)

    matrices = [torch.randn(32, 32) for _ in range(2)]
    assert 'input_precision="ieee"' in text(product, matrices)
    assert 'input_precision="tf32"' in text(product, matrices, precision="tf32")


def test_inductor_compiles_the_same_graphs_in_the_same_file():
    found, choices = inputs(), Choices(engine="inductor")
    file = generated(captured(gated, found, choices), choices=choices)
    assert file.text.count("@torch.compile(fullgraph=True)") == 2
    assert "import triton" not in file.text
    ours, theirs = loaded(file).f(*found), gated(*found)
    torch.testing.assert_close(ours, theirs)
    given = torch.randn_like(ours)
    torch.testing.assert_close(torch.autograd.grad(ours, found, given), torch.autograd.grad(theirs, found, given))


def test_a_choice_that_there_is_not():
    with pytest.raises(ValueError, match="there is no precision=fp4: choose one of ieee, tf32, tf32x3"):
        read_choices({"triton": "", "precision": "fp4"})


def test_choices_are_options_of_work():
    choices = Choices(precision="tf32", fuse="no")
    assert write_work({"triton": "", **choices.parts()}) == "triton&fuse=no&precision=tf32"
    assert read_choices({"triton": "", "fuse": "no", "precision": "tf32"}) == choices
