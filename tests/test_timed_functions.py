"""`benchmarks/kernels.py`: the families of functions that it times, and its tables."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import kernels

from fx_lsp.measured import Machine, Measured, Report, Timing
from fx_lsp.specs import Comment, parse_comment

FAMILIES = sorted(kernels.TARGETS.glob("*.py"))


def measured(variant: str, milliseconds: float, right: bool = True) -> Measured:
    timing = Timing(milliseconds, milliseconds, milliseconds, milliseconds, 9)
    return Measured(variant, "", "forward", {"graph": timing}, right)


def report(*rows: Measured) -> Report:
    return Report("", Machine(), None, (), rows, (), 0.0, 0.0)


def test_a_function_is_named_with_its_family() -> None:
    names = kernels.names_of_targets()
    assert len(names) == len(set(names)) >= 120
    assert {"transformers/rope", "optimizers/lion"} <= set(names)
    assert "transformers/rotated" not in names  # a helper, without a comment


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.stem)
def test_a_comment_states_an_input_for_each_parameter_without_default(family: Path) -> None:
    text = family.read_text(encoding="utf-8")
    functions = {f.name: f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)}
    pairs = re.findall(r"^# fx: (.*)\n(?:@.*\n)*def (\w+)", text, re.MULTILINE)
    assert [f"{family.stem}/{name}" for _, name in pairs] == [
        name for name in kernels.names_of_targets() if name.startswith(f"{family.stem}/")
    ]
    for inputs, name in pairs:
        comment, of = parse_comment(inputs), functions[name].args
        assert isinstance(comment, Comment), (name, comment)
        parameters = [argument.arg for argument in of.args]
        required = parameters[: len(parameters) - len(of.defaults)]
        assert set(required) <= set(comment.args) <= set(parameters), name


def test_a_table_has_a_mean_for_each_family_and_lists_slower_functions(capsys: pytest.CaptureFixture[str]) -> None:
    reports = {
        "gates/fast": report(measured("kernels", 1.0), measured("eager", 8.0), measured("compile", 2.0)),
        "gates/even": report(measured("kernels", 1.0), measured("eager", 0.98)),
        "gates/not_measured": report(),
        "losses/slow": report(measured("kernels", 4.0), measured("eager", 2.0)),
        "losses/slowest": report(measured("kernels", 4.0, right=False), measured("eager", 1.0)),
    }
    kernels.table(reports, "forward", "graph")
    printed = [re.sub(r" +", " ", line) for line in capsys.readouterr().out.splitlines()]
    assert printed == snapshot(
        [
            "",
            "forward, graph floor ours eager compile max-autotune uctor-kernels best/ours",
            "fast nan 1.0000 8.0000 2.0000 nan nan 2.00",
            "even nan 1.0000 0.9800 nan nan nan 0.98",
            "-- gates: geometric mean of best/ours 1.40 over 2",
            "slow nan 4.0000 2.0000 nan nan nan 0.50",
            "slowest nan 4.0000 1.0000 nan nan nan 0.25 WRONG",
            "-- losses: geometric mean of best/ours 0.35 over 2",
            "-- all: geometric mean of best/ours 0.70 over 4",
            "slower than the best: losses/slowest 0.25",
            "slower than the best: losses/slow 0.50",
        ]
    )
