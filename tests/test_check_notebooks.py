"""`fx-lsp check` of notebooks: places are cells and lines in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from checking import check

from fx_lsp.commands.cells import cell_of
from fx_lsp.commands.sources import find_sources, read_source

pytestmark = pytest.mark.torch

IMPORT = "!pip install x\nimport torch\n%matplotlib inline\ntorch.relu?"
WRONG = "%%time\ndef wrong(x: torch.Tensor):\n    return torch.ones(4, 8) @ torch.ones(3, 8)"
BREAKING = """\
@torch.compile
def breaking(x: torch.Tensor):
    print("a")
    return torch.relu(x)"""


def write_notebook(path: Path, cells: Sequence[str], language: str = "python") -> None:
    """Write a notebook with a text cell, and these cells of code."""
    code = [
        {"cell_type": "code", "source": cell.splitlines(keepends=True), "metadata": {}, "outputs": []} for cell in cells
    ]
    notebook = {
        "cells": [{"cell_type": "markdown", "source": "# Title", "metadata": {}}, *code],
        "metadata": {"language_info": {"name": language}},
        "nbformat": 4,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory with notebooks: one with mistakes, in Python and not, and one that is none."""
    write_notebook(tmp_path / "book.ipynb", ["%%bash\nls", IMPORT, WRONG, BREAKING])
    write_notebook(tmp_path / "inner/statistics.ipynb", ["x <- c(1, 2)"], "R")
    (tmp_path / "none.ipynb").write_text("[]")
    write_notebook(tmp_path / ".ipynb_checkpoints/book-checkpoint.ipynb", [WRONG])
    return tmp_path


def test_the_notebooks_of_a_directory_are_checked(project: Path):
    done = check(project, ".")
    assert done.returncode == 1
    assert "\n  wrong     book.ipynb:cell 4:3:12: error (shape): " in done.stdout
    assert "\n    information: cell 5, line 3: " in done.stdout
    assert "  none.ipynb: error (syntax): the file cannot be read: it is not a notebook of format 4." in done.stdout
    assert "2 found in 3 files · 1 traced · 1 not · 2 problems · " in done.stdout


def test_formats_name_the_cell(project: Path):
    document = json.loads(check(project, "book.ipynb", "--format", "json").stdout)
    failure: dict[str, Any] = document["files"][0]["targets"][0]["failure"]
    assert failure["span"] == {
        "file": str(project / "book.ipynb"),
        "cell": 4,
        "line": 3,
        "col": 11,
        "end_line": 3,
        "end_col": 46,
    }
    place = "file=book.ipynb,line=1,title=fx-lsp%3A shape,col=1,endColumn=1"
    github = check(project, "book.ipynb", "--format", "github").stdout
    assert github.startswith(f"::error {place}::cell 4, line 3: wrong was not traced: ")


def test_a_line_of_code_is_in_a_cell(tmp_path: Path):
    write_notebook(tmp_path / "book.ipynb", ["a\nb", "", "%%writefile x.py\nimport torch", "c"])
    file = str(tmp_path / "book.ipynb")
    assert read_source(file) == "a\nb\n\n\n\nc"
    assert [cell_of(file, line) for line in range(1, 8)] == [(2, 1), (2, 2), (3, 1), (4, 1), (4, 2), (5, 1), None]
    assert cell_of(str(tmp_path / "model.py"), 1) is None


def test_notebooks_are_found_with_the_python_files(project: Path):
    (project / "model.py").write_text("")
    names = [Path(source.file).name for source in find_sources([str(project)])]
    assert names == ["book.ipynb", "model.py", "none.ipynb", "statistics.ipynb"]
