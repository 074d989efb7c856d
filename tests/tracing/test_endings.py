"""What is said of a process that was stopped: where it was, and in whose code."""

from dataclasses import replace

from conftest import request_for
from inline_snapshot import snapshot

from fx_lsp.errors import WorkerTimeout
from fx_lsp.model import Pass, PassSource, Span
from fx_lsp.tracing.workers.failures import timed_out
from fx_lsp.tracing.workers.launch import Limits
from fx_lsp.tracing.workers.stack import ends_with_stack

TARGET = "import torch\n\ndef f(x: torch.Tensor):\n    return x.relu()\n"
PASSES = "def forever(graph):\n    while True:\n        graph.lint()\n"
STACK = """\
Current thread 0x1 (most recent call first):
  File "{}", line {} in somewhere
  File "/ours.py", line 3 in run
"""
NAME = Span("/w/model.py", 3, 4, 3, 5)


def test_a_stack_is_there_once_its_outermost_frame_is() -> None:
    stack = STACK.format("/w/model.py", 4)
    whole = stack + '  File "/w/bootstrap.py", line 9 in <module>\n'
    assert ends_with_stack(f"printed\n{whole}") and ends_with_stack(stack + "  ...\n")
    assert not ends_with_stack(stack) and not ends_with_stack(f"{whole}more") and not ends_with_stack("")


def ending(file: str, line: int) -> tuple[str, Span | None]:
    whole, name = Span("/w/passes.py", 1, 0, 3, 20), Span("/w/passes.py", 1, 4, 1, 11)
    source = PassSource(Pass("/w/passes.py", "forever", "function", whole, name), PASSES, PASSES, "passes", "", ())
    request = replace(request_for("/w/model.py", TARGET, "f"), passes=(source,))
    failure = timed_out(request, Limits(seconds=5), WorkerTimeout("", STACK.format(file, line)), NAME)
    return failure.message, failure.span


def test_in_the_target():
    assert ending("/w/model.py", 4) == snapshot(
        ("tracing f took more than 5 s and was stopped while it was at line 4", Span("/w/model.py", 4, 4, 4, 19))
    )


def test_in_a_pass_of_the_users():
    assert ending("/w/passes.py", 3) == snapshot(
        ("forever on f took more than 5 s and was stopped while it was at line 3", Span("/w/passes.py", 3, 8, 3, 20))
    )


def test_nowhere_of_theirs():
    assert ending("/elsewhere.py", 3) == ("tracing f took more than 5 s and was stopped", NAME)
