"""A few of the inputs of `benchmarks/fuzz.py`, of each kind."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import fuzz

INPUTS = {"python": 60, "messages": 500}


@pytest.mark.parametrize("share", [10, pytest.param(1, marks=pytest.mark.release)])
@pytest.mark.parametrize("kind", fuzz.SHARES)
def test_nothing_goes_wrong(kind: str, share: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fuzz, "LIMIT_SECONDS", 600)  # a busy machine needs longer
    count = INPUTS.get(kind, 300) // share
    tally = fuzz.tried(kind, 1, range(count))
    assert tally.inputs >= count
    assert not tally.wrong, tally.first


def test_an_input_follows_from_its_number():
    seen: list[list[float]] = [[], []]
    for numbers in seen:
        fuzz.each("wire", lambda rng, numbers=numbers: numbers.append(rng.random()) or "", 3, range(4))
    assert seen[0] == seen[1] and len({*seen[0]}) == 4


def test_what_goes_wrong_is_counted():
    def check(rng: random.Random) -> str:
        match next(turns):
            case 0:
                return "another result"
            case 1:
                raise KeyError("nobody expects this")
            case 2:
                raise SystemExit(3)
            case 3:
                raise fuzz.Silent
        return ""

    turns = iter(range(5))
    tally = fuzz.each("wire", check, 0, range(5))
    assert (tally.inputs, tally.differences, tally.tracebacks, tally.deaths, tally.silences) == (5, 1, 1, 1, 1)
    assert tally.first == "differences: input 0: another result"


def test_a_process_that_ends_is_a_death(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fuzz, "tried", _ended)
    assert fuzz.in_process("wire", 0, 5).deaths == 1


def _ended(*_: object) -> None:
    os._exit(1)
