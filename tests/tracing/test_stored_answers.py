"""Which answers are stored: those that tracing again would give again."""

from dataclasses import replace

import pytest

from fx_lsp.model import Failure, ProgramFile, TraceReply, TraceRequest
from fx_lsp.tracing.workers.interpreter import TracerAnswer

FAILED = TraceReply(Failure("inputs", "no inputs fit"))
ALONE = TraceRequest("model.py", "f", "function", "", "", "model", "", (), seconds=5.0)
CALLED = replace(ALONE, programs=(ProgramFile("train.py", "train", ""),))


@pytest.mark.parametrize(
    ("answer", "request_", "repeats"),
    [
        (TracerAnswer(FAILED, 8.0), ALONE, True),  # the work of a search is counted
        (TracerAnswer(FAILED, 60.0, limit=60.0), ALONE, False),  # its process was ended
        (TracerAnswer(FAILED, 1.0), CALLED, True),
        (TracerAnswer(FAILED, 8.0), CALLED, False),  # the system does not tell whether the machine was busy
        (TracerAnswer(replace(FAILED, starved=3.0), 8.0), CALLED, False),
        (TracerAnswer(replace(FAILED, starved=1.5), 3.5), CALLED, True),
        (TracerAnswer(replace(FAILED, starved=3.0), 3.5), CALLED, False),
        (TracerAnswer(replace(FAILED, starved=0.1), 8.0), CALLED, True),
    ],
)
def test_which_failures_tracing_again_gives_again(answer: TracerAnswer, request_: TraceRequest, repeats: bool):
    assert answer.repeats(request_) == repeats
