"""Configurations of the project that a parameter means: what has all that is read of it."""

import pytest
from inline_snapshot import snapshot

NET = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc = nn.Linear(config.width, config.hidden)

    def forward(self, x):
        return self.fc(x)

class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.depth)])

    def forward(self, x):
        return [layer(x) for layer in self.layers]
"""


def configuration(traced):
    """What the constructor was given, and where that is from."""
    return [f"{i.name}: {i.spec} · {i.detail}" for i in traced.outcome.inputs if i.name.startswith("init.")]


PARSER = """
    import argparse

    def options():
        parser = argparse.ArgumentParser(add_help=False)
        parser.add_argument("--width", default=12, type=int)
        parser.add_argument("--hidden", default="40", type=int)
        parser.add_argument("--depth", default=3, type=int)
        parser.add_argument("--fast", action="store_true")
        return parser
"""
FILES = {
    "a parser": ("options.py", PARSER),
    "a dictionary": ("settings.py", 'SMALL = {"width": 12, "hidden": 4 * 10, "depth": 3}'),
    "attributes": ("settings.py", "config = Config()\nconfig.width = 12\nconfig.hidden = 40\nconfig.depth = 3"),
    "a class": ("settings.py", "class Small:\n    width = 12\n    hidden = 40\n    depth = 3"),
    "JSON": ("config.json", '{"net": {"width": 12, "hidden": 40, "depth": 3}, "lr": 0.1}'),
    "YAML": ("conf/small.yaml", "net:\n  width: 12\n  hidden: 40\n  depth: ${depth}\ndepth: 3\n"),
    "YAML with defaults": ("conf/all.yaml", "defaults:\n  - net: small\nwidth_of_all: 1\n"),
}


@pytest.mark.parametrize("kind", ["a parser", "a dictionary", "attributes", "a class", "JSON", "YAML"])
def test_what_has_the_names_is_what_is_meant(trace, kind):
    if kind == "YAML":
        pytest.importorskip("yaml")
    path, text = FILES[kind]
    traced = trace(NET, "Net", files={path: text})
    assert traced.trace.inputs[-1].spec == "f32[4, 8, 12]"
    assert len(traced.stage("forward").nodes) and traced.graph("forward").count("aten.addmm") == 3
    assert path in configuration(traced)[0]


def test_files_of_defaults_are_put_together(trace):
    pytest.importorskip("yaml")
    files = {
        "conf/all.yaml": FILES["YAML with defaults"][1],
        "conf/net/small.yaml": "width: 12\nhidden: 40\ndepth: 3\n",
    }
    source = NET.replace("config.width", "config.net.width").replace("config.hidden", "config.net.hidden")
    traced = trace(source.replace("config.depth", "config.width_of_all"), "Net", files=files)
    assert "hidden" in configuration(traced)[0]


def test_a_name_is_missing_everywhere(trace):
    """What has only some of the names is not what is meant."""
    traced = trace(NET, "Net", files={"settings.py": 'SMALL = {"width": 12, "hidden": 40}'})
    assert configuration(traced) == snapshot(["init.config: SimpleNamespace(depth=2, hidden=64, width=8) · "])


def test_what_the_program_adds_is_a_guess(trace):
    parser = PARSER.replace('parser.add_argument("--depth", default=3, type=int)', "pass")
    files = {
        "options.py": parser + "\n    def main(args):\n        print(args.width)\n        args.depth = len(words)\n"
    }
    traced = trace(NET, "Net", files=files)
    assert configuration(traced) == snapshot(
        [
            "init.config: SimpleNamespace(depth=2, hidden=40, width=12) · options.py:4, which has some of "
            "the attributes that the code reads"
        ]
    )
    assert traced.trace.inputs[0].guessed


def test_keys(trace):
    source = NET
    for name in ("width", "hidden", "depth"):
        source = source.replace(f"config.{name}", f'config["{name}"]')
    traced = trace(source, "Net", files={"settings.py": FILES["a dictionary"][1]})
    assert configuration(traced) == snapshot(
        [
            "init.config: {'depth': 3, 'hidden': 40, 'width': 12} · settings.py:1, which has the attributes "
            "that the code reads"
        ]
    )


def test_a_parameter_of_a_class_of_the_project_is_that(trace):
    """An annotation is worth more than names that fit."""
    own = "@dataclass\nclass Own:\n    width: int = 20\n    hidden: int = 30\n    depth: int = 1\n\nclass Layer"
    source = "from dataclasses import dataclass\n" + NET.replace("class Layer", own, 1).replace(
        "config):", "config: Own):"
    )
    traced = trace(source, "Net", files={"settings.py": FILES["a dictionary"][1]})
    assert traced.trace.inputs[-1].spec == "f32[4, 8, 20]"
