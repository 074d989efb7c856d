"""What a file compiles is known by its text."""

import textwrap

from inline_snapshot import snapshot

from fx_lsp.tracing.analysis import analyse


def compiled(text: str) -> dict[str, str]:
    """The targets of a text that it compiles, and how."""
    targets = analyse("user.py", textwrap.dedent(text), ()).targets.values()
    return {target.name: target.compiled for target in targets if target.compiled}


PRELUDE = """
import torch
from torch import compile as build, nn
from functools import partial

class Net(nn.Module):
    def forward(self, x):
        return x.relu()

    def loss(self, x):
        return x.sum()

class Other(nn.Module):
    def forward(self, x):
        return x.relu()

def f(x):
    return x.relu()
"""


def test_a_deep_expression_is_not_compiled() -> None:
    deep = "y" + ".relu()" * 400
    assert compiled(PRELUDE + f"x = {deep}\nn = Net()\nn.compile()\n({deep}).compile()\n") == {"Net": "parts"}


def test_an_expression_that_is_too_deep_is_a_failure_of_its_text() -> None:
    deep = "y" + ".relu()" * 900
    failure = analyse("user.py", f"import torch\nx = {deep}\ndef f(x, z={deep}):\n    return x + {deep}\n", ()).failure
    assert failure is not None and failure.kind == "syntax"


def test_decorators() -> None:
    text = """
    import torch
    from torch import compile as build, nn
    from functools import partial

    @torch.compile
    def plain(x):
        return x.relu()

    @build(fullgraph=True)
    def whole(x):
        return x.relu()

    @partial(torch.compile, dynamic=True)
    def with_options(x):
        return x.relu()

    @torch.no_grad()
    def not_compiled(x):
        return x.relu()

    class Net(nn.Module):
        @torch.compile
        def forward(self, x):
            return self.extra(x)

        @torch.compile(fullgraph=True)
        def extra(self, x):
            return x.relu()
    """
    assert compiled(text) == snapshot(
        {"plain": "parts", "whole": "whole", "with_options": "parts", "Net": "parts", "Net.extra": "whole"}
    )


def test_calls() -> None:
    assert compiled(f"{PRELUDE}g = torch.compile(f)") == {"f": "parts"}
    assert compiled(f"{PRELUDE}model = build(Net().cuda(), fullgraph=True)") == {"Net": "whole"}
    assert compiled(f"{PRELUDE}def main():\n    net = Net()\n    net = torch.compile(net)\n") == {"Net": "parts"}
    assert compiled(f"{PRELUDE}net = Net()\nnet.to('cuda').compile()") == {"Net": "parts"}
    assert compiled(f"{PRELUDE}net = Net()\nloss = torch.compile(net.loss)") == {"Net.loss": "parts"}
    assert compiled(
        f"{PRELUDE}class Run:\n    def __init__(self):\n        self.net = Net()\n        build(self.net)\n"
    ) == {"Net": "parts"}


def test_what_nobody_knows_is_left_out() -> None:
    assert compiled(f"{PRELUDE}net = Net() if f else None\ntorch.compile(net)") == {}
    assert compiled(f"{PRELUDE}net = Net()\nnet = Other()\ntorch.compile(net)") == {}
    assert compiled(f"{PRELUDE}import re\npattern = re.compile('Net')") == {}
    assert compiled(f"{PRELUDE}net = Net()\nnet.compile(1)") == {}
    assert compiled(f"{PRELUDE}net = Net()\ntorch.compile(net.make())") == {}
    own = "class Own(Net):\n    def compile(self):\n        pass\n    def forward(self, x):\n        return x.relu()\n"
    assert compiled(f"{PRELUDE}{own}own = Own()\nown.compile()") == {}
    other = "@register(torch.compile)\ndef g(x):\n    return x.relu()\n"
    assert compiled(f"{PRELUDE}{other}") == {}
