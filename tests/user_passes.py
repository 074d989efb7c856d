"""Passes of the user, run on targets as the server runs them."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

from conftest import Traced, in_fork, request_for

from fx_lsp.features.documents.diffs import diff_lines
from fx_lsp.features.documents.passes import change_text
from fx_lsp.model import Failure, PassSource, Trace
from fx_lsp.tracer.job import run
from fx_lsp.tracing.slicing.passes import with_passes

TARGETS = """\
import torch
import torch.nn.functional as F
from torch import nn


# fx: x=f32[4, 8]
def scaled(x):
    y = torch.relu(x) + 1.0
    return (y * 0.5).sigmoid()


# fx: x=f32[4, 8], w=f32[8, 6], b=f32[6]
def biased(x, w, b):
    h = torch.relu(x @ w + b)
    g = torch.tanh(x @ w + b)
    return h * g


# fx: init(dim=8), x=f32[4, 8]
class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, dim)
        self.down = nn.Linear(dim, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(x))) + x


# fx: x=f32[4, 8]
def dropped(x):
    return F.dropout(x, 0.5, True) * 2


# fx: x=i64[4], m=b8[4]
def whole(x, m):
    return torch.where(m, x + 1, x * 2), ~m


# fx: x=f32[8, 4](1, 8)
def strided(x):
    return x.relu()


# fx: x=f32[4]
def writes(x):
    x.mul_(2)
    return x + 1


# fx: x=f32[4], n=3
def branches(x, n):
    return x + 1 if x.sum() > 0 else x
"""

HEAD = """\
import torch
from torch import fx, nn
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper, this_before_that_pass_constraint
from torch.fx.passes.operator_support import OperatorSupport, any_chain, chain, create_op_support
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

aten = torch.ops.aten


"""


@dataclass
class Ran:
    """What running a pass gave."""

    traced: Traced
    file: str
    source: str

    @property
    def trace(self) -> Trace:
        return self.traced.trace

    @property
    def failure(self) -> Failure:
        return self.traced.failure

    @property
    def changes(self) -> dict[str, str]:
        """What each stage changed, by its name without `pass:`."""
        return {i.name.removeprefix("pass:"): change_text(i.change) for i in self.trace.stages}

    @property
    def notes(self) -> dict[str, str]:
        return {i.name.removeprefix("pass:"): i.note for i in self.trace.stages if i.note}

    @property
    def errors(self) -> list[str]:
        """`message @ the line of the pass's file that it stands on`."""
        return self._said("error", self.source)

    @property
    def hints(self) -> list[str]:
        return self._said("hint", self.traced.source)

    def _said(self, severity: str, source: str) -> list[str]:
        lines = source.splitlines()
        remarks = [r for r in self.trace.remarks if r.severity == severity and r.span is not None]
        return [f"{r.message} @ {lines[r.span.line - 1].strip()}" for r in remarks if r.span is not None]

    def page(self, stage: str) -> str:
        return self.traced.stage(f"pass:{stage}").text

    def diff(self, stage: str) -> str:
        """The lines that a pass changed."""
        info = self.trace.info(f"pass:{stage}")
        assert info is not None
        lines = diff_lines(self.traced.stage(info.before), self.traced.stage(info.name))[2:]
        return "\n".join(line.text for line in lines if line.text[0] in "+-") + "\n"


def run_own(
    folder: Path,
    source: str,
    name: str,
    target: str = "scaled",
    on: str = "",
    check: bool = False,
    targets: str = TARGETS,
) -> Ran:
    """Run the pass `name` of a file that begins with `HEAD` on a target."""
    request = own_request(folder, source, name, target, on, check, targets)
    reply = in_fork(lambda: run(request))
    return Ran(Traced(reply, targets), str(folder / "own.py"), HEAD + textwrap.dedent(source).lstrip("\n"))


def own_request(
    folder: Path, source: str, name: str, target: str = "scaled", on: str = "", check: bool = False, targets=TARGETS
):
    text = HEAD + textwrap.dedent(source).lstrip("\n")
    user, own = folder / "user.py", folder / "own.py"
    user.write_text(targets)
    own.write_text(text)
    work = f"pass={own}::{name}" + (f"&on={on}" if on else "") + ("&check" if check else "")
    request = with_passes(replace(request_for(str(user), targets, target), work=work), (), {})
    assert not isinstance(request, Failure), request
    assert all(isinstance(p, PassSource) for p in request.passes)
    return request
