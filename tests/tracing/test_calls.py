"""Which calls of a target are found, and which statements each of them needs."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from slices import marked, source_of

from fx_lsp.model import CallSite
from fx_lsp.tracing.analysis import analyse
from fx_lsp.tracing.calls import project_files

PRELUDE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.fc(x))

def scaled(x, w):
    return torch.relu(x) * w
"""
PRELUDE_LINES = PRELUDE.count("\n")


def sites(
    file: Path, source: str, name: str = "Block", tests: Mapping[str, str] = {}, overlays: Mapping[str, str] = {}
) -> tuple[CallSite, ...]:
    text = PRELUDE + textwrap.dedent(source)
    for path, content in tests.items():
        (file.parent / path).parent.mkdir(parents=True, exist_ok=True)
        (file.parent / path).write_text(textwrap.dedent(content))
    return analyse(str(file), text, (str(file.parent),)).request(name, overlays, 5.0).sites


def sliced(file: Path, marks: str, name: str = "Block", test: str = "") -> str:
    """Check the marks of a source, or of a test of it, for its only call, and return how the call is reached."""
    source = source_of(marks)
    (site, *_) = sites(file, "", name, {test: source}) if test else sites(file, source, name)
    rest = site.text.split("\n")[0 if test else PRELUDE_LINES :]
    assert marked(source, "\n".join(rest)) == textwrap.dedent(marks)
    assert site.text.split("\n")[site.line - 1].strip().startswith("("), "it is the line of the call"
    compile(site.text, "user.py", "exec")
    return site.then


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "user.py"


def test_a_main_guard_keeps_what_the_call_needs(file: Path) -> None:
    sliced(
        file,
        """
        import logging  #-
        dim = 64  # a comment  #: dim = 64
        logging.basicConfig()  #-
        if __name__ == "__main__":  #: if True                  :
            model = Block(dim)
            optimizer = torch.optim.SGD(model.parameters())  #: 0
            model.load_state_dict(torch.load("model.pt"))  #: 0
            model.eval()
            x = torch.randn(2, 10, dim)
            print(x)  #: 0
            with torch.no_grad():
                for step in range(100):
                    loss = model(  #: (      model(
                        x
                    ).sum()  #: ))
                    print(loss)  #: 0
            model.train()  #: 0
        """,
    )


def test_the_branch_of_the_call_is_taken_and_others_are_gone(file: Path) -> None:
    then = sliced(
        file,
        """
        def main(half=False, device="cpu"):
            block = Block(8)
            x = torch.randn(2, 8)
            if half:
                print("half")  #: 0
                x = x.half()
            elif device != "cpu":
                x = x.to(device)
            while input():  #: if    True   :
                if (device  #: if (False
                        == "cuda"):  #: ):
                    return  #: 0
                else:
                    return scaled(block(x), 2)  #: (             block(x))
        """,
    )
    assert then == "main()"


def test_what_a_call_looks_like(file: Path) -> None:
    source = """
        def make():
            return Block(4)

        def demo():
            a = nn.Sequential(make(), nn.ReLU())
            a.train()
            print(a, scaled)
            y = a(torch.zeros(2, 4))

        def another():
            return Block(4).to("cpu")(torch.zeros(3, 4))

        def third(required):
            return Block(4)(torch.zeros(4, 4))
        """
    found = [(site.line - PRELUDE_LINES, site.then) for site in sites(file, source)]
    assert found == snapshot([(12, "another()"), (9, "demo()"), (3, "make()")])


def test_functions_and_methods_are_called_by_their_names(file: Path) -> None:
    source = """
        z = [scaled(x, 1) for x in torch.randn(3, 2)]
        fast = torch.compile(scaled)
        fast(torch.zeros(1), 2)
        """
    first, second = ([*filter(str.strip, s.text.split("\n")[PRELUDE_LINES:])] for s in sites(file, source, "scaled"))
    assert first == ["z = [scaled(x, 1) for x in torch.randn(3, 2)]"]
    assert [row.strip() for row in second] == ["fast = torch.compile(scaled)", "(fast(torch.zeros(1), 2))"]


def test_statements_on_one_line_and_in_strings(file: Path) -> None:
    then = sliced(
        file,
        '''
        def demo():
            note = """
        print(1)
            """; x = torch.ones(len(note)); print(x)  #: """; x = torch.ones(len(note)); 0
            Block(4)(x); print(2)  #: (Block(4)(x)); 0
        ''',
    )
    assert then == "demo()"


def test_a_call_that_is_meant_to_fail_is_none(file: Path) -> None:
    source = """
        import pytest

        def test_bad():
            with pytest.raises(RuntimeError):
                Block(4)(torch.zeros(5))
        """
    assert sites(file, source) == ()


def test_a_test_class_is_set_up(file: Path) -> None:
    then = sliced(
        file,
        """
        import unittest
        import torch
        from user import Block

        class BlockTest(unittest.TestCase):
            width = 4

            def setUp(self):
                self.block = Block(self.width)

            def test_other(self):  #: 0
                self.assertTrue(other)  #-

            def test_shape(self):
                x = torch.ones(2, 4)
                self.assertEqual(self.block(x).shape, x.shape)  #: (                self.block(x))
        """,
        test="test/test_user.py",
    )
    assert then == "(lambda t: (t.setUp(), t.test_shape()))(BlockTest('test_shape'))"


def test_parameters_and_fixtures(file: Path) -> None:
    then = sliced(
        file,
        """
        import pytest
        import torch
        from user import Block

        CASES = [(1, 2)]

        @pytest.fixture(name="block")  #-
        def _block(dim):
            return Block(dim)

        @pytest.fixture  #-
        def dim():
            yield 4

        @pytest.mark.parametrize(["n", "m"], CASES)  #-
        @pytest.mark.parametrize("dtype", [pytest.param(torch.half, id="half")])  #-
        @pytest.mark.skip  #-
        def test_block(block, n, m, dtype):
            assert block(torch.ones(n, m, 4, dtype=dtype)).ndim == 3  #: (      block(torch.ones(n, m, 4, dtype=dtype)))

        def test_elsewhere(block, tmp_path):  #-
            block(torch.ones(1, 4))  #-
        """,
        test="user_test.py",
    )
    first = "next(iter(CASES))"
    assert then == f"test_block(n=({first})[0], m=({first})[1], dtype=torch.half, block=_block(dim=next(dim())))"


def test_test_files_are_found_by_name_and_by_what_they_say(tmp_path: Path) -> None:
    file = tmp_path / "src" / "lib" / "nets" / "user.py"
    file.parent.mkdir(parents=True)
    for directory in (file.parent, file.parent.parent):
        (directory / "__init__.py").touch()
    text = PRELUDE
    call = "import torch\nfrom lib.nets.user import scaled as s\ndef test_it():\n    s(torch.ones(1), 2)\n"
    for path in ("tests/nets/test_all.py", "tests/lib/nets/test_user.py", "tests/unrelated/test_user.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(call)
    (tmp_path / "tests" / "nets" / "test_silent.py").write_text(call.replace("scaled", "other"))
    found = analyse(str(file), text, (str(tmp_path),)).request("scaled", {}, 5.0).sites
    assert [Path(site.file).relative_to(tmp_path).as_posix() for site in found] == snapshot(
        ["tests/lib/nets/test_user.py", "tests/nets/test_all.py", "tests/unrelated/test_user.py"]
    )
    assert {site.imported for site in found} == {"lib.nets.user"}


def test_the_unsaved_text_of_a_test_counts(file: Path) -> None:
    saved = "from user import scaled\ndef test_it():\n    scaled(1, 2)\n"
    path = file.parent / "test_user.py"
    (site,) = sites(file, "", "scaled", {path.name: saved}, {str(path): f"\n{saved}"})
    assert site.line == 4
    (site,) = sites(file, "", "scaled", {path.name: saved})
    assert site.line == 3


def test_what_a_test_uses_of_the_file_is_there(file: Path) -> None:
    source = """
        import user as u
        def test_it():
            u.scaled(u.ones(2), u.Block)
        """
    (site,) = sites(file, "ones = torch.ones\nother = torch.zeros\n", "scaled", {"test_user.py": source})
    assert "ones = torch.ones" in site.sliced
    assert "class Block" in site.sliced
    assert "other" not in site.sliced


def test_of_a_file_the_last_text_is_held() -> None:
    for number in range(9):
        parsed = project_files.parsed_file("/w/held.py", f"x = {number}\n")
        assert parsed is not None and parsed.text == f"x = {number}\n"
    assert [key for key in project_files._parsed if key[0] == "/w/held.py"] == [("/w/held.py", 0)]
    assert project_files.parsed_file("/w/held.py", "x = 8\n") is parsed
    assert project_files.parsed_file("/w/held.py", "x = (\n") is None


def test_few_files_are_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = "from user import scaled\ndef test_it():\n    scaled(1, 2)\n"
    monkeypatch.setattr(project_files, "MAX_READ", 2)
    assert len(sites(file, "", "scaled", {f"test_{n}.py": call if n == 1 else "" for n in range(4)})) == 1
    assert sites(file, "", "scaled", {f"test_{n}.py": call if n == 3 else "" for n in range(4)}) == ()
