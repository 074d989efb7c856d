"""Messages to the client: encoded in parts and written in a thread, in order."""

import io
import json
import os
import threading
from typing import Any

import pytest

from fx_lsp.server.frames import PART_CHARACTERS, PART_ITEMS, Outbox, json_parts, read_frames


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def plain(value: Point) -> dict[str, Any]:
    return {"x": value.x}


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "é\u2028\U0001f600"], "b": {}, "c": [], "d": ()},
        list(range(PART_ITEMS * 3 + 1)),
        {"text": "é\U0001f600\\\n" * PART_CHARACTERS},
        [[{"deep": [str(n)] * 3}] for n in range(PART_ITEMS + 1)],
    ],
    ids=["small", "a long list", "a long text", "nested"],
)
def test_parts_are_the_json_of_the_whole(value: object) -> None:
    assert json.loads("".join(json_parts(value, plain))) == json.loads(json.dumps(value))


def test_no_part_is_large() -> None:
    value = {"rows": [[n] * 10 for n in range(100 * PART_ITEMS)], "text": "x" * 10 * PART_CHARACTERS}
    assert max(map(len, json_parts(value, plain))) <= PART_CHARACTERS + 2


def test_objects_are_converted_wherever_they_are() -> None:
    value = {"one": Point(1), "many": [Point(n) for n in range(PART_ITEMS + 1)]}
    decoded = json.loads("".join(json_parts(value, plain)))
    assert decoded == {"one": {"x": 1}, "many": [{"x": n} for n in range(PART_ITEMS + 1)]}


def test_messages_arrive_in_order_and_one_that_cannot_be_encoded_is_reported() -> None:
    reading, writing = os.pipe()
    errors: list[Exception] = []
    with os.fdopen(writing, "wb") as stream:
        outbox = Outbox(stream, plain, errors.append, lambda: None)
        for message in ({"n": 1}, {"n": object()}, {"n": 2}):
            outbox.put(message)
        outbox.end(60)
    with os.fdopen(reading, "rb") as received:
        frames = [json.loads(frame) for frame in read_frames(received) if isinstance(frame, bytes)]
    assert frames == [{"n": 1}, {"n": 2}]
    assert len(errors) == 1


def test_a_client_that_does_not_read_delays_nobody() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", 0) as stream:
        outbox = Outbox(stream, plain, lambda error: None, lambda: None)
        outbox.put({"text": "x" * (1 << 20)})  # more than a pipe holds: the thread waits, this test does not
        outbox.put({"n": 1})
        with os.fdopen(reading, "rb", 0) as received:
            assert received.read(14) == b"Content-Length"
        outbox.end(60)


def test_a_client_that_is_gone_is_told_once() -> None:
    lost = threading.Event()
    stream = io.BytesIO()
    stream.close()
    outbox = Outbox(stream, plain, lambda error: None, lost.set)
    outbox.put({"n": 1})
    outbox.put({"n": 2})
    assert lost.wait(60)
