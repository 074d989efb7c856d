"""Which definitions are targets. In the sources below, `#: target` marks those that must be found, and only those."""

import textwrap

import pytest

from fx_lsp.tracing.source.parsing import python_of, split_lines
from fx_lsp.tracing.source.targets import discover, names_like, stages_like

HEADER = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from typing import Optional
"""


def found(source: str, header: str = HEADER) -> dict[str, str]:
    text = header + textwrap.dedent(source)
    discovery = discover("/m.py", text)
    assert discovery.failure is None
    targets = [target for target in discovery.targets if target.kind != "script"]
    for target in targets:
        span = target.name_span
        line = split_lines(text)[span.line - 1].encode()
        assert line[span.col : span.end_col].decode() == target.name.rpartition(".")[2]
    return {target.name: target.kind for target in targets}


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return torch.relu(x)",
        "def f(x): return F.softmax(x * 2, dim=-1)",
        "def f(x: Tensor): return g(x)",
        "def f(x: 'Optional[Tensor]'): return g(x)",
        "def f(x: Float[Tensor, 'b n']): return g(x)",
        "def f(x: torch.Tensor | None = None): return g(x)",
        "def f(x, y): return x @ y",
        "def f(x):\n  h = x * 2\n  return h.transpose(0, 1)",
        "def f(x): return x[..., : x.shape[-1] // 2]",
        "def f(x, y): return x * y + 1",
        "def f(a, b): return ((a - b) ** 2).mean()",
        "@torch.no_grad()\ndef f(average, value, decay=0.9): return average * decay + value * (1 - decay)",
        "def f(n): return torch.arange(n)",
        "@torch.no_grad()\ndef f(x): return x.sum()",
        "@custom\ndef f(x): return x.sum()",
        "def f(*, x): return x.view(-1)",
        "async def f(x: Tensor): return x",
        "async def f(x): return (await g(x)).sum() + x.sum()",
        "def f(x: Tensor): yield x",
        "def f(x):\n  for y in x.chunk(2): yield from g(y)",
        "f = lambda x: torch.relu(x)",
        "f: Callable = lambda x, y: x @ y",
        "if True:\n  f = lambda x: x.sum()",
        "def f(x): return regroup(x, 'b n (h d) -> b h n d', h=8)",
        "if True:\n  def f(x): return x.sum()",
        "try:\n  from fast import f\nexcept ImportError:\n  def f(x): return x.sum()",
    ],
)
def test_tensor_code_is_a_target(code: str) -> None:
    assert found(code) == {"f": "function"}


@pytest.mark.parametrize(
    "code",
    [
        "def f(): return torch.ones(3)",
        "def f(a, b): return a + b",
        "def f(x: float): return x * 2",
        "@torch.jit.script\ndef f(a: int, b: int): return a + b",
        "def f(x, digits): return round(x * 10) / 10",
        "def f(a, b): return (a + b).split(',')",
        "def f(name): return name.split('.')",
        "def f(dim): return nn.Sequential(nn.Linear(dim, dim), nn.ReLU())",
        "def f(x: Tensor): ...",
        "@contextmanager\ndef f(x: Tensor): yield x",
        "@pytest.fixture\ndef f(x: Tensor): yield x",
        "f = lambda: torch.ones(3)",
        "f = lambda name: name.split('.')",
        "f = [lambda x: torch.relu(x)]",
        "def f(x: Tensor):\n  'A stub.'",
        "def f(x: Tensor): raise NotImplementedError('later')",
        "@overload\ndef f(x: Tensor): return x",
        "@triton.jit\ndef f(x, n: tl.constexpr): return x.view(n)",
        "def f(module):\n  if isinstance(module, nn.Linear): torch.nn.init.zeros_(module.bias)",
    ],
)
def test_other_code_is_not(code: str) -> None:
    assert found(code) == {}


@pytest.mark.parametrize(
    "code",
    [
        "def f(image): return np.clip(image.mean(0) * 2, 0, 1)",
        "def f(image):\n  h, w = image.shape[:2]\n  return cv2.resize(image, (w // 2, h // 2))",
        "def f(image):\n  w, h = image.size\n  return image.resize((w // 2, h // 2)).mean()",
        "def f(image, target):\n  w, h = image.size\n  return F.relu(target / w)",
        "def f(image): return g(F.relu(image))\ndef g(image): return torch.zeros(image.size[0])",
        "def f(image): return image.convert('RGB').mean() + image.max()",
        "def f(image): return torch.from_numpy(image.transpose(2, 0, 1)).float().div(255)",
        "def f(image):\n  image = torch.from_numpy(image)\n  return image.float().mul_(2)",
        "def f(batch):\n  boxes = batch['boxes'][0]\n  return np.concatenate([boxes, boxes * 2]).sum()",
        "def f(image: np.ndarray): return image.permute(2, 0, 1)",
        "def f(texts: str | list[str], length: int) -> Tensor: return torch.zeros(len(texts), length)",
        "def f(text):\n  assert isinstance(text, str)\n  return torch.tensor([len(text)])",
        "def f(items, message):\n  if torch.cuda.is_available(): print(message)\n  return items * 2",
        "def f(**values):\n  for k, v in values.items(): meters[k] = v.item()",
        "def f(folder):\n  weights = folder / 'a'\n  return cat([g()])",
        "def f(device, size): return torch.device(device) if size else size * 2",
        "def _(x): return torch.empty_like(x)",
        "class Crops:\n  def __init__(self): self.blur = transforms.Blur()\n  def f(self, x): return self.blur(x)",
        "def collate_fn(batch): return torch.stack([x for x, _ in batch])",
        "def f(batch): return torch.stack(batch)\nloader = DataLoader(data, collate_fn=f)",
        "class Collate:\n  def __call__(self, batch): return torch.stack(batch)",
    ],
)
def test_arrays_images_text_and_batches_are_no_tensors(code: str) -> None:
    header = "import cv2\nimport numpy as np\nfrom torch import cat\nfrom torchvision import transforms\n"
    assert found(code, HEADER + header) == {}


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n  if isinstance(x, np.ndarray): return np.dot(x, x)\n  return torch.mm(x, x)",
        "def f(x): return x.clone() if isinstance(x, torch.Tensor) else np.copy(x)",
        "def f(x, dim): return x.permute(1, 0) / np.sqrt(dim)",
        "def f(x): return x.view(-1, np.prod(x.shape[1:]))",
        "def f(x): return np.argmax(x.softmax(-1).cpu().numpy())",
        "def f(table, t):\n  picked = torch.from_numpy(table).to(t.device)[t]\n  return picked.float()",
        "def f(batch): return F.relu(batch['x']) * batch.get('scale', 1)",
        "def f(batch):\n  x, mask = batch.tensors, batch.mask\n  return x.masked_fill(mask, 0)",
        "def f(labels, n): return torch.zeros(n, 4).index_add(0, labels, labels)",
        "def f(x): return x.transpose(1, 2)",
        "def f(x): return x.mean(dim=0)",
    ],
)
def test_tensors_beside_arrays_are_targets(code: str) -> None:
    assert found(code, HEADER + "import numpy as np\n") == {"f": "function"}


@pytest.mark.parametrize(
    ("code", "evident"),
    [
        ("def f(x): return x.sum()", False),
        ("def f(x): return x.shape[0]", False),
        ("def f(x): return x.sum(dim=1)", True),
        ("def f(x: Tensor): return x.sum()", True),
        ("def f(x): return g(x)\ndef g(x): return x.sum()", False),
        ("def f(x): return g(x)\ndef g(x): return torch.relu(x)", True),
        ("# fx: x=f32[4]\ndef f(x): return x.sum()", True),
    ],
)
def test_what_arrays_do_as_well_is_no_evidence_of_tensors(code: str, evident: bool) -> None:
    targets = {target.name: target for target in discover("/m.py", HEADER + code).targets}
    assert targets["f"].evident is evident


@pytest.mark.parametrize(
    "code",
    [
        "def f(x, optimizer): return torch.relu(x)",
        "def f(model, loader):\n  for x in loader: torch.relu(x)",
        "def f(x: Tensor):\n  x.backward()",
        "def f(x, opt):\n  torch.relu(x)\n  opt.step()",
        "def f(x: Tensor): torch.save(x, 'x.pt')",
        "def f(name: str) -> Tensor: return torch.load(name)",
        "def f(x: Tensor): open('out').write(str(x))",
        "import os\ndef f(x: Tensor): os.remove('a'); return x",
        "import subprocess as sp\ndef f(x: Tensor): sp.run(['ls']); return x",
        "def f(x: Tensor): print(x)",
        "def main(x): return torch.relu(x)",
        "def test_relu(x): assert torch.relu(x) is x",
        "import os\ndef save(x): os.remove('a')\ndef f(x: Tensor):\n  save(x)\n  return x",
        "if __name__ == '__main__':\n  def f(x): return torch.relu(x)",
    ],
)
def test_programs_are_never_targets(code: str) -> None:
    assert found(code) == {}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("def g(x): return x.sum()\ndef f(x): return g(x)\ndef h(x): return f(x + 1)", {"f", "g", "h"}),
        ("class A(nn.Module):\n  def forward(self, x): return x\nclass B(A): pass\nclass C(nn.Linear): pass", {*"ABC"}),
        ("class Block(nn.Module):\n  pass", set()),
        ("class Block(nn.Module):\n  def forward(self, x): raise NotImplementedError", set()),
        ("class Block(nn.Module):\n  def __init__(self): super().__init__()", set()),
        ("if 0: pass\n" + "elif a: pass\n" * 200 + "else:\n  def f(x: 'Tensor'): return x\n", {"f"}),
    ],
)
def test_what_calls_or_inherits_counts(code: str, names: set[str]) -> None:
    assert found(code).keys() == names


def test_a_file_without_torch_needs_annotations() -> None:
    code = "def f(x): return x.sum()\ndef g(x): return blend(x, x, 1)\ndef h(v: 'torch.Tensor'): return blend(v, v, 1)"
    assert found(CALCULATIONS + code, header="import numpy as np\n").keys() == {"h"}


def test_modules_are_one_target_and_their_other_methods_are_methods() -> None:
    assert found(
        """
        class Block(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.up = nn.Linear(dim, dim)
            def forward(self, x):
                return self.attend(self.up(x))
            def attend(self, x):
                return self.up(x)
            @staticmethod
            def scale(x: Tensor):
                return x * 2
            @property
            def size(self): return 3
            def extra_repr(self): return "a"
        """
    ) == {"Block": "module", "Block.attend": "method", "Block.scale": "method"}


@pytest.mark.parametrize(
    ("bases", "is_module"),
    [
        ("nn.Module", True),
        ("torch.nn.Linear", True),
        ("LightningModule", True),
        ("Library", True),
        ("Base", True),
        ("object", False),
        ("Thread", False),
        ("torch.fx.Interpreter", False),
    ],
)
def test_what_makes_a_class_a_module(bases: str, is_module: bool) -> None:
    code = f"""
        from library.models import Library
        from threading import Thread
        class Base(Library): pass
        class Block({bases}):
            def __init__(self):
                super().__init__()
            def forward(self, x):
                return torch.relu(x)
        """
    assert ("Block" in found(code)) == is_module
    assert "Base" not in found(code)


def test_the_last_definition_of_a_name_counts() -> None:
    text = "def f(x: 'Tensor'): return x\n\ndef f(y: 'Tensor'): return y\n"
    (target,) = discover("/m.py", text).targets
    assert target.name_span.line == 3


def test_spans_cover_decorators_and_count_bytes() -> None:
    text = '@deco("é",\n  1)\ndef \\\n größe_ü(x: "Tensor"):\n    return x  # ü\n'
    (target,) = discover("/m.py", text).targets
    assert (target.span.line, target.span.end_line) == (1, 5)
    assert (target.name_span.line, target.name_span.col, target.name_span.end_col) == (4, 1, 11)


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("def f(:\n", "syntax error: invalid syntax", (1, 6)),
        ("é = (1,\n", "syntax error: '(' was never closed", (1, 5)),
        ("a = 1\n\0", "syntax error: source code string cannot contain null bytes", None),
        ("x = '\ud800'\n", "the text is not valid Unicode", None),
        ("x = " + "(" * 5000 + ")" * 5000, "", None),
        ("x = " + "-" * 100_000 + "1", "", None),
        ("x = " + "1 + " * 100_000 + "1", "", None),
    ],
)
def test_text_that_does_not_parse_is_a_failure(text: str, message: str, position: tuple[int, int] | None) -> None:
    discovery = discover("/m.py", text)
    assert discovery.targets == ()
    assert discovery.failure is not None and discovery.failure.kind == "syntax"
    assert discovery.failure.message.startswith(message)
    assert discovery.failure.span is not None
    if position:
        assert (discovery.failure.span.line, discovery.failure.span.col) == position


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("%matplotlib inline\nx = 1", "None\nx = 1"),
        ("torch.relu?\n?torch\nx = y??\n", "None\nNone\nx = None\n"),
        ('x = "what?\n', 'x = "what?\n'),
        ("if a:\n    !ls 'it\nb = (7\n% 4)", "if a:\n    None\nb = (7\n% 4)"),
        ('names = !ls\nt = """\n%no\n"""', 'names = None\nt = """\n%no\n"""'),
        ("a = (7\n% 4)", "a = (7\n% 4)"),
        ("%%time\nf(", "None\nf("),
        ("!pip install a \\\n  b\nx = 1", "None\n\nx = 1"),
        ("torch.stack?\n?x\nx??\ny = 1", "None\nNone\nNone\ny = 1"),
        ("# %%\n%%bash\ngit pull\n# %%\nx = 1", "# %%\n\n\n# %%\nx = 1"),
        ("# %%\n%%time\nx = 1", "# %%\nNone\nx = 1"),
    ],
)
def test_commands_of_ipython_are_skipped(text: str, python: str) -> None:
    assert python_of(text) == python


def test_only_a_python_file_with_cells_has_commands_of_ipython() -> None:
    text = "%matplotlib inline\nimport torch\ndef f(x: torch.Tensor): return x.relu()\n"
    failure = discover("/m.py", text).failure
    assert failure is not None and failure.span is not None and failure.span.line == 1
    for file, with_commands in (("/m.py", f"#%%\n{text}"), ("/m.ipynb", text)):
        assert [target.name for target in discover(file, with_commands).targets] == ["f"]


def test_suggestions_for_a_name_that_is_none() -> None:
    names = ["LM", "train.step", "attention", *(f"f{number}" for number in range(9))]
    assert names_like("LM.forward", names).startswith("Did you mean `LM`? The file has `LM`, `train.step`, ")
    assert names_like("train", names).startswith("Did you mean `train.step`?")
    assert names_like("atention", names).startswith("Did you mean `attention`?")
    assert names_like("zzz", names).endswith("`f3`, `f4` and 4 more.")
    assert names_like("zzz", []) == "The file has no function or module that can be traced."


def test_suggestions_for_a_stage_that_is_none() -> None:
    names = ["forward", "backward", *(f"joint:pass_{number:03}" for number in range(50))]
    first, *lines = stages_like("forwards", names).split("\n")
    assert first.startswith("Did you mean `forward`")
    assert len(lines) > 5 and max(map(len, lines)) <= 102
    assert "".join(lines).count("joint:") == 50


def test_functions_inside_functions_at_any_depth_and_autograd_functions() -> None:
    code = """
        def make(eps):
            def norm(x: Tensor):
                return x / (x.norm() + eps)
            return norm
        def f(x):
            def middle(y):
                if y is not None:
                    def innermost(z: Tensor): return z
                return innermost
            return middle
        class Net(nn.Module):
            def forward(self, x):
                def outer(y):
                    async def inner(z):
                        return torch.sigmoid(z)
                    return inner(y)
                return outer(x)
        class Spike(torch.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                return v > 0
        def main():
            def step(x: Tensor):
                return x
            def run(x):
                def step(x: Tensor):
                    return x
                return step
        """
    names = {"make.norm", "f.middle.innermost", "Net.forward.outer.inner", "Spike"}
    assert found(code) == {"Net": "module", **dict.fromkeys(names, "function")}


def test_partial_applications_of_targets() -> None:
    code = """
        import functools
        from functools import partial
        def power(x: Tensor, n): return x ** n
        def plain(a, b): return a + b
        square = partial(power, n=2)
        cube = functools.partial(power, n=3)
        inverted = partial(power, torch.ones(3))
        complete = partial(power, torch.ones(3), 2)
        added = partial(plain, 1)
        linear = partial(nn.Linear, 3)
        relu = partial(torch.relu)
        unknown = partial(power, *settings)
        """
    assert found(code).keys() == {"power", "square", "cube", "inverted"}


CALCULATIONS = """
def plain(a, b):
    return a + b
def blend(a, b, t):
    'Between the two.'
    return a + (b - a) * t
def quad(a):
    return blend(a, a, 4)
def negative(h):
    return -h if h is not None else 0
def modulate(h, shift, scale):
    return h * (1 + scale) + shift
def ceil_div(a, b):
    return (a + b - 1) // b
def warmup(step, steps) -> float:
    return step / steps
def halved(hidden):
    return hidden / 2
def scaled(count):
    return count * 2
def nested(x):
    return [x * 2]
def rounded(x):
    return int(x * 2)
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", set[str]()),
        ("def g(): return blend(torch.ones(3), 1, 2)", {"blend", "quad"}),
        ("y = torch.ones(3).exp()\nz = blend(0, t=-y[0], b=1)", {"blend", "quad"}),
        ("def g(v: Tensor): return quad(v)", {"g", "quad", "blend"}),
        ("def g(v):\n  b, c = v.chunk(2)\n  return negative(c)", {"g", "negative"}),
        ("def main(v):\n  torch.relu(v)\n  negative(v)", {"negative"}),
        ("def g(v: Tensor):\n  def inner(): return plain(v, 1)\n  return inner", {"g", "plain"}),
        ("def g(v: Tensor): return torch.zeros(ceil_div(v.shape[0], 2))", {"g"}),
        ("def g(v: Tensor): return v * warmup(v.sum(), 2)", {"g"}),
        ("def g(v: Tensor): return nested(v), rounded(v)", {"g"}),
        ("def g(n): return torch.zeros(plain(n, 1))", {"g"}),
        ("def g(hidden: Tensor): return hidden", {"g", "halved"}),
        ("def g(hidden): return hidden.shape", {"g", "halved"}),
        ("def g(hidden: Tensor): return hidden, halved(2)", {"g"}),
        ("def g(hidden: Tensor): return hidden\ndef h(hidden: int): return hidden", {"g"}),
        ("def g(count: int, a: Tensor): return a", {"g"}),
        (
            "class Net(nn.Module):\n"
            "  def __init__(self):\n    super().__init__()\n    self.norm = nn.LayerNorm(3)\n"
            "  def forward(self, x, shift): return modulate(self.norm(x), shift, 1)\n"
            "  def halve(self, x): return x / 2\n"
            "  def twice(self, x: Tensor): return self.halve(x)\n",
            {"Net", "Net.twice", "Net.halve", "modulate"},
        ),
        (
            "class Cell(nn.Module):\n"
            "  def forward(self, x: Tensor):\n    self.state = self.step(x)\n    return self.state\n"
            "  def step(self, x): return self.state * 0.9 + x\n",
            {"Cell"},
        ),
    ],
)
def test_calculations_are_targets_where_they_are_handed_tensors(code: str, expected: set[str]) -> None:
    assert found(CALCULATIONS + code).keys() == expected


FX = """\
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
def body(x): return torch.relu(x)
"""


@pytest.mark.parametrize(
    "code",
    [
        "def f() -> fx.Graph: return g()",
        "def f() -> 'fx.GraphModule': return g()",
        "def f() -> torch.fx.graph_module.GraphModule: return g()",
        "def f():\n  graph = fx.Graph()\n  return graph",
        "def f(width=8, *, deep=True):\n  return fx.GraphModule(nn.Module(), fx.Graph())",
        "def f(): return fx.symbolic_trace(body)",
        "def f(): return fx.symbolic_trace(body).graph",
        "def f(): return make_fx(body)(torch.ones(2))",
        "def f(): return torch.export.export(nn.ReLU(), (torch.ones(2),)).module()",
        "class T(fx.Tracer): pass\ndef f():\n  tracer = T()\n  return tracer.trace(body)",
        "def wrap(graph): return fx.GraphModule(nn.Module(), graph)\ndef f(): return wrap(fx.Graph())",
        "f = fx.symbolic_trace(body)",
    ],
)
def test_what_builds_a_graph_by_hand(code: str) -> None:
    assert found(code, FX) == {"body": "function", "f": "graph"}


@pytest.mark.parametrize(
    "code",
    [
        "def f(n): return fx.Graph()",
        "def f(n) -> fx.Graph: return fx.Graph()",
        "def f(*, n) -> fx.Graph: return fx.Graph()",
        "def f(*args, **kwargs): return fx.GraphModule(*args, **kwargs)",
        "def f(): return body",
        "def f():\n  graph = fx.Graph()\n  graph = 3\n  return graph",
        "def f():\n  print(fx.symbolic_trace(body).code)",
        "def f():\n  def inner(): return fx.Graph()\n  return inner",
        "@pytest.fixture\ndef f() -> fx.Graph: return fx.Graph()",
        "def main() -> fx.Graph: return fx.Graph()",
        "def test_graph() -> fx.Graph: return fx.Graph()",
        "class C:\n  def f(self) -> fx.Graph: return fx.Graph()",
    ],
)
def test_what_builds_no_graph_of_its_own(code: str) -> None:
    assert found(code, FX) == {"body": "function"}


VALUES = """
from torch.func import grad, vmap
from functools import partial
model, config = build(3), {"width": 3}
layers = [nn.Linear(3, 3)]
device, name = torch.device("cpu"), "a"
class Net(nn.Module):
    def __init__(self): super().__init__()
    def forward(self, x): return torch.relu(x)
    def log_prob(self, x): return x
def build(dim):
    net = Net()
    return net.to(device)
"""


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return grad(g)(x)",
        "def f(x): return vmap(grad(g), in_dims=0)(x)",
        "def f(x):\n  slope = grad(g)\n  return slope(x)",
        "slopes = vmap(grad(g))\ndef f(x): return slopes(x)",
        "soft = partial(F.softmax, dim=-1)\ndef f(x): return soft(x)",
        "def f(x): return model(x)",
        "def f(x): return build(4)(x)",
        "def f(x): return model.body[0](x)",
        "def f(x): return layers[0](x)",
        "def f(x): return model.log_prob(x)",
        "table = torch.arange(9)\ndef f(x): return table.gather(0, x)",
        "def f(x): return nn.Softmax(dim=-1)(x)",
        "def f(x):\n  for layer in layers: x = layer(x)\n  return x",
        "def f(g, x): return torch.func.jvp(g, (x,), (x,))",
        "if __name__ == '__main__': net = Net()\ndef f(x): return net(x)",
    ],
)
def test_a_function_that_calls_a_value_from_torch_is_a_target(code: str) -> None:
    targets = {target.name: target for target in discover("/m.py", HEADER + VALUES + code).targets}
    assert not targets["f"].evident


@pytest.mark.parametrize(
    "code",
    [
        "def f(model, x): return model(x)",
        "def f(x):\n  layers = load(x)\n  return layers[0](x)",
        "def f(key): return config.get(key)",
        "def f(text): return name.replace(text, '')",
        "def f(dim): return build(dim)",
        "def f(x: str): return model(x)",
        "def f(state): model.load_state_dict(state)",
        "def f(state): return model.load_state_dict(state)",
        "def f(name): return model.get_parameter(name)",
        "def f(path): return model(torch.load(path))",
        "def f(dim): return nn.Linear(dim, dim)",
        "def f(dim): return nn.Sequential(build(dim), Net())",
    ],
)
def test_a_function_that_calls_other_values_is_none(code: str) -> None:
    assert "f" not in found(VALUES + code)
