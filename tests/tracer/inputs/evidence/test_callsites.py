"""Inputs from calls in the file and in its tests: what the call needs is run, and nothing else."""

from inline_snapshot import snapshot

BLOCK = """
import argparse
import itertools
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.fc = nn.Linear(dim, dim * heads)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.drop(self.fc(x)) * scale

    def extra(self, y):
        return torch.relu(self.fc(y))
"""

ATTENTION = """
import torch

def attention(q, k, v, causal=False):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v
"""


def lines(traced):
    """The inputs that a call site gave, with the place."""
    return [f"{i.name}: {i.spec} · {i.detail}" for i in traced.trace.inputs if i.source == "call site"]


def test_a_main_guard_with_a_model_and_a_training_loop(trace):
    traced = trace(
        BLOCK
        + """
if __name__ == "__main__":
    model = Block(48, heads=4)
    model.eval()
    print("never", undefined)
    x = torch.randn(2, 10, 48)
    for _ in range(100):
        y = model(x)
        y.sum().backward()
""",
        "Block",
    )
    assert lines(traced) == snapshot(
        [
            "init.dim: 48 · line 19",
            "init.heads: 4 · line 19",
            "self.training: False · line 24",
            "x: f32[2, 10, 48] · line 24",
        ]
    )
    assert "dropout" not in traced.graph("forward")


CHOSEN = (
    BLOCK
    + """
class Kind(nn.Module):
    def __init__(self, kind, dim):
        super().__init__()
        if kind == "wide":
            self.fc = nn.Linear(dim, 4 * dim)
        else:
            raise ValueError(kind)

    def forward(self, x):
        return self.fc(x)

def main(args):
    if args.kind == "plain":
        model = Block(8)
    elif args.kind in ("wide", "wider"):
        model = Kind(args.kind, 16)
    else:
        raise ValueError(args.kind)
    CALL

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="plain")
    main(parser.parse_args())
"""
)


def test_a_model_that_branches_make_alike_is_that_of_the_defaults(trace):
    first = "model = Kind('wide', 4)\n    if args.kind == 'small':\n        model = Kind('wide', 2)"
    traced = trace(CHOSEN.replace("CALL", first + "\n    model(torch.randn(2, 4))"), "Kind")
    assert "init.dim: 4 · line 36" in lines(traced)


def test_a_test_file_with_a_helper(trace):
    traced = trace(
        BLOCK,
        "Block",
        files={
            "tests/test_user.py": """
            import torch
            from user import Block

            def check(dim, x):
                assert Block(dim)(x, scale=2.0).shape == x.shape

            def test_block():
                check(24, torch.randn(3, 24))
            """
        },
    )
    assert lines(traced) == snapshot(
        [
            "init.dim: 24 · tests/test_user.py:5",
            "x: f32[3, 24] · tests/test_user.py:5",
            "scale: 2.0 · tests/test_user.py:5",
        ]
    )
    assert "test_user.py" in traced.dependencies()


def test_a_method_of_an_instance(trace):
    traced = trace(
        BLOCK
        + """
def test_extra():
    block = Block(32)
    assert block.extra(torch.zeros(5, 32)).shape == (5, 64)
""",
        "Block.extra",
    )
    assert lines(traced) == snapshot(["init.dim: 32 · line 19", "y: f32[5, 32] · line 20"])


def test_a_call_without_gradients_on_a_gpu(trace):
    traced = trace(
        BLOCK
        + """
def demo(batch=6):
    device = "cuda"
    model = Block(16).to(device)
    x = torch.randn(batch, 16, device=device)
    with torch.no_grad():
        return model(x.to(torch.device(device)))
""",
        "Block",
    )
    assert lines(traced) == snapshot(["init.dim: 16 · line 20", "x: f32[6, 16]@cuda · line 23"])


def test_sizes_from_the_command_line_are_its_defaults(trace):
    traced = trace(
        BLOCK
        + """
parser = argparse.ArgumentParser()
parser.add_argument("--dim", type=int, default=40)

def main():
    args = parser.parse_args()
    model = Block(args.dim)
    model(torch.randn(7, args.dim))
""",
        "Block",
    )
    assert lines(traced) == snapshot(["init.dim: 40 · line 23", "x: f32[7, 40] · line 24"])


def test_a_command_line_that_must_say_something_is_no_source(trace):
    traced = trace(
        BLOCK
        + """
parser = argparse.ArgumentParser()
parser.add_argument("dim", type=int)

def main():
    model = Block(parser.parse_args().dim)
    model(torch.randn(7, 40))
""",
        "Block",
    )
    assert lines(traced) == []


def test_a_loader_gives_one_batch(trace):
    traced = trace(
        BLOCK
        + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return torch.zeros(16), index

if __name__ == "__main__":
    train, test = torch.utils.data.random_split(Rows(), [80, 20])
    loader = torch.utils.data.DataLoader(train, batch_size=4, shuffle=True, num_workers=2)
    model = Block(16)
    for x, y in loader:
        model(x)
""",
        "Block",
    )
    assert lines(traced) == ["init.dim: 16 · line 28", "x: f32[4, 16] · line 30"]


def test_of_a_training_loop_the_construction_counts_where_its_batches_are_not_reached(trace):
    traced = trace(
        BLOCK
        + """
class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([float(x) for x in open("/nowhere/data.csv")])

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Files(), batch_size=4, shuffle=True)
    model = Block(16)
    for x, y in loader:
        model(x)
""",
        "Block",
    )
    assert lines(traced) == ["init.dim: 16 · line 27"]


def test_the_first_parameters_and_the_fixtures_of_a_test(trace):
    traced = trace(
        BLOCK,
        "Block",
        files={
            "test_user.py": """
            import pytest
            import torch
            import user

            @pytest.fixture
            def block():
                yield user.Block(20)

            @pytest.mark.parametrize("batch, length", [(9, 3), (1, 1)])
            def test_shapes(block, batch, length):
                assert block(torch.randn(batch, length, 20)).shape[0] == batch
            """
        },
    )
    assert lines(traced) == snapshot(["init.dim: 20 · test_user.py:7", "x: f32[9, 3, 20] · test_user.py:11"])


def test_a_comment_wins(trace):
    call = "\nif __name__ == '__main__':\n    attention(*torch.randn(3, 2, 2))\n"
    traced = trace(ATTENTION + call, "attention", comment="q=f32[5, 6], k=f32[7, 6], v=f32[7, 8]")
    assert lines(traced) == []


def test_a_test_that_imports_through_the_package(trace):
    traced = trace(
        BLOCK,
        "Block.extra",
        files={
            ".git/config": "",
            "__init__.py": "from .user import Block",
            "tests/__init__.py": "",
            "tests/test_user.py": """
            import torch
            from .. import Block as B

            def test_extra():
                b = B(12)
                b.half()
                b.extra(torch.zeros(5, 12, dtype=torch.half))
            """,
        },
    )
    assert lines(traced) == snapshot(
        [
            "init.dim: 12 · test_a_test_that_imports_throu0/tests/test_user.py:5",
            "y: f16[5, 12] · test_a_test_that_imports_throu0/tests/test_user.py:7",
        ]
    )


def test_a_test_class(trace):
    traced = trace(
        BLOCK,
        "Block",
        files={
            "tests/test_user.py": """
            import unittest
            import torch
            from user import Block

            class BlockTest(unittest.TestCase):
                def setUp(self):
                    self.block = Block(dim=14).eval()

                def test_shape(self):
                    self.assertEqual(self.block(torch.ones(2, 14)).shape, (2, 28))
            """
        },
    )
    assert lines(traced) == snapshot(
        [
            "init.dim: 14 · tests/test_user.py:7",
            "self.training: False · tests/test_user.py:10",
            "x: f32[2, 14] · tests/test_user.py:10",
        ]
    )


def test_a_module_inside_another_one(trace):
    traced = trace(
        BLOCK
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(2**n) for n in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

if __name__ == "__main__":
    net = torch.compile(Net())
    print(Net()(torch.ones(3, 1)))
""",
        "Block",
    )
    assert lines(traced) == snapshot(["init.dim: 1 · line 21", "x: f32[3, 1] · line 25"])


def test_an_edited_test_is_looked_at_again(trace):
    test = "import torch\nfrom user import attention\n\ndef test_it():\n    attention(*torch.ones({}))\n"
    for sizes, expected in (("3, 2, 2", "q: f32[2, 2]"), ("3, 5, 5", "q: f32[5, 5]"), ("2, 5, 5", None)):
        traced = trace(ATTENTION, "attention", files={"tests/test_user.py": test.format(sizes)})
        assert (lines(traced) or [None])[0] == (expected and f"{expected} · tests/test_user.py:5")
        assert any(path.endswith("tests/test_user.py") for path in traced.reply.dependencies)


def test_a_compiled_module_is_entered_as_it_is_written(trace):
    traced = trace(
        BLOCK
        + """
if __name__ == "__main__":
    model = torch.compile(Block(18))
    print(model(torch.ones(3, 18)))
""",
        "Block",
    )
    assert lines(traced) == snapshot(["init.dim: 18 · line 19", "x: f32[3, 18] · line 20"])


def test_constructor_arguments_of_a_comment_make_an_object_of_their_own(trace):
    traced = trace(
        BLOCK
        + """
if __name__ == "__main__":
    Block(16)(torch.randn(6, 16))
""",
        "Block",
        comment="init(dim=24)",
    )
    shown = traced.inputs()
    assert shown[0] == "init.dim: 24 · comment"
    assert next(node.spec for node in traced.stage("forward").nodes if node.name == "fc_weight") == "f32[48, 24]"


def test_a_part_has_what_the_whole_was_made_with(trace):
    traced = trace(
        BLOCK
        + """
class Pair(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = Block(width), Block(width)

    def forward(self, x):
        return self.first(x) + self.second(x)

if __name__ == "__main__":
    pair = Pair(24)
""",
        "Block",
    )
    assert lines(traced)[0].startswith("init.dim: 24")


PYRAMID = """
import torch
import torch.nn.functional as F
from torch import nn

class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)])

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features

class Neck(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.lateral = nn.ModuleList([nn.Conv2d(width, 4, 1) for width in widths])

    def forward(self, features):
        low, high = [conv(f) for conv, f in zip(self.lateral, features)]
        return low + F.interpolate(high, size=low.shape[-2:])

if __name__ == "__main__":
    backbone, neck = Backbone(), Neck((8, 16))
    for level in neck(backbone(torch.randn(2, 3, 32, 48))):
        print(level.shape)
"""


def test_variables_that_are_assigned_together_and_a_call_that_a_loop_goes_over(trace):
    assert lines(trace(PYRAMID, "Neck")) == snapshot(
        [
            "init.widths[0]: 8 · line 27",
            "init.widths[1]: 16 · line 27",
            "features[0]: f32[2, 8, 16, 24] · line 28",
            "features[1]: f32[2, 16, 8, 12] · line 28",
        ]
    )


def test_what_is_gone_over_and_given_is_no_guess(trace):
    traced = trace(PYRAMID.replace("F.interpolate(high, size=low.shape[-2:])", "high"), "Neck")
    assert (traced.failure.severity, traced.at(traced.failure.span)) == ("error", "low + high")
