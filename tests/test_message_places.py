"""Places in messages: by line in a file, by cell in a notebook."""

import json
from pathlib import Path

from fx_lsp.commands.places import line_name
from fx_lsp.commands.targets import Chosen, failure_text
from fx_lsp.messages.places import mention, with_places
from fx_lsp.model import Failure, InputSpec, NamedPlace, Span

FILE = "/m.py"


def at(line: int, file: str = FILE) -> Span:
    return Span(file, line, 4, line, 9)


def in_cells(span: Span) -> str:
    return f"cell {span.line // 10}, line {span.line % 10}"


def test_a_mentioned_place_gets_its_name_and_another_number_stays():
    failure = Failure("shape", "line 57 of the data; line 5: made here", at(7), mentions=(mention(at(5)),))
    named = with_places(failure, FILE, in_cells)
    assert named.message == "line 57 of the data; cell 0, line 5: made here"
    assert named.mentions == (NamedPlace("cell 0, line 5", at(5)),)


def test_a_place_in_another_file_keeps_its_name():
    failure = Failure("shape", "line 5: made here", at(7), mentions=(mention(at(5, "/other.py")),))
    assert with_places(failure, FILE, in_cells) == failure


def test_the_calls_that_inputs_come_from_are_named():
    inputs = (InputSpec("x", "f32[2]", "call site", "line 12"), InputSpec("y", "3", "call site", "train.py:12"))
    named = with_places(Failure("shape", "sizes differ", inputs=inputs), FILE, in_cells)
    assert [item.detail for item in named.inputs] == ["cell 1, line 2", "train.py:12"]


def test_the_command_line_names_cells_of_a_notebook(tmp_path: Path):
    book = tmp_path / "book.ipynb"
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# title"},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": "import torch\nx = 1"},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": "y = x"},
    ]
    book.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    failure = Failure("shape", "line 2: made here", None, mentions=(mention(at(2, str(book))),))
    assert with_places(failure, str(book), line_name).message == "cell 2, line 2: made here"
    chosen = Chosen(str(book), "f", "import torch\nx = 1\ny = x\n")
    assert failure_text(failure, chosen) == "f was not traced: cell 2, line 2: made here"
