"""Build a page of AOTAutograd's metadata on a target's inputs and outputs: mutations, aliases, duplicates, bases."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from fx_lsp.tracer.compat import wrappers_of_inputs
from fx_lsp.tracer.run.call import FlatInput
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.stages.ledger import page


@dataclass
class Metadata:
    """Hold AOTAutograd's `ViewAndMutationMeta` of the original inputs, and the two wrappers around them."""

    meta: Any = None
    dedupe: Any = None
    bases: Any = None

    def page(self, inputs: Sequence[FlatInput], outputs: Sequence[str]) -> str:
        """Return all of it with the user's names, as comments. Raises ValueError if nothing was recorded."""
        if self.meta is None:
            raise ValueError("AOTAutograd reported nothing about the inputs")
        names = [item.name for item in inputs]
        sections = [
            ["inputs", *_table([_INPUTS, *(_input(i, info, inputs) for i, info in enumerate(self.meta.input_info))])],
            ["outputs", *_table([_OUTPUTS, *self._outputs(names, outputs)])],
            ["intermediates that are returned for their views", f"  {getattr(self.meta, 'num_intermediate_bases', 0)}"],
            ["duplicated inputs", *self._duplicates(inputs)],
            ["synthetic bases", *self._synthetic(names)],
            ["tokens", *([f"  {effect}" for effect in getattr(self.meta, "tokens", {})] or ["  none"])],
        ]
        return "#\n".join(map(page, sections))

    def _outputs(self, names: Sequence[str], outputs: Sequence[str]) -> list[list[str]]:
        rows: list[list[str]] = []
        for i, info in enumerate(self.meta.output_info):
            kind, base = str(info.output_type.name), info.base_idx
            told = _KINDS.get(kind, kind)
            if base is not None:
                of = {"alias_of_input": names, "is_input": names, _OF_OUTPUT: outputs}.get(kind, ())
                told = told.format(of[base] if base < len(of) else base)
            dims = ", ".join(map(str, sorted(info.dynamic_dims or ()))) or "none"
            rows.append([str(i), outputs[i] if i < len(outputs) else "", told, _yes(info.requires_grad), dims])
        return rows

    def _duplicates(self, inputs: Sequence[FlatInput]) -> list[str]:
        where: dict[int, list[int]] = {}
        for i, item in enumerate(inputs):
            where.setdefault(id(item.tensor), []).append(i)
        dupe_map = list(getattr(self.dedupe, "add_dupe_map", ()) or ())
        lines: list[str] = []
        for same in (group for group in where.values() if len(group) > 1):
            names = [inputs[i].name for i in same]
            once = bool(dupe_map) and len({dupe_map[i] for i in same}) == 1
            how = "the graph takes it once, because a duplicated input is mutated" if once else _KEPT
            lines.append(f"  {_listed(names)} are one tensor: {how}")
        if dupe_map and lines:
            numbers = ", ".join(f"{item.name} {number}" for item, number in zip(inputs, dupe_map, strict=True))
            lines.append(f"  the graph input that each of them becomes: {numbers}")
        return lines or ["  none: all inputs are distinct tensors"]

    def _synthetic(self, names: Sequence[str]) -> list[str]:
        mask = list(getattr(self.dedupe, "keep_arg_mask", ()) or ())
        kept = [n for n, keep in zip(names, mask, strict=True) if keep] if mask else list(names)
        if self.bases is not None and not hasattr(self.bases, "base_groups"):
            return ["  this version of torch does not report it"]
        groups: dict[int, list[int]] = getattr(self.bases, "base_groups", None) or {}
        lines = [
            f"  {_listed([kept[i] for i in group])} are views of one storage, and one of them is mutated: the graph"
            f" takes that storage as its input {base}"
            for base, group in groups.items()
        ]
        return lines or ["  none: no mutated input shares its storage with another one"]


_INPUTS = ["#", "name", "spec", "kind", "requires grad", "mutated", "shares its storage with"]
_OUTPUTS = ["#", "name", "what it is", "requires grad", "dynamic dims"]
_KEPT = "no duplicated input is mutated, so the graph has one input for each"
_OF_OUTPUT = "alias_of_intermediate_base_is_user_output"
_KINDS = {
    "non_alias": "a new tensor",
    "alias_of_input": "a view of the input {}",
    "is_input": "the input {} itself",
    "alias_of_intermediate": "a view of intermediate {}, which is returned as well",
    "alias_of_intermediate_save_as_output": "a view of intermediate {}, which is returned for it",
    _OF_OUTPUT: "a view of the output {}",
    "unsafe_view_alias": "a view of an intermediate without other uses: treated as a new tensor",
    "custom_function_view": "a view that an autograd.Function returns: treated as a new tensor",
}


@contextmanager
def watched_metadata() -> Generator[Metadata, None, None]:
    """Record AOTAutograd's analysis of a function inside. Raises ImportError if this torch hides it."""
    seen = Metadata()
    dedupe, bases = wrappers_of_inputs()

    def noted(kind: Any, attribute: str) -> Any:
        original = kind.pre_compile

        def pre_compile(self: Any, *args: Any, fw_metadata: Any, **kwargs: Any) -> Any:
            if kind is dedupe:  # which comes first, and sees the original inputs
                seen.meta = fw_metadata
            setattr(seen, attribute, self)
            return original(self, *args, fw_metadata=fw_metadata, **kwargs)

        return mock.patch.object(kind, "pre_compile", pre_compile)

    with ExitStack() as stack:
        stack.enter_context(noted(dedupe, "dedupe"))
        stack.enter_context(noted(bases, "bases"))
        yield seen


def _input(index: int, info: Any, inputs: Sequence[FlatInput]) -> list[str]:
    item = inputs[index]
    own = _storage(item.tensor)
    shared = [o.name for i, o in enumerate(inputs) if i != index and own is not None and _storage(o.tensor) == own]
    spec, grad = str(spec_of(item.tensor)), _yes(info.requires_grad)
    return [str(index), item.name, spec, item.kind, grad, _mutation(info), ", ".join(shared)]


def _mutation(info: Any) -> str:
    parts = [
        word
        for word, flag in (
            ("data", "mutates_data"),
            ("storage", "mutates_storage_metadata"),
            ("shape or strides", "mutates_metadata"),
        )
        if getattr(info, flag, False)
    ]
    if not parts:
        return "no"
    how = {"MUTATED_IN_GRAPH": "written in the graph", "MUTATED_OUT_GRAPH": "returned, and copied back by the caller"}
    told = [how.get(getattr(getattr(info, "mutation_type", None), "name", ""), "")]
    if getattr(info, "mutations_hidden_from_autograd", False):
        told.append("hidden from autograd")
    if getattr(info, "mutations_under_no_grad_or_inference_mode", False):
        told.append("under no_grad")
    return f"{' and '.join(parts)}: {', '.join(t for t in told if t)}".rstrip(": ")


def _storage(tensor: torch.Tensor) -> int | None:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return None


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
