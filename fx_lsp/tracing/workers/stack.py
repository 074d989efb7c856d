"""Where a process was when it was stopped or crashed, from the Python stack that `faulthandler` printed."""

from __future__ import annotations

import re

from fx_lsp.model import Span
from fx_lsp.tracing.source.parsing import split_lines

_HEADING = "(most recent call first):"
_FRAME = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d+) in ')


def ends_with_stack(output: str) -> bool:
    """Return True if the last that was printed is a stack, down to its outermost frame or as far as it is printed."""
    _, heading, stack = output.rpartition(_HEADING)
    outermost = stack.rstrip().rpartition("\n")[2]
    return bool(heading) and (outermost.endswith(" in <module>") or outermost.strip() == "...")


def stopped_at(output: str, file: str, source: str) -> Span | None:
    """The innermost line of `file` (whose text is `source`) in the last stack of `output`; None where there is none."""
    _, heading, stack = output.rpartition(_HEADING)
    wanted = file.encode("ascii", "backslashreplace").decode()
    lines = split_lines(source)
    for text in stack.lstrip("\n").splitlines() if heading else ():
        frame = _FRAME.match(text)
        if frame is None:
            break
        line = int(frame["line"])
        if frame["file"] == wanted and 0 < line <= len(lines):
            content = lines[line - 1]
            start = len(content) - len(content.lstrip())
            end = len(content.rstrip().encode("utf-8", "surrogatepass"))
            return Span(file, line, start, line, max(start, end))
    return None
