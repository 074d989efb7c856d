"""The library: graphs that compute what the function does, options, what is left as it was, and what is refused."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inline_snapshot import snapshot
from torch import nn

import fx_lsp
from fx_lsp.tracer.compat import HAS_ANNOTATE, HAS_COLUMNS

aten = torch.ops.aten

SCALE = torch.tensor([0.5, -1.0, 2.0, 1.5])
MASK = torch.ones(4, 4, dtype=torch.bool).tril()


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    return torch.softmax(scores.masked_fill(~MASK, float("-inf")), -1) @ v


def inner_row(x):
    y = x.clone()
    y[0].mul_(3)
    y[:, 1] = 0
    return y


def in_place(x):
    x.mul_(2)
    return x + 1


def in_place_of_two(x, y):
    x.add_(y)
    return x * y, x


def branches(x):
    with torch.no_grad():
        scale = x.abs().max()
    return x.detach() * x / scale


@torch.compile(backend="eager")
def compiled_double(x):
    return x * 2


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def mixed(x, n, scale=2.0):
    return [x * n, (x + scale, x.sum())]


def views_of_one(x):
    y = x.exp()
    return y, y.view(-1), y.t()


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "rms_norm": (rms_norm, [(3, 4), (4,)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), [(3, 4), (4,), (4,)]),
    "group_norm": (lambda x: F.group_norm(x, 2), [(2, 4, 5)]),
    "softmax": (lambda x: torch.softmax(x, -1), [(3, 4)]),
    "logsumexp": (lambda x: torch.logsumexp(x, 0), [(3, 4)]),
    "attention": (attention, [(2, 4, 8), (2, 4, 8), (2, 4, 8)]),
    "sdpa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(1, 2, 4, 8)] * 3),
    "linear_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), [(5, 4), (3, 4), (3,)]),
    "swiglu": (lambda x: F.silu(x[..., :2]) * x[..., 2:], [(3, 4)]),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), [(1, 3, 6, 6), (2, 3, 3, 3)]),
    "conv_transpose": (lambda x, w: F.conv_transpose1d(x, w), [(1, 3, 5), (3, 2, 2)]),
    "max_pool": (lambda x: F.max_pool2d(x, 2), [(1, 2, 4, 4)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [(1, 2, 3, 3)]),
    "embedding": (lambda ids, w: F.embedding(ids, w), [torch.tensor([[0, 2], [1, 2]]), (3, 4)]),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y), [(3, 4), torch.tensor([0, 3, 1])]),
    "dropout": (lambda x: F.dropout(x, 0.5, training=False) + x, [(3, 4)]),
    "einsum": (lambda a, b: torch.einsum("bij,jk->bik", a, b), [(2, 3, 4), (4, 5)]),
    "gather": (lambda x, i: x.gather(1, i), [(3, 4), torch.tensor([[0], [3], [1]])]),
    "topk": (lambda x: torch.topk(x, 2), [(3, 4)]),
    "where": (lambda x, y: torch.where(x > 0, x, y).cumsum(0), [(3, 4), (3, 4)]),
    "split_cat": (lambda x: torch.cat([c.relu() for c in x.split(2, -1)][::-1], -1), [(3, 4)]),
    "complex": (lambda x: torch.fft.rfft(x).abs(), [(3, 8)]),
    "half": (lambda x: (x.bfloat16() @ x.bfloat16().t()).float(), [(3, 4)]),
    "constant": (lambda x: x * SCALE + torch.tensor([1.0, 2.0, 3.0, 4.0]), [(3, 4)]),
    "constant_value": (lambda x: x * SCALE[0:1].repeat(4) * float(SCALE.detach().numel()), [(3, 4)]),
    "same_twice": (lambda x, y: x * y.sin(), ["same", "same"]),
    "same_written_into": (lambda x, y: x.mul_(2) * y, ["same", "same"]),
    "inner_row": (inner_row, [(3, 4)]),
    "in_place": (in_place, [(3, 4)]),
    "in_place_of_two": (in_place_of_two, [(3, 4), (3, 4)]),
    "view": (lambda x: x.t(), [(3, 4)]),
    "input_returned": (lambda x, y: (x, x * y), [(3, 4), (3, 4)]),
    "views_of_one": (views_of_one, [(3, 4)]),
    "no_grad_inside": (branches, [(3, 4)]),
    "autograd_function": (lambda x: Twice.apply(x).sum(0), [(3, 4)]),
    "mixed": (mixed, [(3, 4), 3]),
    "in_containers": (lambda xs, named: xs[0] @ xs[1] + named["b"], [[(3, 4), (4, 2)], {"b": (2,)}]),
    "torch_func": (lambda x: torch.func.grad(lambda y: (y * y).sum())(x).sin() * SCALE, [(3, 4)]),
    "vmap": (lambda x: torch.vmap(lambda row: row.sin() * row.sum() * SCALE)(x), [(3, 4)]),
    "compiled_inside": (lambda x: compiled_double(x).sin(), [(3, 4)]),
    "compiled": (torch.compile(lambda x: x.sin() * 2, backend="eager"), [(3, 4)]),
}
"""Functions with the shapes of their inputs, or the inputs."""


def made(value: Any) -> Any:
    if isinstance(value, tuple):
        return torch.randn(*value)
    if isinstance(value, list):
        same = torch.randn(3, 4)
        return [same if item == "same" else made(item) for item in value]
    return {key: made(item) for key, item in value.items()} if isinstance(value, dict) else value


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [tensor for item in items for tensor in tensors(item)]


def filled(value: Any, supply: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return next(supply)
    if isinstance(value, dict):
        return {key: filled(item, supply) for key, item in value.items()}
    return type(value)(filled(item, supply) for item in value) if isinstance(value, (list, tuple)) else value


def copied(inputs: Any, change: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> Any:
    """The inputs with a copy of each tensor; what is one tensor stays one."""
    copies = {id(t): t for t in tensors(inputs)}
    copies = {key: change(tensor) for key, tensor in copies.items()}
    return filled(inputs, (copies[id(t)] for t in tensors(inputs)))


def run(graph: torch.fx.Graph, values: Sequence[Any]) -> tuple[Any, ...]:
    """What a graph returns, in the module that holds its constants."""
    assert graph.owning_module is not None
    graph.lint()
    copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in values]
    with torch.no_grad():
        return torch.fx.GraphModule(graph.owning_module, graph)(*copies)


def placeholders(graph: torch.fx.Graph, kind: str | None = None) -> list[torch.fx.Node]:
    return [n for n in graph.nodes if n.op == "placeholder" and kind in (None, n.meta["kind"])]


def assert_same_gradients(
    forward: torch.fx.Graph,
    backward: torch.fx.Graph,
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    held: Sequence[torch.Tensor] = (),
) -> None:
    """Run both graphs and eager PyTorch on the values of `held` and `inputs`, with random gradients of the results."""
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors(inputs)]
    same = {id(t): leaf for t, leaf in zip(tensors(inputs), leaves, strict=True)}
    results = tensors(fn(*copied(inputs, lambda t: same[id(t)].clone())))
    values = [*held, *tensors(inputs)]
    tangents = [torch.randn_like(r) for r in results if r.requires_grad]
    given = [v.detach() for v in values]
    returned = run(forward, given)
    first = len(returned) - len(placeholders(backward, "saved"))
    written = len(placeholders(backward, "tangent")) - len(tangents)
    zeros = [torch.zeros_like(r) for r in returned[:written]]
    torch.testing.assert_close(list(returned[written:first]), [r.detach() for r in results])
    gradients = run(backward, [*returned[first:], *zeros, *tangents])
    assert len(gradients) == len(values) == len(placeholders(forward))
    wanted = [*(t for t in held if t.requires_grad), *dict.fromkeys(t for t in same.values() if t.requires_grad)]
    expected = torch.autograd.grad([r for r in results if r.requires_grad], wanted, tangents, allow_unused=True)
    sums = {id(t): torch.zeros_like(t) for t in wanted}
    for value, gradient in zip([*held, *(same[id(t)] for t in tensors(inputs))], gradients, strict=True):
        if gradient is not None:
            sums[id(value)] = sums[id(value)] + gradient
    for tensor, gradient in zip(wanted, expected, strict=True):
        torch.testing.assert_close(sums[id(tensor)], torch.zeros_like(tensor) if gradient is None else gradient)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_compute_what_the_function_does(name: str):
    fn, shapes = FUNCTIONS[name]
    torch.manual_seed(0)
    inputs = made(shapes)
    results = tensors(fn(*copied(inputs)))
    inference = fx_lsp.generate_inference_graph(fn, inputs)
    torch.testing.assert_close(list(run(inference, tensors(inputs))), results)
    forward, backward = fx_lsp.generate_forward_and_backward_graph(fn, inputs)
    assert_same_gradients(forward, backward, fn, inputs)
    for graph in (inference, forward, backward):
        assert not graph.find_nodes(op="call_function", target=aten.detach.default)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.tied = self.fc
        self.norm = nn.LayerNorm(4)
        self.register_buffer("shift", torch.ones(4))
        self.calls = []

    def forward(self, x):
        self.calls.append(x)
        self.last = self.norm(self.fc(x)) + self.shift
        return self.last


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def held_by(module: nn.Module, graph: torch.fx.Graph) -> list[torch.Tensor]:
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    return [state[n.meta["input"]] for n in placeholders(graph) if n.meta["kind"] in ("parameter", "buffer")]


@pytest.mark.parametrize(
    "make, inputs",
    [
        (Block, [(3, 4)]),
        (lambda: nn.Conv2d(3, 2, 3), [(1, 3, 5, 5)]),
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.ReLU()).eval(), [(2, 4)]),
        (lambda: nn.BatchNorm1d(4).eval(), [(3, 4)]),
        (Recurrent, [(2, 5, 4)]),
        (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), [(1, 3, 8)]),
    ],
    ids=["block", "conv", "sequential", "batch_norm", "lstm", "transformer"],
)
def test_modules_have_their_parameters_as_further_inputs(make: Callable[[], nn.Module], inputs: list[Any]):
    module, values = make(), made(inputs)
    forward, backward = fx_lsp.generate_forward_and_backward_graph(module, values, [True])
    assert_same_gradients(forward, backward, module, values, held_by(module, forward))


def test_a_module_is_left_as_it_was():
    module = nn.Sequential(Block(), nn.BatchNorm1d(4))
    before = {name: (id(t), t.clone(), t._version) for name, t in module.state_dict(keep_vars=True).items()}
    fx_lsp.generate_forward_and_backward_graph(module, [torch.randn(3, 4)])
    fx_lsp.trace(module, torch.randn(3, 4))
    after = module.state_dict(keep_vars=True)
    assert {n: (id(t), t._version) for n, t in after.items()} == {n: (i, v) for n, (i, _, v) in before.items()}
    assert all(torch.equal(after[name], copy) for name, (_, copy, _) in before.items())
    assert module[0].calls == [] and not hasattr(module[0], "last")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_of_torchscript():
    module, x = torch.jit.script(nn.Linear(3, 2)), torch.randn(4, 3, requires_grad=True)
    graphs = fx_lsp.generate_forward_and_backward_graph(module, [x])
    assert_same_gradients(*graphs, module, [x], list(module.parameters()))


def test_placeholders_are_named_after_the_source():
    forward, backward = fx_lsp.generate_forward_and_backward_graph(Block(), [torch.randn(3, 4)])
    assert [(n.name, n.meta["kind"], n.meta["input"]) for n in placeholders(forward)] == snapshot(
        [
            ("fc_weight", "parameter", "fc.weight"),
            ("fc_bias", "parameter", "fc.bias"),
            ("norm_weight", "parameter", "norm.weight"),
            ("norm_bias", "parameter", "norm.bias"),
            ("shift", "buffer", "shift"),
            ("x", "input", "x"),
        ]
    )
    assert [(n.name, n.meta["kind"]) for n in placeholders(backward)] == snapshot(
        [
            ("fc_weight", "saved"),
            ("norm_weight", "saved"),
            ("norm_bias", "saved"),
            ("x", "saved"),
            ("addmm", "saved"),
            ("getitem_1", "saved"),
            ("getitem_2", "saved"),
            ("grad_out", "tangent"),
        ]
    )
    (product,) = forward.find_nodes(op="call_function", target=aten.addmm.default)
    if HAS_ANNOTATE and HAS_COLUMNS:
        assert linecache.getline(__file__, product.meta["spans"][0].line).strip() == (
            "self.last = self.norm(self.fc(x)) + self.shift"
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t,
        lambda t: nn.Parameter(t),
        lambda t: t.requires_grad_() * 2,
        lambda t: t.t().contiguous().t(),
        lambda t: t[:, 1:],
        lambda t: t.double().expand(3, 4),
    ],
    ids=["plain", "parameter", "with history", "transposed", "slice", "expanded"],
)
def test_inputs_are_left_as_they_were(change: Callable[[Any], Any]):
    x = change(torch.randn(3, 4))
    if x.is_leaf:
        x.grad = torch.ones_like(x)
    before = x.detach().clone(), x.requires_grad, x.grad_fn, x._version, x.grad if x.is_leaf else None

    def fn(x):
        return x * 2 if x.is_leaf and x.requires_grad else x.mul_(3).add_(1) * 2

    fx_lsp.generate_inference_graph(fn, [x])
    fx_lsp.generate_forward_and_backward_graph(fn, [x])
    fx_lsp.trace(fn, x)
    after = x.requires_grad, x.grad_fn, x._version, x.grad if x.is_leaf else None
    assert torch.equal(x.detach(), before[0]) and after == before[1:]


def test_fake_tensors_are_inputs_too():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        x = torch.empty(3, 4)
    y = torch.randn(3, 4)
    forward, backward = fx_lsp.generate_forward_and_backward_graph(lambda x, y: x.mul_(y) * SCALE, [x, y])
    assert not x.requires_grad and x._version == 0 and not mode.allow_non_fake_inputs
    assert_same_gradients(forward, backward, lambda x, y: x.mul_(y) * SCALE, [torch.randn(3, 4), y])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_mode_around_does_not_matter(mode: Callable[[], Any]):
    with mode():
        x = torch.randn(3)
        _, backward = fx_lsp.generate_forward_and_backward_graph(lambda x: x.sin_(), [x])
    assert [n.name for n in backward.output_node().all_input_nodes] == ["grad_x"]


def grads(backward: torch.fx.Graph) -> list[str | None]:
    (results,) = backward.output_node().args
    return [None if r is None else r.name for r in results]


def test_which_inputs_require_a_gradient():
    def fn(x, y, ids):
        return x[ids] * y

    def differentiated(x: Any, y: Any, wanted: list[bool] | None = None) -> list[str | None]:
        graphs = fx_lsp.generate_forward_and_backward_graph(fn, [x, y, torch.tensor([0, 1])], wanted)
        return grads(graphs[1])

    plain, parameter = torch.randn(2), nn.Parameter(torch.randn(2))
    assert differentiated(plain, plain) == ["grad_x", "grad_y", None]
    assert differentiated(plain, parameter) == ["grad_x", "grad_y", None]
    assert differentiated(parameter.detach(), plain.requires_grad_()) == ["grad_x", "grad_y", None]
    assert differentiated(plain, parameter, [True, False, False]) == ["grad_x", None, None]


def test_parameters_require_a_gradient_where_they_say_so():
    module, x = nn.Linear(4, 2), torch.randn(3, 4)
    graphs = fx_lsp.generate_forward_and_backward_graph(module, [x])
    assert grads(graphs[1]) == ["grad_weight", "grad_bias", "grad_input"]
    module.requires_grad_(False)
    assert grads(fx_lsp.generate_forward_and_backward_graph(module, [x])[1]) == [None, None, "grad_input"]


def test_constants_are_attributes():
    weight = nn.Parameter(torch.randn(4))
    graph = fx_lsp.generate_inference_graph(lambda x: x * SCALE + weight, [torch.randn(3, 4)])
    targets = [n.target for n in graph.find_nodes(op="get_attr")]
    assert len(targets) == 2
    assert getattr(graph.owning_module, targets[0]) is SCALE


def test_decompositions():
    def ops(**options: Any) -> set[Any]:
        graph = fx_lsp.generate_inference_graph(lambda x: F.silu(x).t(), [torch.randn(3, 4)], **options)
        return {n.target for n in graph.nodes if n.op == "call_function"}

    assert ops() == {aten.silu.default, aten.t.default}
    assert ops(decompositions="core") == {aten.sigmoid.default, aten.mul.Tensor, aten.permute.default}
    table = {aten.silu: lambda x: x * torch.sigmoid(x)}
    assert ops(decompositions=table) == {aten.sigmoid.default, aten.mul.Tensor, aten.t.default}
    with pytest.raises(ValueError, match="'cores'"):
        ops(decompositions="cores")


def test_static_arguments_are_constants():
    x, y = torch.randn(3), torch.randn(3)
    forward, backward = fx_lsp.generate_forward_and_backward_graph(torch.mul, [x, y], static_argnums=-1)
    assert len(placeholders(forward)) == 1 and grads(backward)[0] is not None
    assert torch.equal(run(forward, [x])[0], x * y)
    with pytest.raises(ValueError, match="static_argnums has 2, but there are 2 example inputs"):
        fx_lsp.generate_inference_graph(torch.mul, [x, y], static_argnums=2)
    with pytest.raises(ValueError, match="which is a constant"):
        fx_lsp.generate_forward_and_backward_graph(torch.mul, [x, y], [True, True], static_argnums=1)


def test_dynamic_graphs_hold_for_other_sizes():
    def fn(x, y):
        return (torch.cat([x, y]) * x.shape[0]).exp().view(-1)

    forward, backward = fx_lsp.generate_forward_and_backward_graph(
        fn, [torch.randn(3, 4), torch.randn(2, 4)], dynamic=True
    )
    assert_same_gradients(forward, backward, fn, [torch.randn(7, 5), torch.randn(6, 5)])
    inference = fx_lsp.generate_inference_graph(fn, [torch.randn(3, 4), torch.randn(2, 4)], dynamic=True)
    x, y = torch.randn(7, 5), torch.randn(6, 5)
    torch.testing.assert_close(run(inference, [x, y])[0], fn(x, y))


def test_another_partitioner():
    from functorch.compile import default_partition

    def fn(x):
        return x.sin().cos()

    def saved(**options: Any) -> int:
        _, backward = fx_lsp.generate_forward_and_backward_graph(fn, [torch.randn(3)], **options)
        return len(placeholders(backward, "saved"))

    assert (saved(), saved(partition_fn=default_partition)) == (1, 2)


def cannot(error: str, fn: Callable[..., Any], *inputs: Any, wanted: list[bool] | None = None) -> None:
    with pytest.raises(ValueError) as raised:
        fx_lsp.generate_forward_and_backward_graph(fn, list(inputs), wanted)
    assert error in str(raised.value)


def writes_into_a_constant(x):
    SCALE.add_(1)
    return x * SCALE


def test_what_is_refused():
    x = torch.randn(4)
    cannot("requires_grad has 1 values for 2 example inputs", torch.mul, x, x, wanted=[True])
    cannot("requires_grad is true for y", lambda x, y: x[y], x, torch.tensor([1]), wanted=[True, True])
    cannot("<lambda> returns a dict: return a tensor", lambda x: {"a": x}, x)
    cannot("<lambda> returns None", lambda x: None, x)
    cannot("there is no tensor in the tuple", lambda x: (1, 2), x)
    cannot("nothing is differentiable: no input", lambda x: x + 1, torch.tensor([1]))
    cannot("nothing is differentiable: no input", lambda x: x.to_dense(), x.to_sparse())
    cannot("nothing is differentiable: no input", lambda x: x + 1, x, wanted=[False])
    cannot("nothing is differentiable: no result", lambda x: x.argmax(), x)
    cannot("nothing is differentiable: no result", lambda x: x.detach() * 2, x)
    cannot("no graph was captured: `x.sum().item()` turns", lambda x: x * x.sum().item(), x)
    cannot(
        "turns a tensor into Python numbers, and a trace has shapes but no values",
        lambda x: torch.as_tensor(x.numpy()),
        x,
    )
    cannot("writes into inputs that share memory", lambda x, y: x.mul_(2) + y, x, x[:])
    with pytest.raises(ValueError, match="example_inputs must be a list or tuple"):
        fx_lsp.generate_inference_graph(torch.sin, x)  # type: ignore[arg-type]


def test_constants_are_not_written_into():
    before = SCALE.clone()
    cannot("`add_` writes into a tensor that is not an input", writes_into_a_constant, torch.randn(4))
    assert torch.equal(SCALE, before)


def test_errors_of_the_function_are_passed_on():
    class Wrong(Exception):
        pass

    def fn(x):
        raise Wrong

    with pytest.raises(Wrong):
        fx_lsp.generate_inference_graph(fn, [torch.randn(3)])
    with pytest.raises(RuntimeError, match=r"broadcast|size of tensor"):
        fx_lsp.trace(lambda x: x + SCALE, torch.randn(3))


def test_a_trace_is_what_an_editor_shows(capsys: pytest.CaptureFixture[str]):
    traced = fx_lsp.trace(rms_norm, torch.randn(3, 4), torch.randn(4))
    assert [stage.name for stage in traced.stages] == ["joint", "forward", "backward"]
    assert [(i.name, i.spec) for i in traced.inputs] == [("x", "f32[3, 4]"), ("weight", "f32[4]")]
    assert {s.name for s in traced.saved} >= {"x", "weight"}
    assert re.fullmatch(r"<Traced rms_norm: 6 ops forward · \d+ backward · saves 12 B>", repr(traced))
    traced.show("backward")
    assert capsys.readouterr().out == traced.text("backward")
    assert traced.text().startswith("# test_api.py::rms_norm · forward graph")
    assert not HAS_ANNOTATE or "return x * torch.rsqrt(" in traced.text()
    with pytest.raises(ValueError, match="there is no inference graph; the graphs are joint, forward, backward"):
        traced.stage("inference")


def test_a_trace_of_code_around_a_module_has_its_parameters():
    fc = nn.Linear(4, 2)
    weight, version = fc.weight, fc.weight._version
    traced = fx_lsp.trace(lambda x: fc(x), torch.randn(3, 4))
    assert [n.name for n in traced.stage().nodes if n.op == "placeholder"] == ["fc_weight", "fc_bias", "x"]
    assert fc.weight is weight and weight._version == version and weight.grad is None


def test_a_trace_of_what_is_not_differentiable():
    traced = fx_lsp.trace(lambda x: x + 1, torch.tensor([1, 2]))
    assert [stage.name for stage in traced.stages] == ["inference"]
    assert traced.stage().name == "inference"


@pytest.mark.skipif(not (HAS_ANNOTATE and HAS_COLUMNS), reason="operations are not linked to expressions")
def test_notebook_cells():
    cells = {
        "<ipython-input-6-fx>": "def helper(x):\n    return x.exp()\n",
        "<ipython-input-7-fx>": "def cell(x):\n    y = helper(x)\n    return y < 1\n",
    }
    namespace: dict[str, Any] = {}
    for name, source in cells.items():
        exec(compile(source, name, "exec"), namespace)
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    traced = fx_lsp.trace(namespace["cell"], torch.randn(3))
    assert traced.text().replace(torch.__version__, "2.x") == snapshot("""\
# <ipython-input-7-fx>::cell · inference graph · 2 ops
# torch 2.x · 2 ops · nothing to differentiate
#   x: f32[3]   (call site)

def inference(x: f32[3]):
    # <ipython-input-6-fx>:2  return x.exp()
    y: f32[3] = aten.exp.default(x)

    # <ipython-input-7-fx>:3  return y < 1
    lt: b8[3] = aten.lt.Scalar(y, 1)
    return (lt,)
""")
    assert "<details open><summary>inference</summary><pre>" in traced._repr_html_()
    assert "y &lt; 1" in traced._repr_html_()
    assert traced._repr_markdown_().startswith("**inference**\n\n```python\n#")


def test_names_of_dynamic_sizes_and_what_became_of_them():
    traced = fx_lsp.trace(lambda x, y: x + y, torch.randn(3, 4), torch.randn(3, 4), dynamic=True)
    assert [i.spec for i in traced.inputs] == snapshot(["f32[x_0, x_1]", "f32[x_0, x_1]"])
    assert sorted(remark.message for remark in traced.trace.remarks) == snapshot(
        ["`x + y` only broadcasts when y_0 == x_0", "`x + y` only broadcasts when y_1 == x_1"]
    )


def test_importing_the_library_imports_no_torch():
    code = "import sys, fx_lsp; known = set(sys.modules); fx_lsp.trace; assert 'torch' in set(sys.modules) - known"
    code += "; assert not {'pygls', 'numpy'} & known"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""
    with pytest.raises(AttributeError, match="no attribute 'tracing_'"):
        fx_lsp.tracing_  # noqa: B018
