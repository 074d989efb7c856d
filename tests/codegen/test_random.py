"""Random numbers: drawn in the kernel from a seed, the same in backward as in forward."""

import math

import torch
import torch.nn.functional as F
from interpreted import captured, generated, loaded


def kernels(function, *inputs):
    return loaded(generated(captured(function, inputs)))


def seeded(module, *inputs):
    torch.manual_seed(0)
    return module.f(*inputs)


def test_dropout_keeps_the_same_elements_in_backward():
    def f(x):
        return F.dropout(torch.relu(x), 0.3)

    x = torch.randn(61, 127, requires_grad=True)
    module = kernels(f, x)
    out = module.f(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    kept = out != 0
    assert 0.65 < kept.sum() / (x > 0).sum() < 0.75
    torch.testing.assert_close(out[kept], x[kept] / 0.7)
    torch.testing.assert_close(grad, kept / 0.7)


def test_no_mask_is_saved_for_backward():
    file = generated(captured(lambda x: F.dropout(x, 0.3) * 2, (torch.randn(64, 64, requires_grad=True),)))
    assert "ctx.save_for_backward(seeds)" in file.text


def test_a_seed_of_the_generator_gives_the_same_numbers_and_the_next_call_others():
    x = torch.zeros(1000)
    module = kernels(lambda x: x + torch.rand_like(x), x)
    first, again = seeded(module, x), seeded(module, x)
    assert torch.equal(first, again)
    assert not torch.equal(first, module.f(x))


def test_two_draws_are_independent():
    x = torch.zeros(10000)
    a, b = kernels(lambda x: (x + torch.randn_like(x), x + torch.randn_like(x)), x).f(x)
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.05


def test_distributions():
    def f(x):
        return (
            x + torch.rand_like(x),
            x + torch.randn_like(x),
            x + torch.bernoulli(torch.full_like(x, 0.2)),
            x + torch.empty_like(x).uniform_(2, 4),
            x + torch.empty_like(x).normal_(5, 0.5),
        )

    x = torch.zeros(100, 100)
    moments = [(t.mean(), t.std()) for t in kernels(f, x).f(x)]
    wanted = [(0.5, math.sqrt(1 / 12)), (0, 1), (0.2, 0.4), (3, math.sqrt(4 / 12)), (5, 0.5)]
    torch.testing.assert_close(torch.tensor(moments), torch.tensor(wanted), atol=0.05, rtol=0)


def test_dropout_on_the_weights_of_attention():
    def f(q, k, v):
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), -1)
        return F.dropout(weights, 0.25) @ v

    q, k, v = (torch.randn(2, 64, 64, requires_grad=True) for _ in range(3))
    module = kernels(f, q, k, v)
    assert "tl.dot" in module.__loader__.get_data(module.__file__).decode()
    dropped = seeded(module, q, k, torch.eye(64).expand(2, 64, 64).contiguous()).detach()
    assert 0.2 < (dropped == 0).float().mean() < 0.3
    weights = F.softmax(q @ k.transpose(-2, -1) / 8, -1)
    mask = (dropped != 0) / 0.75
    torch.testing.assert_close(dropped, weights * mask)
    out, right = seeded(module, q, k, v), (weights * mask) @ v
    given = torch.randn_like(right)
    torch.testing.assert_close(out, right)
    for found, wanted in zip(*(torch.autograd.grad(o, (q, k, v), given) for o in (out, right)), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
