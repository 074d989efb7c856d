"""The debug views of a target: functionalization, decompositions, aliases and mutations, fake against real."""

import pytest
from inline_snapshot import snapshot
from works import traced_for

PRELUDE = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


@pytest.fixture
def debug(warm_torch, tmp_path):
    return lambda source, name="f", before=None: traced_for(tmp_path, PRELUDE + source, name, "debug", before)


IN_PLACE = """
# fx: x=f32[4, 8], w=f32[4, 8]
def f(x, w):
    y = x * w
    y[0].add_(1)
    z = F.silu(y)
    return z
"""


def test_the_joint_graph_before_and_after_functionalization(debug):
    traced = debug(IN_PLACE)
    assert [s.name for s in traced.trace.stages] == snapshot(
        ["unfunctionalized", "joint", "forward", "backward", "core", "aliasing", "crossref"]
    )
    ops = {name: [n.target for n in traced.stage(name).nodes] for name in ("unfunctionalized", "joint", "core")}
    assert "aten.add_.Tensor" in ops["unfunctionalized"]
    assert "aten.add_.Tensor" not in ops["joint"]
    assert "aten.select_scatter.default" in ops["joint"]
    assert "aten.silu_backward.default" in ops["joint"]
    assert "aten.silu_backward.default" not in ops["core"]
    assert traced.graph("unfunctionalized") == snapshot("""\
x: f32[4, 8] = placeholder
w: f32[4, 8] = placeholder
grad_z: f32[4, 8] = placeholder
y: f32[4, 8] = aten.mul.Tensor(x, w)
select: f32[8] = aten.select.int(y, 0, 0)
add: f32[8] = aten.add_.Tensor(select, 1)
z: f32[4, 8] = aten.silu.default(y)
silu_backward: f32[4, 8] = aten.silu_backward.default(grad_z, y)
new_empty_strided: f32[4, 8] = aten.new_empty_strided.default(silu_backward, [4, 8], [8, 1])
copy: f32[4, 8] = aten.copy_.default(new_empty_strided, silu_backward)
select_2: f32[8] = aten.select.int(copy, 0, 0)
clone: f32[8] = aten.clone.default(select_2, memory_format=torch.contiguous_format)
copy_1: f32[8] = aten.copy_.default(select_2, clone)
grad_w: f32[4, 8] = aten.mul.Tensor(copy, x)
grad_x: f32[4, 8] = aten.mul.Tensor(copy, w)
return [z, grad_x, grad_w]\
""")


def test_a_graph_without_a_backward(debug):
    traced = debug(IN_PLACE.replace("    y = x", "    x.requires_grad\n    y = x.detach() * w.detach() + x.detach()"))
    assert [s.name for s in traced.trace.stages] == snapshot(
        ["unfunctionalized", "joint", "forward", "backward", "core", "aliasing", "crossref"]
    )
    assert "aten.add_.Tensor" in [n.target for n in traced.stage("unfunctionalized").nodes]


def test_what_aotautograd_knows(debug):
    traced = debug(
        """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4, 4))
        self.register_buffer("steps", torch.zeros(()))

    # fx: x=f32[4, 4], state=f32[4, 4]
    def forward(self, x, state):
        self.steps.add_(1)
        with torch.no_grad():
            state.copy_(x)
        h = x @ self.w
        return h, h.t(), x[1:], state, (x @ self.w)[0]
""",
        "M",
    )
    assert traced.stage("aliasing").text == snapshot("""\
# inputs
#   #  name   spec       kind       requires grad  mutated                                    shares its storage with
#   0  w      f32[4, 4]  parameter  yes            no
#   1  steps  f32[]      buffer     no             data: written in the graph
#   2  x      f32[4, 4]  input      yes            no
#   3  state  f32[4, 4]  input      yes            data: written in the graph, under no_grad
#
# outputs
#   #  name   what it is                                                             requires grad  dynamic dims
#   0  h      a new tensor                                                           yes            none
#   1  out_1  a view of the output h                                                 yes            none
#   2  out_2  a view of the input x                                                  yes            none
#   3  state  the input state itself                                                 yes            none
#   4  out_4  a view of an intermediate without other uses: treated as a new tensor  yes            none
#
# intermediates that are returned for their views
#   0
#
# duplicated inputs
#   none: all inputs are distinct tensors
#
# synthetic bases
#   none: no mutated input shares its storage with another one
#
# tokens
#   none
""")


def test_views_of_one_intermediate(debug):
    traced = debug("""
# fx: x=f32[4, 4], w=f32[4, 4]
def f(x, w):
    h = x * w
    return h.t(), h.view(-1)
""")
    told = traced.stage("aliasing").text.splitlines()
    assert told[told.index("# outputs") : told.index("# duplicated inputs")] == snapshot(
        [
            "# outputs",
            "#   #  name   what it is                                           requires grad  dynamic dims",
            "#   0  out_0  a view of intermediate 0, which is returned for it   yes            none",
            "#   1  out_1  a view of intermediate 0, which is returned as well  yes            none",
            "#",
            "# intermediates that are returned for their views",
            "#   1",
            "#",
        ]
    )


def test_one_tensor_given_twice_and_a_view_of_it(debug):
    traced = debug("""
base, other = torch.ones(8, dtype=torch.long), torch.ones(8)

# fx: x=base, y=base, z=base[:4], v=other, w=other
def f(x, y, z, v, w):
    x.mul_(2)
    return y + 1, z * 2
""")
    assert traced.stage("aliasing").text == snapshot("""\
# inputs
#   #  name  spec    kind   requires grad  mutated                     shares its storage with
#   0  x     i64[8]  input  no             data: written in the graph  y, z
#   1  y     i64[8]  input  no             data: written in the graph  x, z
#   2  z     i64[4]  input  no             no                          x, y
#   3  v     f32[8]  input  no             no                          w
#   4  w     f32[8]  input  no             no                          v
#
# outputs
#   #  name   what it is    requires grad  dynamic dims
#   0  out_0  a new tensor  no             none
#   1  out_1  a new tensor  no             none
#
# intermediates that are returned for their views
#   0
#
# duplicated inputs
#   x and y are one tensor: the graph takes it once, because a duplicated input is mutated
#   v and w are one tensor: the graph takes it once, because a duplicated input is mutated
#   the graph input that each of them becomes: x 0, y 0, z 1, v 2, w 2
#
# synthetic bases
#   x and z are views of one storage, and one of them is mutated: the graph takes that storage as its input 0
#
# tokens
#   none
""")


def test_buffers_that_share_a_storage(debug):
    traced = debug(
        """
class Ring(nn.Module):
    def __init__(self):
        super().__init__()
        base = torch.zeros(8)
        self.register_buffer("first", base[:4])
        self.register_buffer("whole", base.view(8))

    # fx: x=f32[4]
    def forward(self, x):
        self.first.add_(1)
        return self.whole * 2, x + self.first
""",
        "Ring",
    )
    assert traced.stage("aliasing").text == snapshot("""\
# inputs
#   #  name   spec    kind    requires grad  mutated                     shares its storage with
#   0  first  f32[4]  buffer  no             data: written in the graph  whole
#   1  whole  f32[8]  buffer  no             no                          first
#   2  x      f32[4]  input   yes            no
#
# outputs
#   #  name   what it is    requires grad  dynamic dims
#   0  out_0  a new tensor  no             none
#   1  out_1  a new tensor  yes            none
#
# intermediates that are returned for their views
#   0
#
# duplicated inputs
#   none: all inputs are distinct tensors
#
# synthetic bases
#   first and whole are views of one storage, and one of them is mutated: the graph takes that storage as its input 0
#
# tokens
#   none
""")


def test_fake_and_real_agree(debug):
    traced = debug("""
# fx: tokens=i64[2, 5], table=f32[3, 8], mask=b8[2, 5]
def f(tokens, table, mask):
    h = F.embedding(tokens, table)
    h = h.masked_fill(mask[..., None], 0.0)
    values, indices = h.max(dim=-1)
    return values.t(), indices
""")
    assert traced.stage("crossref").text == snapshot(
        "# Fake and real agree on all 7 nodes: shape, dtype and strides of 8 values.\n"
    )


WRONG = """
# fx: x=f32[6, 8]
def f(x):
    return torch.ops.shapes.halve(x) * 2
"""


def wrong_operation():
    """An operation whose fake implementation says something else than what it does."""
    import torch

    @torch.library.custom_op("shapes::halve", mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x[:, ::2].clone()

    @halve.register_fake
    def _(x):
        return x.new_empty(x.shape[1] // 2, x.shape[0])


def test_an_operation_whose_fake_implementation_lies(debug):
    traced = debug(WRONG, before=wrong_operation)
    assert traced.stage("crossref").text == snapshot("""\
# 2 of 2 values differ:
#
# node   operation             fake             real
# halve  shapes.halve.default  f32[4, 6](6, 1)  f32[6, 4](4, 1)
# mul    aten.mul.Tensor       f32[4, 6](6, 1)  f32[6, 4](4, 1)
""")


def test_what_raises_on_real_tensors_only(debug):
    traced = debug("""
# fx: x=f32[4, 4], i=i64[2]
def f(x, i):
    j = i + 100
    return x[j]
""")
    assert traced.stage("crossref").text == snapshot("""\
# index = aten.index.Tensor runs on fake tensors, but raises on random real tensors:
#   index 101 is out of bounds for dimension 0 with size 4
#
# Before it, fake and real agree (1 compared): shape, dtype and strides.
""")


def test_large_graphs_are_not_run(debug):
    traced = debug("\n# fx: x=f32[20000, 20000]\ndef f(x):\n    return x + 1\n")
    assert traced.stage("crossref").text == snapshot(
        "# Not run: its values need 3.0 GiB at once, more than the limit of 1 GiB.\n"
    )


def test_named_sizes_stand_for_numbers(debug):
    traced = debug("\n# fx: x=f32[B, 8]\ndef f(x):\n    return x.view(-1, 4).relu()\n")
    assert "Fake and real agree on all" in traced.stage("crossref").text
