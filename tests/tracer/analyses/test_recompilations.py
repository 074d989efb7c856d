"""Calls that are compiled again are those of a real run, for the same guards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import TraceFixture, request_for
from inline_snapshot import snapshot

from fx_lsp import wire
from fx_lsp.model import Trace, TraceReply, TraceRequest, WrittenInputs

FUNCTIONS = Path(__file__).parents[2] / "fixtures" / "recompilations.py"
REAL_RUN = """
import importlib.util, sys, torch
from fx_lsp.specs import TensorSpec, parse_comment
from fx_lsp.tracer.run.tensors import make_tensor

def made(value):
    if isinstance(value, TensorSpec):
        return make_tensor(value, {}).fill_(1)
    if isinstance(value, dict):
        return {name: made(item) for name, item in value.items()}
    return type(value)(map(made, value)) if isinstance(value, (list, tuple)) else value

spec = importlib.util.spec_from_file_location("functions", sys.argv[1])
module = sys.modules["functions"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name, calls in module.CALLS.items():
    torch._dynamo.reset()
    function = getattr(module, name)
    function = torch.compile(function() if isinstance(function, type) else function, backend="eager")
    for number, call in enumerate(calls, 1):
        print("CALL", name, number, file=sys.stderr, flush=True)
        function(**{name: made(value) for name, value in parse_comment(call).args.items()})
"""
Reasons = dict[str, dict[int, list[str]]]
"""The guards that fail, by target and by the number of the call."""


def calls_of_targets() -> dict[str, list[str]]:
    namespace: dict[str, Any] = {"__name__": "functions"}
    exec(FUNCTIONS.read_text(), namespace)
    return namespace["CALLS"]


def logged() -> Reasons:
    """What a real run under `TORCH_LOGS=recompiles` says."""
    command = [sys.executable, "-c", REAL_RUN, str(FUNCTIONS)]
    environment = {**os.environ, "TORCH_LOGS": "recompiles"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    reasons: Reasons = {}
    name, number = "", 0
    for line in told.splitlines():
        if line.startswith("CALL "):
            _, name, count = line.split()
            number = int(count)
            reasons.setdefault(name, {})[number] = []
        elif match := re.search(r"- \d+/\d+: (.*)$", line):
            reasons[name][number].append(without_numbers(match[1].partition("  # ")[0].strip()))
    return reasons


def without_numbers(condition: str) -> str:
    """A guard without what differs between two processes: the address of a type, and how often a function has run."""
    return re.sub(r"(___check_type_id\(\w+|^G\[.*\] ==).*?(\)|$)", r"\1 …", condition)


def shown_for(reply: Callable[[TraceRequest], TraceReply], name: str, calls: list[str]) -> dict[int, list[str]]:
    given = tuple(WrittenInputs(call, "recorded", detail="from `train.py`") for call in calls)
    request = replace(
        request_for(str(FUNCTIONS), FUNCTIONS.read_text(), name), work="recompiles&only=calls", given=given
    )
    answer = reply(request)
    assert isinstance(answer.outcome, Trace), (name, answer.outcome)
    data = json.loads(wire.decode_stage(answer.stages["recompiles:json"]).text)
    return {
        item["call"]: [
            without_numbers(re.sub(r"L\['(\w+)'\]", r"\1", reason["condition"]))
            for reasons in item["compiled_again"]
            for reason in reasons
        ]
        for item in data["calls"]
    }


def test_calls_compiled_again_are_those_of_a_real_run(reply: Callable[[TraceRequest], TraceReply]) -> None:
    real = logged()
    shown = {name: shown_for(reply, name, calls) for name, calls in calls_of_targets().items()}
    assert shown == real


SOURCE = """
import torch


@torch.compile
def f(x, n, flag=True):
    y = x * n
    if flag:
        y = y + x.shape[0]
    return y
"""


def traced_with(reply: Callable[[TraceRequest], TraceReply], file: str, calls: list[str], work: str = "") -> TraceReply:
    given = tuple(WrittenInputs(call, "recorded", detail="from `train.py`") for call in calls)
    return reply(replace(request_for(file, SOURCE, "f"), work=work, given=given))


def test_the_page_lists_calls_guards_and_changes(reply: Callable[[TraceRequest], TraceReply], tmp_path: Path) -> None:
    answer = traced_with(reply, str(tmp_path / "user.py"), ["x=f32[3, 4], n=3", "x=f32[5, 4], n=3"], "recompiles")
    assert wire.decode_stage(answer.stages["recompiles"]).text == snapshot("""\
# calls: 2, compiled again: 1
#
# call 1         from `train.py`: x=f32[3, 4], n=3
#
# call 2         from `train.py`: x=f32[5, 4], n=3
#                compiled again: tensor 'x' size mismatch at index 0. expected 3, actual 5
#                dynamic from now on: x.size()[0]
#
# guards         of the first compilation, by the line that needs them
#
# line 7         y = x * n
#                x: its dtype, device, sizes and requires_grad
#                n == 3
#
# line 8         if flag:
#                flag == True
#
# what if        each change of one argument of call 1, in a second and a third call; those that raise are left
#                out
#
# x              another size of dimension 0 of `x`: compiled again once, then dynamic: tensor 'x' size mismatch
#                at index 0. expected 3, actual 6
#
# x              another size of dimension 1 of `x`: compiled again once, then dynamic: tensor 'x' size mismatch
#                at index 1. expected 4, actual 8
#
# x              `x` with requires_grad=False: compiled again: tensor 'x' requires_grad mismatch. expected
#                requires_grad=1
#
# x              `x` as bfloat16: compiled again: tensor 'x' dtype mismatch. expected Float, actual BFloat16
#
# n              another value of `n`: compiled again once, then dynamic: the guard `n == 3` fails (line 7)
#
# flag           another value of `flag`: compiled again: the guard `flag == True` fails (line 8)
#
# the call       a call without gradients (torch.no_grad): compiled again: GLOBAL_STATE changed: grad_mode (in
#                f)
#
# CUDA graphs    on a GPU with mode="reduce-overhead"
#
# one more CUDA graph for each new value of x.size()[0]
#
""")


def test_a_compiled_function_has_remarks_on_its_parameters(
    reply: Callable[[TraceRequest], TraceReply], tmp_path: Path
) -> None:
    calls = ["x=f32[3, 4], n=3", "x=f32[5, 4], n=3", "x=f32[5, 4], n=4"]
    outcome = traced_with(reply, str(tmp_path / "user.py"), calls).outcome
    assert isinstance(outcome, Trace)
    told = [r for r in outcome.remarks if r.code == "recompile"]
    assert [(r.severity, r.span and (r.span.line, r.span.col)) for r in told] == [
        ("information", (6, 6)),
        ("information", (6, 9)),
    ]
    assert [textwrap.wrap(r.message, 90) for r in told] == snapshot(
        [
            [
                "torch.compile compiles the code again for another `x`: tensor 'x' size mismatch at index",
                "0. expected 3, actual 5 (from `train.py`)",
            ],
            ["torch.compile compiles the code again for another `n`: the guard `n == 3` fails (from", "`train.py`)"],
        ]
    )


def test_one_call_of_the_project_has_no_remark(reply: Callable[[TraceRequest], TraceReply], tmp_path: Path) -> None:
    outcome = traced_with(reply, str(tmp_path / "user.py"), ["x=f32[3, 4], n=3"]).outcome
    assert isinstance(outcome, Trace)
    assert [r for r in outcome.remarks if r.code == "recompile"] == []


STATES = """
import torch
from torch import nn

STEP = 0


@torch.compile
def scaled(x):
    global STEP
    STEP += 1
    return x * STEP


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class FirstCall(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = None

    def forward(self, x):
        if self.mean is None:
            self.mean = x.detach().mean()
        return x - self.mean


scaled(torch.ones(3, 4))
torch.compile(Counter())(torch.ones(3, 4))
torch.compile(FirstCall())(torch.ones(3, 4))
"""


@pytest.mark.parametrize(
    ("name", "line", "guard"), [("scaled", 10, "G['STEP']"), ("Counter", 20, "self.calls"), ("FirstCall", 0, "")]
)
def test_a_state_that_each_call_changes_has_a_remark(trace: TraceFixture, name: str, line: int, guard: str) -> None:
    told = [remark for remark in trace(STATES, name).trace.remarks if remark.code == "recompile"]
    assert [remark.span and remark.span.line for remark in told] == ([line] if line else [])
    assert all(f"in each call, which changes what it depends on: the guard `{guard} == " in r.message for r in told)


def test_calls_in_the_file_are_those_of_the_project(trace: TraceFixture) -> None:
    calls = "\n\nf(torch.randn(3, 4), 2)\nf(torch.randn(3, 4), 5)\n"
    data = json.loads(trace(SOURCE + calls, work="recompiles&only=calls").stage("recompiles:json").text)
    assert [(call["place"], call["arguments"], bool(call["compiled_again"])) for call in data["calls"]] == snapshot(
        [("line 12", "x=f32[3, 4], n=2", False), ("line 13", "x=f32[3, 4], n=5", True)]
    )


def test_a_change_that_raises_is_left_out(trace: TraceFixture) -> None:
    source = "import torch\n\n\n# fx: x=f32[3, 4]\ndef f(x):\n    return x.reshape(3, 4) * 2\n"
    data = json.loads(trace(source, work="recompiles").stage("recompiles:json").text)
    assert [change["change"] for change in data["changes"]] == snapshot(
        ["`x` with requires_grad=False", "`x` as bfloat16", "a call without gradients (torch.no_grad)"]
    )


CUDA_GRAPHS = """
import torch


# fx: x=f32[4, 4]
def f(x):
    x.add_(1)
    return x[x > 0].sum()
"""


def cuda_graph_rows(text: str) -> str:
    return text.partition("CUDA graphs")[2].partition("\n#\n")[2]


def test_the_page_says_what_a_cuda_graph_does_not_capture(trace: TraceFixture) -> None:
    text = trace(CUDA_GRAPHS, work="recompiles&only=calls").stage("recompiles").text
    assert cuda_graph_rows(text) == snapshot("""\
# line 7         `aten.index.Tensor` is not captured
#
# line 6         no CUDA graph, unless another one has computed it: the code modifies in place its argument `x`
#
""")


def test_tensors_on_the_cpu_alone_are_no_reason(trace: TraceFixture) -> None:
    text = trace(
        "import torch\n\n\n# fx: x=f32[4]\ndef f(x):\n    return x + torch.arange(4)\n", work="recompiles&only=calls"
    )
    assert "CUDA graphs" not in text.stage("recompiles").text
