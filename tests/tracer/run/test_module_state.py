"""What modules hold, and when: sizes that a first call decides, hooks, computed weights, tensors in containers."""

import pytest
from conftest import in_fork
from inline_snapshot import snapshot

PRELUDE = """
import torch
from torch import nn
from torch.nn import utils
from torch.nn.utils import parametrizations, parametrize, prune
"""


def net(init: str, forward: str, methods: str = "") -> str:
    """A file with one module, from the lines of its constructor, its `forward` and its other methods."""

    def indented(text: str, by: int) -> str:
        return "".join(" " * by + line + "\n" for line in text.split("\n"))

    return (
        f"{PRELUDE}\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n{indented(init, 8)}"
        f"    def forward(self, x):\n{indented(forward, 8)}{indented(methods, 4)}"
    )


def given(traced, stage="joint"):
    """The inputs of a graph besides gradients: `fc_weight: f32[8, 8]`."""
    nodes = [n for n in traced.stage(stage).nodes if n.op == "placeholder" and not n.name.startswith("grad_")]
    return [f"{n.name}: {n.spec}" for n in nodes]


def ops(traced, stage):
    return [n.target.split(".")[1] for n in traced.stage(stage).nodes if n.op == "call_function"]


def gradients(traced):
    """What the backward graph returns."""
    return traced.stage("backward").nodes[-1].args[0]


@pytest.mark.parametrize(
    ("layer", "comment", "inputs"),
    [
        ("nn.LazyLinear(16)", "x=f32[4, 8]", ["weight: f32[16, 8]", "bias: f32[16]"]),
        ("nn.LazyLinear(2).to('cuda').double()", "x=f64[B, 8]@cuda", ["weight: f64[2, 8]@cuda", "bias: f64[2]@cuda"]),
        ("nn.LazyConv2d(16, 3)", "x=f32[2, 3, 9, 9]", ["weight: f32[16, 3, 3, 3]", "bias: f32[16]"]),
        (
            "nn.LazyBatchNorm1d(affine=False)",
            "x=f32[4, 8]",
            ["running_mean: f32[8]", "running_var: f32[8]", "num_batches_tracked: i64[]"],
        ),
    ],
    ids=["linear", "moved, with a named size", "convolution", "buffers"],
)
def test_lazy_layers(layer: str, comment: str, inputs: list[str], trace):
    traced = trace(net(f"self.fc = {layer}", "return self.fc(x)"), "Net", comment=comment)
    assert given(traced) == [*(f"fc_{i}" for i in inputs), comment.replace("=", ": ")]


def test_inputs_of_lazy_layers_are_searched_for(trace):
    traced = trace(
        net("self.conv = nn.LazyConv2d(16, 3)\nself.fc = nn.LazyLinear(10)", "return self.fc(self.conv(x).flatten(1))"),
        "Net",
    )
    assert traced.inputs() == snapshot(["x: f32[4, 8, 64, 64] · search"])
    assert traced.trace.notes == snapshot(
        ("traced after a first call, which creates conv.weight, conv.bias, fc.weight, fc.bias",)
    )


def test_lazy_modules_of_ones_own(trace):
    source = (
        PRELUDE
        + """
class Net(nn.modules.lazy.LazyModuleMixin, nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.UninitializedParameter()
        self.register_buffer("shift", nn.UninitializedBuffer())
    def initialize_parameters(self, x):
        if self.has_uninitialized_params():
            self.w.materialize((x.shape[-1], 5))
            self.shift.materialize((5,))
            nn.init.xavier_uniform_(self.w)
    def forward(self, x):
        return x @ self.w + self.shift
"""
    )
    assert given(trace(source, "Net", comment="x=f32[4, 8]")) == snapshot(
        ["w: f32[8, 5]", "shift: f32[5]", "x: f32[4, 8]"]
    )


MADE = "nn.Parameter(torch.randn(x.shape[-1], 3))"


@pytest.mark.parametrize(
    ("init", "condition", "make"),
    [
        ("self.w = None", "self.w is None", f"self.w = {MADE}"),
        ("self.register_parameter('w', None)", "self.w is None", f"self.w = {MADE}"),
        ("", "not hasattr(self, 'w')", f"self.register_parameter('w', {MADE})"),
        (
            "self.w = nn.UninitializedParameter()",
            "isinstance(self.w, nn.UninitializedParameter)",
            "self.w.materialize((x.shape[-1], 3))",
        ),
    ],
    ids=["None", "a parameter that is None", "no attribute", "uninitialized"],
)
def test_parameters_made_by_the_first_call(init: str, condition: str, make: str, trace):
    forward = f"if {condition}:\n    {make}\nreturn x @ self.w"
    traced = trace(net(init, forward), "Net", comment="x=f32[4, 8]")
    assert given(traced) == ["w: f32[8, 3]", "x: f32[4, 8]"]
    assert ops(traced, "forward") == ["mm", "t"]
    assert traced.trace.notes == ("traced after a first call, which creates w",)


def test_layers_made_by_the_first_call(trace):
    forward = "if not self.layers:\n    self.layers.append(nn.Linear(x.shape[-1], 3))\nreturn self.layers[0](x)"
    traced = trace(net("self.layers = nn.ModuleList()", forward), "Net", comment="x=f32[4, 8]")
    assert given(traced) == ["layers_0_weight: f32[3, 8]", "layers_0_bias: f32[3]", "x: f32[4, 8]"]


def test_forward_hooks(trace):
    init = """self.fc = nn.Linear(8, 8)
self.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
self.fc.register_forward_hook(lambda module, args, kwargs, out: out.sin(), with_kwargs=True)
self.fc.register_forward_hook(self.keep)
self.kept = {}"""
    keep = "def keep(self, module, args, out):\n    self.kept['h'] = out"
    traced = trace(net(init, "return self.fc(x) + self.kept['h']", keep), "Net", comment="x=f32[4, 8]")
    assert ops(traced, "forward") == snapshot(["mul", "t", "addmm", "sin", "add"])


@pytest.mark.parametrize(
    ("init", "forward"),
    [
        ("self.fc.register_full_backward_hook(lambda module, given, got: (given[0].tanh(),))", "return h"),
        ("self.fc.register_full_backward_pre_hook(lambda module, got: (got[0].tanh(),))", "return h"),
        ("", "h.register_hook(lambda grad: grad.tanh())\nreturn h"),
    ],
    ids=["full backward hook", "full backward pre-hook", "a tensor's hook"],
)
def test_backward_hooks_are_in_the_backward_graph(init: str, forward: str, trace):
    source = net(f"self.fc = nn.Linear(8, 8)\n{init}", f"h = self.fc(x.exp())\n{forward}")
    traced = trace(source, "Net", comment="x=f32[4, 8]")
    assert "tanh" in ops(traced, "backward")
    assert "tanh" not in ops(traced, "forward")


PARAMETRIZED = "parametrizations_weight"


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (
            "parametrizations.weight_norm(LINEAR)",
            [f"{PARAMETRIZED}_original0: f32[8, 1]", f"{PARAMETRIZED}_original1: f32[8, 8]"],
        ),
        (
            "parametrizations.spectral_norm(LINEAR)",
            [f"{PARAMETRIZED}_original: f32[8, 8]", f"{PARAMETRIZED}_0__u: f32[8]", f"{PARAMETRIZED}_0__v: f32[8]"],
        ),
        (
            "parametrizations.orthogonal(LINEAR)",
            [f"{PARAMETRIZED}_original: f32[8, 8]", f"{PARAMETRIZED}_0_base: f32[8, 8](1, 8)"],
        ),
        ("utils.weight_norm(LINEAR)", ["weight_g: f32[8, 1]", "weight_v: f32[8, 8]"]),
        ("utils.spectral_norm(LINEAR)", ["weight_orig: f32[8, 8]", "weight_u: f32[8]", "weight_v: f32[8]"]),
        ("prune.l1_unstructured(LINEAR, 'weight', 0.3)", ["weight_orig: f32[8, 8]", "weight_mask: f32[8, 8]"]),
    ],
)
def test_weights_that_are_computed_stand_for_what_they_are_computed_from(layer: str, inputs: list[str], trace):
    init = f"self.fc = {layer.replace('LINEAR', 'nn.Linear(8, 8, bias=False)')}"
    traced = trace(net(init, "return self.fc(x)"), "Net", comment="x=f32[4, 8]")
    assert given(traced) == [*(f"fc_{i}" for i in inputs), "x: f32[4, 8]"]


def test_a_parametrization_that_checks_its_results(trace):
    layer = "parametrizations.orthogonal(nn.Linear(8, 6), orthogonal_map='cayley')"
    traced = trace(net(f"self.fc = {layer}", "return self.fc(x)"), "Net", comment="x=f32[4, 8]")
    assert "_linalg_solve_ex" in ops(traced, "forward")


def test_a_symmetric_weight_is_computed_once_where_it_is_cached(trace):
    source = (
        PRELUDE
        + """
class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = parametrize.register_parametrization(nn.Linear(8, 8), "weight", Symmetric())
    def forward(self, x):
        with parametrize.cached():
            return self.fc(self.fc(x))
"""
    )
    assert ops(trace(source, "Net", comment="x=f32[4, 8]"), "forward").count("triu") == 2


def test_buffers_that_a_call_changes(trace):
    init = "self.register_buffer('mean', torch.zeros(8))\nself.register_buffer('count', torch.tensor(0))"
    forward = "self.mean.lerp_(x.mean(0).detach(), 0.1)\nself.count += 1\nreturn x * self.mean"
    traced = trace(net(init, forward), "Net", comment="x=f32[4, 8]")
    assert given(traced) == ["mean: f32[8]", "count: i64[]", "x: f32[4, 8]"]
    assert ops(traced, "forward").count("copy_") == 2


def test_tied_parameters_are_one_input_with_one_gradient(trace):
    init = "self.a = nn.Linear(8, 8)\nself.b = nn.Linear(8, 8, bias=False)\nself.b.weight = self.a.weight"
    traced = trace(net(init, "return self.b(self.a(x))"), "Net", comment="x=f32[4, 8]")
    assert given(traced) == ["a_weight: f32[8, 8]", "a_bias: f32[8]", "x: f32[4, 8]"]
    assert gradients(traced) == "(grad_a_weight, grad_a_bias, grad_x)"


def test_tensors_in_containers_and_objects(trace):
    source = (
        PRELUDE
        + """
class Tables:
    def __init__(self):
        self.cos = torch.randn(8)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = [torch.randn(8, 8), {"scale": torch.ones(8)}]
        self.tables = Tables()
        self.unread = torch.zeros(3)
    def forward(self, x):
        return x @ self.plain[0] * self.plain[1]["scale"] + self.tables.cos
"""
    )
    assert given(trace(source, "Net", comment="x=f32[4, 8]")) == snapshot(
        ["plain_0: f32[8, 8]", "plain_1_scale: f32[8]", "tables_cos: f32[8]", "x: f32[4, 8]"]
    )


def test_grouped_products_take_any_dtype(trace):
    init = "self.w = nn.Parameter(torch.randn(4, 12, 6))"
    forward = "return torch._grouped_mm(x, self.w, offs=torch.arange(2, 9, 2, dtype=torch.int32))"
    traced = trace(net(init, forward), "Net", comment="x=f32[8, 12]")
    assert traced.trace.outputs == ("f32[8, 6]",)
    assert ops(traced, "backward").count("_grouped_mm") == 2


FLAGS = """
class Config:
    def __init__(self, dim=8, decoder=False, kind="plain"):
        self.dim, self.decoder, self.kind = dim, decoder, kind

class Net(nn.Module):
    def __init__(self, config: Config, has_table=False):
        super().__init__()
        self.config = config
        self.has_table = has_table
        if self.has_table:
            self.table = nn.Embedding(10, config.dim)
        if not config.decoder:
            self.encode = nn.Linear(config.dim, config.dim)
        elif config.kind == "wide":
            self.decode = nn.Linear(config.dim, config.dim)
    def look(self, ids):
        return self.table(ids)
    def decoded(self, x):
        return self.decode(x)
    def stretched(self, x: torch.Tensor):
        return x * self.config.stretch_size
    def broken(self, x: torch.Tensor):
        return x * self.nowhere
"""


@pytest.mark.parametrize(
    ("method", "made"),
    [
        ("look", ["init.has_table: True · search"]),
        ("decoded", ["init.config: Config(decoder=True, kind='wide')"]),
        ("stretched", ["init.config: Config(stretch_size="]),
    ],
    ids=["a flag", "a setting", "a setting that nobody knows"],
)
def test_a_module_is_constructed_so_that_it_has_what_a_method_reads(method: str, made: list[str], trace):
    inputs = trace(PRELUDE + FLAGS, f"Net.{method}").inputs()
    built = [i for i in inputs if i.startswith("init.") and not i.endswith("annotation")]
    assert [i[: len(m)] for i, m in zip(built, made, strict=True)] == made


def test_what_a_comment_gives_is_not_changed(trace):
    failure = trace(PRELUDE + FLAGS, "Net.look", comment="init(has_table=False), ids=i64[4]").failure
    assert "no attribute 'table'" in failure.message


def test_an_attribute_that_no_constructor_makes(trace):
    assert "no attribute 'nowhere'" in trace(PRELUDE + FLAGS, "Net.broken").failure.message


def test_a_module_that_is_pickled_where_it_is_made(trace):
    traced = trace(
        """
        import io
        import pickle
        import torch
        from torch import nn

        class Kept(nn.Module):
            def __init__(self, width=8):
                super().__init__()
                self.fc = nn.Linear(width, width)
                pickle.dump(self.state_dict(), io.BytesIO())
                self.copy = pickle.loads(pickle.dumps(nn.Linear(width, 4)))

            def forward(self, x):
                return self.copy(self.fc(x))
        """,
        "Kept",
    )
    assert traced.graph("forward").count("= aten.addmm") == 2


def test_a_sparse_buffer_and_a_deep_copy(trace):
    traced = trace(
        """
        import copy
        import torch
        from torch import nn

        class Aligned(nn.Module):
            def __init__(self, width=8):
                super().__init__()
                self.fc = nn.Linear(width, width)
                heads = torch.tensor([[True, False], [False, True]])
                self.register_buffer("heads", heads.to_sparse(), persistent=False)

            def forward(self, x):
                y = copy.deepcopy(x)
                y[:, 0] = 0
                return self.fc(x) + y
        """,
        "Aligned",
    )
    assert "aten.clone" in traced.graph("forward") and "aten.addmm" in traced.graph("forward")


def test_a_cache_that_is_written_in_inference_mode(trace):
    traced = trace(
        """
        import torch
        from torch import nn

        class Cached(nn.Module):
            def __init__(self, width=8):
                super().__init__()
                self.fc = nn.Linear(width, width)
                self.cache = torch.zeros(16, width)

            # fx: x=f32[3, 8], start=0
            @torch.inference_mode()
            def forward(self, x, start):
                self.cache = self.cache.to(x)
                self.cache[start : start + len(x)] = self.fc(x)
                return self.cache[: start + len(x)].clone()
        """,
        "Cached",
    )
    assert [stage.name for stage in traced.trace.stages] == ["inference"]
    assert "aten.copy" in traced.graph("inference")


STATES = """
class Scaler:
    def __init__(self):
        self.mean = 0.0

    def fit(self, x: torch.Tensor):
        self.mean = x.mean(0)

    def back(self, x: torch.Tensor):
        return x + self.mean.expand_as(x)

class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)

    def start(self, memory: torch.Tensor):
        self.hidden = memory.new_zeros(memory.size(0), 8)

    def step(self, x):
        return self.cell(x, self.hidden)

    def forward(self, memory: torch.Tensor, x):
        self.start(memory)
        return self.step(x)

class Predictor:
    def __init__(self):
        self.is_set, self.features = False, None

    def reset(self):
        self.is_set, self.features = False, None

    def set_image(self, image: torch.Tensor):
        self.features = image.mean(0)
        self.is_set = True

    def predict(self, points: torch.Tensor):
        if not self.is_set:
            raise RuntimeError("an image first")
        return self.features.sum() + points
"""


@pytest.mark.parametrize(
    ("method", "note"),
    [
        ("Scaler.back", "traced after calling `fit`, which sets mean"),
        ("Cell.step", "traced after calling `start`, which sets hidden"),
        ("Predictor.predict", "traced after calling `set_image`, which sets features, is_set"),
    ],
)
def test_a_method_is_traced_after_one_that_makes_the_state_that_it_reads(method: str, note: str, trace):
    assert note in trace(PRELUDE + STATES, method).trace.notes


def test_a_sparse_buffer(trace):
    source = net('self.register_buffer("heads", torch.eye(4).to_sparse(), persistent=False)', "return x * 2")
    assert trace(source, "Net").inputs()


def test_a_module_inside_an_object_that_a_module_keeps(trace):
    source = """
import torch
from torch import nn

class Holder:
    def __init__(self, parts):
        self.parts = parts

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.holder = Holder((nn.Linear(8, 4),))

    def forward(self, x):
        return self.inner.holder.parts[0](x)

net = Net()

# fx: x=f32[2, 8]
def f(x):
    return net(x)
"""
    traced = trace(source, "f")
    assert traced.trace.stages[0].name == snapshot("joint")


def test_a_state_in_a_tuple_is_an_input(trace):
    traced = trace(
        """
        import torch
        from torch import nn

        class Generator(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = nn.GRUCell(8, 8)
                self.state = (torch.zeros(4, 8), torch.zeros(4, 8))

            # fx: x=f32[4, 8]
            def forward(self, x):
                hidden, count = self.state
                self.state = self.cell(x, hidden), count + 1
                return self.state[0] * count
    """,
        "Generator",
    )
    assert [n.spec for n in traced.stage("forward").nodes if n.op == "placeholder"] == snapshot(
        ["f32[24, 8]", "f32[24, 8]", "f32[24]", "f32[24]", "f32[4, 8]", "f32[4, 8]", "f32[4, 8]"]
    )
    assert traced.trace.ops("backward")


def test_a_module_that_is_held_twice_moves_with_its_own_parameters(warm_torch: None) -> None:
    """Tensors that are replaced on the way must not lend their ids to new ones."""

    def shapes() -> list[tuple[tuple[int, ...], tuple[int, ...], bool]]:
        from torch import nn
        from torch._subclasses.fake_tensor import FakeTensorMode

        from fx_lsp.tracer.run.fakes import movable_modules

        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(width, width + 1) for width in range(1, 60))
                self.net = nn.Sequential(*self.layers)

        with FakeTensorMode(), movable_modules():
            module = Twice().double().half()
            pairs = zip(module.layers, module.net, strict=True)
            return [(tuple(a.weight.shape), tuple(b.bias.shape), a.weight is b.weight) for a, b in pairs]

    assert in_fork(shapes) == [((width + 1, width), (width + 1,), True) for width in range(1, 60)]
