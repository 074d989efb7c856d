"""What is a pass and what is not, by its syntax; and the passes that a request is given."""

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from fx_lsp.model import Failure, PassSource
from fx_lsp.tracing.analysis import analyse
from fx_lsp.tracing.slicing.passes import find_passes, with_passes
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import parse
from fx_lsp.tracing.source.project import PYPROJECT, read_project

HEAD = "import torch\nfrom torch import fx\nfrom torch.fx import GraphModule\n"


def found(source: str, head: str = HEAD) -> dict[str, str]:
    """The passes of a file: name to kind, and what a rewriting uses."""
    text = head + textwrap.dedent(source)
    tree = parse("p.py", text)
    assert not isinstance(tree, Failure)
    passes = find_passes("p.py", text, ModuleIndex(tree))
    lines = text.splitlines()
    for p in passes:
        assert lines[p.name_span.line - 1][p.name_span.col : p.name_span.end_col] == p.name
    return {p.name: " ".join((p.kind, *p.uses)) for p in passes}


PASSES = {
    "def own(gm: GraphModule): pass": "function",
    "def own(gm: fx.GraphModule) -> fx.GraphModule: pass": "function",
    "def own(gm: 'fx.GraphModule') -> None: pass": "function",
    "def own(gm: GraphModule | None): pass": "function",
    "def own(gm: Optional[GraphModule]): pass": "function",
    "def own(graph: fx.Graph) -> bool: pass": "function",
    "def own(gm: GraphModule) -> tuple[GraphModule, bool]: pass": "function",
    "def own(gm: GraphModule) -> 'PassResult | None': pass": "function",
    "def own(gm: GraphModule, depth=3): pass": "function",
    "def own(gm: GraphModule, *, depth: int = 3): pass": "function",
    "def own(gm):\n    for n in gm.graph.nodes: n.target = torch.relu": "function",
    "def own(gm):\n    gm.graph.erase_node(list(gm.graph.nodes)[1])": "function",
    "class own(fx.Transformer): pass": "transformer",
    "class own(PassBase): pass": "transformer",
    "class own(OperatorSupport): pass": "support",
    "own = PassManager([])": "manager",
    "own: PassManager = PassManager([])": "manager",
    "own = SubgraphMatcher(graph)": "matcher",
    "own = create_op_support(f)": "support",
    "own = chain(a, b)": "support",
}


@pytest.mark.parametrize("source", PASSES)
def test_what_is_a_pass(source: str):
    assert found(source) == {"own": PASSES[source]}


OTHERS = [
    "def helper(node: fx.Node): node.replace_all_uses_with(1)",
    "def two(gm: GraphModule, other): pass",
    "def named(gm: GraphModule, *, other): pass",
    "def count(gm: GraphModule) -> int: return len(gm.graph.nodes)",
    "def nodes(gm: GraphModule) -> list[fx.Node]: return []",
    "def check(module):\n    for n in module.graph.nodes: assert n.target",
    "def prints(gm): print(gm.graph)",
    "def model(x): return torch.relu(x)",
    "def nothing(): pass",
    "class Model(torch.nn.Module): pass",
    "if torch:\n    def inside(gm: GraphModule): pass",
    "class A:\n    def method(gm: GraphModule): pass",
    "a, b = PassManager([]), 3",
    "pair = (1, 2)",
]


@pytest.mark.parametrize("source", OTHERS)
def test_what_is_no_pass(source: str):
    assert found(source) == {}


def test_a_check_of_a_manager_is_no_pass():
    source = "def check(gm: GraphModule): pass\n\nmanager = PassManager([])\nmanager.add_checks(check)\n"
    assert found(source) == {"manager": "manager"}


def test_what_a_file_imports_decides():
    source = "def own(gm: torch.fx.GraphModule): pass\n"
    assert found(source, "import torch\n") == {"own": "function"}
    assert found(source, "import torch.fx\n") == {"own": "function"}
    assert found("def own(gm: GraphModule): pass\n", "import torch\n") == {}
    assert found("def own(gm: GraphModule): pass\n", "from mine import GraphModule\n") == {}


def test_classes_of_the_file_and_their_objects():
    source = """
        class Base(fx.Transformer): pass
        class Own(Base): pass
        class Pass(PassBase): pass
        class Support(OperatorSupport): pass
        class Other: pass
        made = Pass(3)
        support = Support()
        other = Other()
        """
    assert found(source) == {
        "Base": "transformer",
        "Own": "transformer",
        "Pass": "transformer",
        "Support": "support",
        "made": "function",
        "support": "support",
    }


def test_a_pass_with_some_of_its_arguments():
    source = """
        from functools import partial
        def own(gm: GraphModule, table): pass
        small = partial(own, table=3)
        half = partial(own)
        """
    assert found(source) == {"small": "function"}


REWRITING = """
    def mul_pattern(x): return x * 2
    def mul_replacement(x): return x + x
    def mul_filter(match, graph, pattern): return True
    def old(x): return x - x
    def new(x): return x * 0
    def more(x, y): return x
    def seldom(match, graph, pattern): return False
    """


def test_rewritings_use_their_replacement_and_filters():
    assert found(REWRITING) == {"mul_pattern": "rewrite mul_replacement mul_filter"}
    assert found(REWRITING + "pair = (old, new)")["pair"] == "rewrite"
    assert "pair" not in found(REWRITING + "pair = (old, more)")
    called = REWRITING + "def apply(gm: GraphModule): replace_pattern(gm, old, new)\n"
    assert found(called) == {
        "mul_pattern": "rewrite mul_replacement mul_filter",
        "old": "rewrite new",
        "apply": "function",
    }
    filtered = REWRITING + "def apply(gm: GraphModule): replace_pattern_with_filters(gm, old, new, FILTERS)\n"
    assert found(filtered.replace("FILTERS", "[seldom]"))["old"] == "rewrite new seldom"
    assert found(filtered.replace("FILTERS", "match_filters=[seldom]"))["old"] == "rewrite new seldom"


def given(tmp_path: Path, work: str, configured: tuple[str, ...] = (), overlays: dict[str, str] | None = None):
    file = str(tmp_path / "m.py")
    request = analyse(file, "import torch\n\n# fx: x=f32[2]\ndef f(x):\n    return torch.relu(x)\n", ()).request(
        "f", {}, 5.0
    )
    return with_passes(replace(request, work=work), configured, overlays or {})


def sources(answer) -> list[PassSource]:
    assert not isinstance(answer, Failure), answer
    return list(answer.passes)


def test_a_request_has_the_pass_that_its_work_names(tmp_path: Path):
    folder = tmp_path / "a & b=c%20"
    folder.mkdir()
    file = folder / "own.py"
    file.write_text(HEAD + "UNUSED = 3\nTABLE = 4\ndef own(gm: GraphModule): return TABLE\n")
    from fx_lsp.features.wording.traces import work_of_pass

    (source,) = sources(given(tmp_path, f"{work_of_pass(str(file), 'own')}&on=torch"))
    assert source.found.name == "own" and source.found.file == str(file)
    assert "TABLE = 4" in source.sliced and "UNUSED" not in source.sliced


def test_the_text_of_the_editor_counts(tmp_path: Path):
    file = tmp_path / "own.py"
    file.write_text("")
    (source,) = sources(
        given(tmp_path, f"pass={file}::own", overlays={str(file): HEAD + "def own(gm: GraphModule): pass"})
    )
    assert "def own" in source.source


def test_configured_passes_belong_to_the_pipeline(tmp_path: Path):
    file = tmp_path / "own.py"
    file.write_text(HEAD + "def one(gm: GraphModule): pass\ndef two(gm: GraphModule): pass\n")
    names = (f"{file}::two", f"{file}::one")
    assert [s.found.name for s in sources(given(tmp_path, "passes&table=core", names))] == ["two", "one"]
    assert sources(given(tmp_path, "", names)) == []
    assert [s.found.name for s in sources(given(tmp_path, f"pass={file}::one", names))] == ["one"]


def failure(answer) -> str:
    assert isinstance(answer, Failure)
    return f"{answer.message} | {answer.hint}"


def test_a_pass_that_is_not_there(tmp_path: Path):
    file = tmp_path / "own.py"
    assert failure(given(tmp_path, f"pass={file}::own")) == f"there is no file {file} with a pass own | "
    file.write_text(HEAD + "def one(gm: GraphModule): pass\ndef helper(x): pass\nclass Two(fx.Transformer): pass\n")
    assert failure(given(tmp_path, f"pass={file}::helper")) == f"{file} has no pass 'helper'; it has one, Two | "
    file.write_text("def own(x): pass\n")
    assert failure(given(tmp_path, f"pass={file}::own")) == f"{file} has no pass 'own'; a pass takes a GraphModule | "
    file.write_text("def own(:\n")
    assert failure(given(tmp_path, f"pass={file}::own")).startswith("the file of the pass own does not parse: ")
    file.write_bytes(b"\xff\xfe")
    assert failure(given(tmp_path, f"pass={file}::own")).startswith(f"cannot read {file} with the pass own: ")
    assert failure(given(tmp_path, f"pass={tmp_path}::own")).startswith(f"cannot read {tmp_path} with the pass own: ")


def test_a_configured_pass_that_is_not_there_says_where_it_is_named(tmp_path: Path):
    said = failure(given(tmp_path, "passes", (f"{tmp_path}/own.py::own",)))
    assert said.endswith("with a pass own | Correct `passes` of [tool.fx-lsp] in pyproject.toml.")


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ('passes = ["own.py::one", "../lib/own.py::two"]', ["here/own.py::one", "lib/own.py::two"]),
        ('passes = "own.py::one"', ["here/own.py::one"]),
        ("passes = []", []),
    ],
)
def test_passes_are_named_from_where_the_settings_are(tmp_path: Path, text: str, passes: list[str]):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / PYPROJECT).write_text(f"[tool.fx-lsp]\n{text}\n")
    project = read_project(str(tmp_path / "here" / "m.py"))
    assert project.passes == tuple(str(tmp_path / p) for p in passes) and project.trouble == ""


@pytest.mark.parametrize(
    "text", ['passes = ["own.py"]', "passes = 3", "passes = [3]", "passes = {one = 1}", "passes = [[]]"]
)
def test_what_is_no_list_of_passes_is_said(tmp_path: Path, text: str):
    (tmp_path / PYPROJECT).write_text(f"[tool.fx-lsp]\n{text}\n")
    project = read_project(str(tmp_path / "m.py"))
    assert project.passes == ()
    assert project.trouble.endswith('passes of [tool.fx-lsp] is not a list like ["passes.py::fuse"]')
