"""The table of messages: call sites take their sentences from `fx_lsp/messages/`, and the table has no others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from string import Formatter

import pytest

from fx_lsp.messages.template import FailureTemplate, RemarkTemplate

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "fx_lsp" / "messages"
OPTIONS = {
    "failure": {"hint", "severity"},
    "remark": {"page", "related", "rests_on", "severity"},
    "message": set[str](),
}
"""The keyword arguments of the templates' methods that are not fields."""


@cache
def templates() -> dict[str, FailureTemplate | RemarkTemplate]:
    """Return the templates of the table by name."""
    modules = [import_module(f"fx_lsp.messages.{file.stem}") for file in TABLE.glob("*.py") if file.stem != "__init__"]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, (FailureTemplate, RemarkTemplate))
    }


def fix_of(template: FailureTemplate | RemarkTemplate) -> str:
    return template.hint if isinstance(template, FailureTemplate) else ""


def fields_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the modules of fx_lsp by path."""
    files = sorted((ROOT / "fx_lsp").rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def sentences_by_hand(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of failures and remarks whose message is a literal, or a variable that is bound to one."""
    nodes = list(ast.walk(tree))
    if not any(isinstance(node, ast.Name) and node.id in ("Failure", "Remark") for node in nodes):
        return
    scopes = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for scope in [tree, *scopes]:
        literals = {
            name
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and _is_sentence(node.value)
            for target in node.targets
            for name in ([target.id] if isinstance(target, ast.Name) else [])
        }
        for node in ast.walk(scope):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            place = {"Failure": 1, "Remark": 0}.get(node.func.id)
            if place is None:
                continue
            message = node.args[place] if len(node.args) > place else None
            message = next((keyword.value for keyword in node.keywords if keyword.arg == "message"), message)
            is_bound = scope is not tree and isinstance(message, ast.Name) and message.id in literals
            if message is not None and (_is_sentence(message) or is_bound):
                yield node.lineno


def _is_sentence(node: ast.expr) -> bool:
    """Return True for a literal text, an f-string, or an expression that joins or formats one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value != ""
    if isinstance(node, ast.BinOp):
        return _is_sentence(node.left) or _is_sentence(node.right)
    if isinstance(node, ast.IfExp):
        return _is_sentence(node.body) or _is_sentence(node.orelse)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _is_sentence(node.func.value)
    return isinstance(node, ast.JoinedStr)


def uses() -> Iterator[tuple[str, ast.Call]]:
    """Yield the places that fill a template by its name."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                template = node.func.value
                if node.func.attr in OPTIONS and isinstance(template, ast.Name) and template.id in templates():
                    yield f"{path}:{node.lineno}", node


def test_no_call_site_builds_a_sentence() -> None:
    hits = [
        f"{path}:{line}"
        for path, tree in trees().items()
        if not path.startswith("fx_lsp/messages/")
        for line in dict.fromkeys(sentences_by_hand(tree))
    ]
    assert hits == []


@pytest.mark.parametrize("name, template", templates().items(), ids=[*templates()])
def test_fields_are_identifiers(name: str, template: FailureTemplate | RemarkTemplate) -> None:
    assert name.isupper()
    assert [field for field in fields_of(template.text + fix_of(template)) if not field.isidentifier()] == []


def test_each_template_is_used() -> None:
    names = {
        node.id
        for path, tree in trees().items()
        if not path.startswith("fx_lsp/messages/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
    }
    assert sorted(templates().keys() - names) == []


def test_names_of_templates_are_unique() -> None:
    names = [
        target.id
        for path, tree in trees().items()
        if path.startswith("fx_lsp/messages/")
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_")
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_texts_are_unique() -> None:
    messages = [(type(t).__name__, getattr(t, "kind", ""), t.text) for t in templates().values()]
    assert sorted({message for message in messages if messages.count(message) > 1}) == []


def test_call_sites_fill_the_fields() -> None:
    """A misspelled field would raise only once the problem occurs."""
    wrong: list[str] = []
    for place, call in uses():
        assert isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        template, filled = templates()[call.func.value.id], {str(keyword.arg) for keyword in call.keywords}
        has_fix = call.func.attr == "failure" and "hint" not in filled
        text = template.text + (fix_of(template) if has_fix else "")
        if filled - OPTIONS[call.func.attr] != fields_of(text):
            wrong.append(f"{place}: {call.func.value.id} has the fields {sorted(fields_of(text))}")
    assert wrong == []


def test_fields_replace_names_and_other_braces_remain() -> None:
    template = FailureTemplate("unsupported", "{name!r} has {length:,}", "Use `{name}`.")
    failure = template.failure(name="a{b}", length=2_000)
    assert (failure.message, failure.hint, failure.severity) == ("'a{b}' has 2,000", "Use `a{b}`.", "information")


@pytest.mark.parametrize(
    "code, lines",
    [
        ('Failure("error", "text")', [1]),
        ('Remark(f"{x}", span)', [1]),
        ('def f():\n m = f"{x}"\n return Failure("error", m)', [3]),
        ('Remark(f"{x}".rstrip(), span)', [1]),
        ('Failure("error", str(error))', []),
        ('Failure("error", failure.message)', []),
    ],
)
def test_sentences_by_hand_are_found(code: str, lines: list[int]) -> None:
    assert list(dict.fromkeys(sentences_by_hand(ast.parse(code)))) == lines
