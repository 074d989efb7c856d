"""Stages as they are sent and stored."""

from collections.abc import Callable
from io import BytesIO

import pytest

from fx_lsp.errors import ProtocolError
from fx_lsp.model import Node, Span, Stage
from fx_lsp.wire import decode_stage, encode_stage, frame, read_frame

CALL = Span("/project/modèle.py", 3, 8, 3, 20)
CALLER = Span("/project/other.py", 70_000, 0, 70_002, 4)
STAGE = Stage(
    "forward",
    (
        Node("x", "placeholder", "primals_1", users=("mm", "add"), spec="f32[4, 4]"),
        Node(
            "mm",
            "call_function",
            "aten.mm.default",
            ("x", "x"),
            ("x", "x"),
            ("add",),
            "f32[4, 4]",
            (CALL, CALLER),
            flops=1 << 40,
        ),
        Node("add", "call_function", "aten.add.Tensor", ("mm", "x"), ("mm", "x"), ("output",), None, (CALL, CALLER)),
        Node("output", "output", "output", ("'\u2028\n'", "add"), ("add",), comment="saved → kept"),
    ),
)
KERNELS = Stage("triton", STAGE.nodes, "import triton\n\ny = x @ x\n", (0, 0, 2))


@pytest.mark.parametrize("stage", [STAGE, Stage("table", text="# no graph\n"), KERNELS, Stage("empty")])
def test_a_stage_comes_back_as_it_was(stage: Stage):
    again = decode_stage(encode_stage(stage))
    assert again == stage
    assert list(map(hash, again.nodes)) == list(map(hash, stage.nodes))


def test_nodes_of_one_expression_share_its_chain():
    _, mm, add, _ = decode_stage(encode_stage(STAGE)).nodes
    assert mm.spans is add.spans
    assert mm.args is mm.inputs


def test_every_text_stands_once():
    encoded = encode_stage(STAGE)
    assert encoded.count(b'"mm"') == encoded.count(b'"call_function"') == encoded.count(b"/project/other.py") == 1


def cut(header: dict[str, list[object]], body: bytes) -> bytes:
    return frame(header, body[:-4])


def without_words(header: dict[str, list[object]], body: bytes) -> bytes:
    return frame({**header, "words": header["words"][:-1]}, body)


def without_a_column(header: dict[str, list[object]], body: bytes) -> bytes:
    return frame({**header, "columns": header["columns"][:-1]}, body)


@pytest.mark.parametrize("damage", [cut, without_words, without_a_column])
def test_what_is_no_stage_is_refused(damage: Callable[..., bytes]):
    found = read_frame(BytesIO(encode_stage(STAGE)).read)
    assert found is not None
    with pytest.raises(ProtocolError, match="not a stage"):
        decode_stage(damage(*found))


@pytest.mark.parametrize("data", [b"", b"{}", b"garbage " * 4, frame({}), encode_stage(STAGE)[:-1]])
def test_other_bytes_are_refused(data: bytes):
    with pytest.raises(ProtocolError):
        decode_stage(data)
