"""Which definitions a tracer may run to see what they call a target with."""

from fx_lsp.tracing.analysis import Texts, analyse
from fx_lsp.tracing.answers.disk import is_fresh, read_dependencies

SOURCE = """
import torch
from torch import nn

def gate(x):
    return torch.sigmoid(x)

class Block(nn.Module):
    def forward(self, x):
        def inner(y):
            return torch.relu(y)
        return gate(inner(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        return self.block(x)
"""
CONVENTION = "def get_inputs():\n    return [torch.rand(2, 3)]\n"


def callers(name: str, text: str = SOURCE) -> list[tuple[str, str, bool]]:
    found = analyse("/m.py", text, ()).request(name, {}, 5.0).callers
    return [(caller.name, caller.kind, caller.convention) for caller in found]


def test_what_uses_a_target() -> None:
    assert callers("gate") == [("Block", "module", False)]
    assert callers("Block") == [("Model", "module", False)]
    assert callers("Model") == []


def test_a_nested_function_is_made_by_the_one_around_it() -> None:
    assert callers("Block.forward.inner")[0] == ("Block", "module", False)


def test_a_function_further_down_is_made_by_all_of_those_around_it() -> None:
    text = """
import torch
class Block(torch.nn.Module):
    def forward(self, x):
        def outer(y):
            def inner(z):
                return torch.relu(z)
            return inner(y)
        return outer(x)
    def helper(self, x: torch.Tensor):
        def outer(y):
            def inner(z):
                return torch.relu(z)
            return inner
        return outer
def make(n):
    def outer(f):
        def inner(z):
            return torch.relu(z)
        return inner
    return outer
"""
    assert callers("Block.forward.outer.inner", text) == [
        ("Block", "module", False),
        ("Block.forward.outer", "function", False),
    ]
    assert callers("Block.helper.outer.inner", text) == [
        ("Block.helper", "method", False),
        ("Block.helper.outer", "function", False),
    ]
    assert callers("make.outer.inner", text) == [("make", "function", False), ("make.outer", "function", False)]


def test_inputs_of_the_file_are_for_the_module_that_nothing_uses() -> None:
    assert callers("gate", SOURCE + CONVENTION) == [("Model", "module", True), ("Block", "module", False)]
    assert callers("Model", SOURCE + CONVENTION) == []


def test_an_answer_depends_on_the_text_of_what_calls_the_target() -> None:
    def texts(text: str) -> Texts:
        return Texts({"/m.py": text}, {"/m.py": analyse("/m.py", text, ())})

    dependencies = read_dependencies(["/m.py::gate"], texts(SOURCE))
    assert is_fresh(dependencies, texts(SOURCE))
    assert is_fresh(dependencies, texts(SOURCE.replace("self.block(x)", "self.block(x) * 2")))
    assert not is_fresh(dependencies, texts(SOURCE.replace("inner(x))", "inner(x) * 2)")))
