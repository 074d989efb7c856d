"""Complete a `# fx:` comment while it is typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fx_lsp.comments import fx_comment
from fx_lsp.features.source.parameters import Parameter, Parameters, signature_of
from fx_lsp.features.source.pin import written_values
from fx_lsp.features.wording.inputs import source_text
from fx_lsp.model import InputSpec, Outcome, Target
from fx_lsp.specs import CONTEXTS, DTYPES, MODES

CompletionKind = Literal["parameter", "constructor", "context", "value", "dtype", "device"]
_BEFORE = re.compile(r"[^\n]*?#\s*fx:(.*)$")
_INIT = "init."
_ABOUT = {"eval": "evaluation mode", "train": "training mode"}


@dataclass(frozen=True)
class Completion:
    """Offer a completion: `text` replaces the line from the byte `col` to the cursor. The best offers come first."""

    label: str
    kind: CompletionKind
    text: str
    col: int
    detail: str = ""


def in_comment(before: str) -> bool:
    """Return True if `before`, a line up to the cursor, reaches into a `# fx:` comment. Runs at every keystroke."""
    return "fx:" in before and _BEFORE.match(before) is not None


def completions(
    text: str, line: str, at: tuple[int, int], targets: Sequence[tuple[Target, Outcome | None]]
) -> tuple[Completion, ...]:
    """Return the offers at the position `at` (line, column) of `text`, whose line there is `line`; () outside
    comments.
    """
    number, col = at
    before = line.encode()[:col].decode(errors="ignore")
    match = _BEFORE.match(before)
    if match is None:
        return ()
    for target, outcome in targets:
        comment = fx_comment(text, target)
        if comment is not None and any(part.span.line == number for part in comment.lines):
            earlier = [part.text for part in comment.lines if part.span.line < number and part.text]
            typed = _read(", ".join([*earlier, match[1]]), col)
            everything = _read(comment.text)
            return tuple(_offers(text, target, outcome, typed, everything.names))
    return ()


@dataclass
class _Typed:
    """Hold the typed part of a comment: the names so far (with `init.`), and the incomplete item at its end.

    `calls` are the items that are written with parentheses. `end` is the column behind the typed part.
    """

    names: list[str] = field(default_factory=list[str])
    calls: set[str] = field(default_factory=set[str])
    open: list[str] = field(default_factory=list[str])
    item: str = ""
    value: str | None = None
    end: int = 0


def _read(text: str, end: int = 0) -> _Typed:
    typed, quote = _Typed(end=end), ""
    for char in text:
        if quote or char in "'\"":
            quote = "" if char == quote else quote or char
        elif _separates(typed, char):
            continue
        if typed.value is None:
            typed.item += char
        else:
            typed.value += char
    return typed


def _separates(typed: _Typed, char: str) -> bool:
    """Record a bracket, a comma or a `=` outside of quotes. Return True if it separates items and is part of none."""
    outside = typed.open in ([], ["init"])
    if char in "([{":
        before_value = not typed.open and typed.value is None
        constructing = before_value and typed.item.strip() == "init"
        if before_value:
            typed.calls.add(typed.item.strip())
        typed.open.append("init" if constructing else char)
        typed.item = "" if constructing else typed.item
        return constructing
    if (char in ")]}" and typed.open) or (char == "," and outside):
        if char != "," and typed.open.pop() != "init":
            return False
        typed.item, typed.value = "", None
        return True
    if char == "=" and outside and typed.value is None:
        typed.names.append((_INIT if typed.open else "") + typed.item.strip())
        typed.item, typed.value = typed.item.strip(), ""
        return True
    return False


def _offers(text: str, target: Target, outcome: Outcome | None, typed: _Typed, written: list[str]) -> list[Completion]:
    signature = signature_of(text, target)
    inputs = () if outcome is None else outcome.inputs
    prefix = _INIT if typed.open[:1] == ["init"] else ""
    seen = signature and (signature.init if prefix else signature.call)
    parameters = _parameters(seen or Parameters(), inputs, prefix)
    if typed.value is None:
        start = typed.end - len(_last_word(typed.item).encode())
        offers = [
            Completion(p.name, "parameter", f"{p.name}=", start, _about(p))
            for p in parameters
            if prefix + p.name not in written
        ]
        constructed = not prefix and signature is not None and signature.init is not None
        offers += _constructor_offers(target, typed, start) if constructed else []
        return offers if prefix or typed.names else [*offers, *_context_offers(typed, start)]
    device = re.search(r"@\s*([\w:]*)$", typed.value)
    if device:
        return [Completion(name, "device", name, typed.end - len(device[1])) for name in ("cuda", "cpu")]
    if typed.open[-1:] == ["["] and re.search(r"\b(" + "|".join(DTYPES) + r")\s*\[[^\[\]]*$", typed.value):
        return []
    parameter = next((p for p in parameters if p.name == typed.item), Parameter(typed.item))
    return _values(text, parameter, prefix, inputs, typed)


def _constructor_offers(target: Target, typed: _Typed, start: int) -> list[Completion]:
    """Offer `init(` and a mode, if the comment of a module has none yet."""
    offers: list[Completion] = []
    if not typed.names and "init" not in typed.calls:
        offers.append(Completion("init(", "constructor", "init(", start, f"how {target.name} is constructed"))
    if all(name.startswith(_INIT) for name in typed.names) and not typed.calls & MODES.keys():
        for mode, about in _ABOUT.items():
            offers.append(Completion(f"{mode}()", "constructor", f"{mode}()", start, about))
    return offers


def _context_offers(typed: _Typed, start: int) -> Iterator[Completion]:
    """Offer the settings of a call's context that the comment does not have yet."""
    for name, arguments in CONTEXTS.items():
        if name not in typed.calls:
            text = f"{name}(" if arguments else f"{name}()"
            yield Completion(text, "context", text, start, f"traced under torch's `{name}`")


def _values(
    text: str, parameter: Parameter, prefix: str, inputs: Sequence[InputSpec], typed: _Typed
) -> list[Completion]:
    word = _last_word(typed.value or "")
    start = typed.end - len(word.encode())
    offers: list[Completion] = []
    if (typed.value or "").strip() == word:
        now = written_values(text, inputs).get(prefix + parameter.name)
        if now is not None:
            source = next(i for i in inputs if i.name.startswith(prefix + parameter.name))
            offers.append(Completion(now, "value", now, start, f"as traced now: {source_text(source)}"))
        if parameter.default and parameter.default != now:
            offers.append(Completion(parameter.default, "value", parameter.default, start, "the default"))
    offers += [Completion(name, "value", name, start) for name in ("None", "True", "False")]
    offers += [Completion(f"{short}[", "dtype", f"{short}[", start, f"torch.{long}") for short, long in DTYPES.items()]
    best: dict[str, Completion] = {}
    for offer in offers:
        best.setdefault(offer.label, offer)
    return list(best.values())


def _parameters(seen: Parameters, inputs: Sequence[InputSpec], prefix: str) -> list[Parameter]:
    """Return the parameters in the text, and the others of the trace."""
    by_name = {p.name: p for p in seen.seen}
    for item in inputs:
        own = item.name.startswith(_INIT) == bool(prefix)
        name = re.split(r"[\[.]", item.name[len(prefix) :], maxsplit=1)[0]
        if own and name not in by_name:
            by_name[name] = Parameter(name)
    return list(by_name.values())


def _about(parameter: Parameter) -> str:
    annotation = f": {parameter.annotation}" if parameter.annotation else ""
    return annotation[2:] if not parameter.default else f"{annotation} = {parameter.default}".lstrip(": ")


def _last_word(text: str) -> str:
    word = re.search(r"[\w.]*$", text)
    return word[0] if word else ""
