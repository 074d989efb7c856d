"""Which programs of a project are run for a target: those that can reach it, and how each is run."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from fx_lsp.model import ProgramFile
from fx_lsp.tracing.analysis import analyse

DIFFUSION = """
import torch
from torch import nn

def mean_flat(x):
    return x.mean(dim=list(range(1, x.dim())))

class Diffusion:
    def training_losses(self, model, x):
        return mean_flat((model(x) - x) ** 2)

    def sample(self, model, x):
        return scaled(model(x), 2)

def scaled(x, w):
    return torch.relu(x) * w

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))
"""
SCRIPT = 'if __name__ == "__main__":\n    main()\n'
PROJECT = {
    "train.py": "from loop import run\ndef main():\n    run(None)\n" + SCRIPT,
    "loop.py": "from user import Diffusion\ndef run(x):\n    Diffusion().training_losses(None, x)\n",
    "sample.py": "import user\ndef main():\n    user.Diffusion().sample(None, None)\n" + SCRIPT,
    "other.py": "import torch\ndef main():\n    training_losses = 3\n    print(training_losses)\n" + SCRIPT,
}


def programs(
    folder: Path, name: str, files: Mapping[str, str], source: str = DIFFUSION, overlays: Mapping[str, str] = {}
) -> tuple[ProgramFile, ...]:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(textwrap.dedent(text))
    file = folder / "user.py"
    file.write_text(source)
    return analyse(str(file), source, (str(folder),)).request(name, overlays, 5.0).programs


def names(folder: Path, name: str, files: Mapping[str, str] = PROJECT, source: str = DIFFUSION) -> list[str]:
    return [Path(program.file).name for program in programs(folder, name, files, source)]


def test_a_program_that_cannot_reach_a_target_is_not_run_for_it(tmp_path: Path) -> None:
    assert names(tmp_path, "mean_flat") == ["train.py"]
    assert names(tmp_path, "scaled") == ["sample.py"]
    assert names(tmp_path, "Diffusion.training_losses") == ["train.py"]


def test_of_a_method_that_no_program_calls_those_that_make_its_object_are_run(tmp_path: Path) -> None:
    source = DIFFUSION.replace("def sample(", "def unused(self, x):\n        return x * 2\n\n    def sample(")
    assert sorted(names(tmp_path, "Diffusion.unused", source=source)) == ["sample.py", "train.py"]


@pytest.mark.parametrize(
    "program",
    [
        "from nets import build\nbuild('Block')\nfor x in build('Block'):\n    print(x)\n",
        "import importlib\nfor name in ['user']:\n    print(importlib.import_module(name))\n",
        "import user\nfor x in getattr(user, 'Block')(3):\n    print(x)\n",
    ],
    ids=["registry", "import", "getattr"],
)
def test_what_is_looked_up_by_a_name_can_be_reached(tmp_path: Path, program: str) -> None:
    registry = """
        import user
        NETS = {}
        def register(cls):
            NETS[cls.__name__] = cls
            return cls
        @register
        class Large(user.Block):
            pass
        def build(name):
            return NETS[name](8)
        """
    assert names(tmp_path, "Block", {"run.py": program, "nets.py": registry}) == ["run.py"]


@pytest.mark.parametrize(
    ("name", "is_reached"),
    [
        ("name", True),
        ("'nets.' + name", True),
        ("f'nets.{name}'", True),
        ("'nets.%s' % name", True),
        ("'nets.{}'.format(name)", True),
        ("'nets.user' if name else 'tools.user'", True),
        ("f'tools.{name}'", False),
        ("f'nets.b_{name}'", False),
        ("'json'", False),
    ],
)
def test_an_import_reaches_what_its_name_may_be(tmp_path: Path, name: str, is_reached: bool) -> None:
    program = f"""
        from importlib import import_module
        for name in ["user"]:
            print(import_module({name}).Block)
        """
    folder = tmp_path / "nets"
    folder.mkdir()
    (tmp_path / "run.py").write_text(textwrap.dedent(program))
    file, source = folder / "user.py", DIFFUSION
    file.write_text(source)
    found = analyse(str(file), source, (str(tmp_path),)).request("Block", {}, 5.0).programs
    assert [Path(program.file).name for program in found] == (["run.py"] if is_reached else [])


def entry(folder: Path, text: str, path: str = "tests/test_user.py") -> str:
    (program,) = programs(folder, "Block", {path: text})
    compile(program.entry, "entry", "eval")
    return program.entry


def test_a_test_class_is_set_up(tmp_path: Path) -> None:
    assert entry(
        tmp_path,
        """
        import unittest
        from user import Block

        class BlockTest(unittest.TestCase):
            def setUp(self):
                self.block = Block(4)

            def test_shape(self):
                self.block(torch.ones(2, 4))
        """,
    ) == snapshot("(lambda t: (t.setUp(), t.test_shape()))(BlockTest('test_shape'))")


def test_parameters_and_fixtures(tmp_path: Path) -> None:
    text = """
        import pytest
        from user import Block

        CASES = [(1, 2)]

        @pytest.fixture(name="block")
        def _block(dim):
            return Block(dim)

        @pytest.fixture
        def dim():
            yield 4

        @pytest.mark.parametrize(["n", "m"], CASES)
        @pytest.mark.parametrize("dtype", [pytest.param(torch.half, id="half")])
        @pytest.mark.parametrize("shape", [*CASES, (3, 4)])
        @pytest.mark.skip
        def test_block(block, n, m, dtype, shape):
            assert block(torch.ones(n, m, 4, dtype=dtype)).ndim == 3

        def test_elsewhere(block, tmp_path):
            block(torch.ones(1, 4))
        """
    first = "next(iter(CASES))"
    shape = "next(iter([*CASES, (3, 4)]))"
    call = f"test_block(n=({first})[0], m=({first})[1], dtype=torch.half, shape={shape}, block=_block(dim=next(dim())))"
    assert entry(tmp_path, text, "user_test.py") == call
    (program,) = programs(tmp_path, "Block", {})
    assert "@pytest" not in program.source
    assert program.source.count("\n") == textwrap.dedent(text).count("\n")


def test_the_code_of_a_document(tmp_path: Path) -> None:
    text = (
        "# Use\n\n```python\nfrom user import Block\nBlock(4)\n```\n\n```python\nimport user\nuser.scaled(1, 2)\n```\n"
    )
    (program,) = programs(tmp_path, "Block", {"README.md": text})
    assert program.source == "\n\n\nfrom user import Block\nBlock(4)"


def test_the_unsaved_text_of_a_program_counts(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    assert programs(tmp_path, "scaled", PROJECT, overlays={str(path): "import user\nuser.scaled(1, 2)\n" + SCRIPT})
    assert names(tmp_path, "scaled", PROJECT) == ["sample.py"]


def test_scripts_come_first_then_documents_then_functions_and_tests(tmp_path: Path) -> None:
    files = {
        "run.py": "import user\nfor x in [1]:\n    user.Block(x)\n",
        "README.md": "```python\nfrom user import Block\nBlock(4)\n```\n",
        "demo.py": "import user\ndef demo():\n    user.Block(8)\n",
        "test_user.py": "import user\ndef test_it():\n    user.Block(8)\n",
    }
    assert names(tmp_path, "Block", files) == ["run.py", "README.md", "demo.py", "test_user.py"]
