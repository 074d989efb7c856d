from fx_lsp.model import Span
from fx_lsp.tracing.workers.stack import stopped_at

SOURCE = "def f(x):\n    while True:\n        x = g(x)\n"
STACK = """printed before
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/lib/python3/torch/nn.py", line 7 in g
  File "/w/m.py", line 3 in f
  File "/w/m.py", line 1 in <module>

Extension modules: torch._C (total: 1)
"""


def test_the_innermost_line_of_the_file_is_where_it_was():
    assert stopped_at(STACK, "/w/m.py", SOURCE) == Span("/w/m.py", 3, 8, 3, 16)


def test_the_last_stack_counts():
    assert stopped_at(STACK + STACK.replace("line 3", "line 2"), "/w/m.py", SOURCE) == Span("/w/m.py", 2, 4, 2, 15)


def test_there_may_be_no_such_line():
    assert stopped_at("", "/w/m.py", SOURCE) is None
    assert stopped_at(STACK, "/w/other.py", SOURCE) is None
    assert stopped_at(STACK.replace("line 3", "line 30").replace("line 1 ", "line 10 "), "/w/m.py", SOURCE) is None
