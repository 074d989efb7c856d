"""Every rewrite of a graph on its way to kernels, in the order in which they run.

The graph of a target is either a joint graph, which a partitioner splits into forward and backward, or a graph for
inference, which becomes forward unchanged. `REWRITES` alone defines the rewrites, their order and their invariants.
`fx-lsp kernel --dump-passes` shows each of them at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.graph.loop_batching import batch_step_sums
from fx_lsp.codegen.graph.loops import find_loops, save_loop_states, takers_of_later_iterations
from fx_lsp.codegen.graph.query import graph_results, symbolic_shape
from fx_lsp.codegen.graph.random import seed_random, undecided_random
from fx_lsp.codegen.graph.reductions import split_reductions
from fx_lsp.codegen.graph.saved import (
    PartitionCall,
    SavedValues,
    StepFamilies,
    disagreeing_inputs,
    partition_balancing,
    partition_recomputing,
    partition_saving,
    save_bases,
    stack_saved,
)
from fx_lsp.codegen.graph.scatter import add_to_zeros, recomputed_sums, save_scatter_sums, sums_without_zeros
from fx_lsp.codegen.graph.sizes import derive_sizes_from_inputs, sizes_of_other_tensors
from fx_lsp.codegen.graph.slices import (
    join_slices,
    join_writes,
    reads_of_written_parts,
    sum_stacked_parts,
    summed_slices,
    summed_stacks,
)
from fx_lsp.codegen.graph.templates.attention import fuse_attention
from fx_lsp.codegen.graph.templates.matmul import fuse_matmuls
from fx_lsp.codegen.graph.templates.template_kernel import misread_kernels, write_in_copied_layout
from fx_lsp.codegen.graph.unsupported import (
    recomputed_library_results,
    release_weight_buffers,
    save_library_results,
    weight_buffers,
)
from fx_lsp.codegen.graph.views import detach_view_results, merge_views, nested_views, results_in_inputs
from fx_lsp.codegen.lower.attention import keeps_score_places
from fx_lsp.codegen.schedule.matmul_tiling import is_slower_than_library

Phase: TypeAlias = Literal["joint", "partition", "saved", "forward", "backward"]


@dataclass(frozen=True)
class Invariant:
    """An invariant after a rewrite: a sentence, and the function that finds the nodes that violate it.

    It checks a graph, or the attribute `of` of the graphs.
    """

    sentence: str
    offenders: Callable[[Any], Iterable[fx.Node]]
    of: str = ""


@dataclass(frozen=True)
class Rewrite:
    """A rewrite: its function, the attributes of `Graphs` that it `takes`, and the attributes that it `makes`.

    It runs if each choice in `when` has one of the values given. `graphs` are the attributes that it rewrites; it is
    skipped if they are missing. By default it takes and rewrites the graph of its phase. `asks` are functions of later
    steps that it takes as well: they answer what a kernel can compute.
    """

    phase: Phase
    function: Callable[..., Any]
    does: str
    when: Mapping[str, tuple[str, ...]]
    after: Invariant | None = None
    graphs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    asks: tuple[Callable[..., Any], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "graphs", self.graphs or (self.phase,))

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def file(self) -> str:
        """The file of the function, relative to `codegen`."""
        return "/".join(self.function.__module__.split(".")[2:]) + ".py"

    @property
    def condition(self) -> str:
        """The choices under which it runs, as options: `engine=fx-lsp matmul=epilogue|always`."""
        return " ".join(f"{choice}={'|'.join(values)}" for choice, values in self.when.items()) or "always"

    def applies(self, choices: Choices) -> bool:
        """Return True if it runs under these choices."""
        return all(getattr(choices, choice) in values for choice, values in self.when.items())


Watch: TypeAlias = "Callable[[Rewrite, Graphs, Sequence[str] | None], None]"
"""A callback for each rewrite: called before it with None, and after it with the violated invariants."""


@dataclass
class Graphs:
    """The graphs of a target, and the data that rewrites need and produce.

    `joint` is the joint graph, or the graph for inference. The first `outputs` results of forward are those of the
    function. Backward takes the gradients of `tangents`, of all floats for None. `view_results` are the positions of
    results that are views. `call` is the call of the partitioner. `saved` are the values that forward saves for
    backward. `steps` are the nodes of each step of a loop. `generates` returns True for an operation that
    Inductor computes in kernels.
    """

    choices: Choices
    joint: fx.Graph | None = None
    forward: fx.Graph | None = None
    backward: fx.Graph | None = None
    call: PartitionCall | None = None
    saved: SavedValues | None = None
    steps: StepFamilies = field(default_factory=StepFamilies)
    outputs: int = 0
    tangents: Sequence[int] | None = None
    view_results: Mapping[int, fx.Node] = field(default_factory=dict[int, fx.Node])
    watch: Watch | None = None
    generates: Callable[[fx.Node], bool] = lambda node: False

    def of(self, rewrite: Rewrite) -> dict[str, fx.Graph]:
        """Return the graphs that a rewrite applies to, without missing ones."""
        return {name: graph for name in rewrite.graphs if (graph := getattr(self, name)) is not None}


OURS = {"engine": ("fx-lsp",)}
FUSED = {**OURS, "fuse": ("yes",)}
ATOMIC = {**OURS, "deterministic": ("no",)}
MULTIPLIED = {**FUSED, "matmul": ("epilogue", "always")}

TEMPLATES = Invariant("each template kernel says what it computes, and its results are read from it", misread_kernels)
AGREED = Invariant("forward saves the values that backward takes, in the same order", disagreeing_inputs, "saved")


def _each(phase: Phase) -> tuple[Rewrite, ...]:
    """Return the rewrites of forward or backward; both have the same."""
    return (
        Rewrite(
            phase,
            add_to_zeros,
            "Let scatter-adds start from zeros, in a dtype that atomic operations support.",
            ATOMIC,
            Invariant("scatter-adds start from zeros", sums_without_zeros),
        ),
        Rewrite(
            phase,
            batch_step_sums,
            "Finish partial sums of loop iterations for all iterations at once.",
            FUSED,
        ),
        Rewrite(phase, split_reductions, "Split a reduction that would keep few programs busy into two.", FUSED),
        Rewrite(
            phase,
            fuse_matmuls,
            "Replace matrix products and the operations on their results by template kernels.",
            MULTIPLIED,
            TEMPLATES,
            takes=(phase, "choices"),
            asks=(is_slower_than_library,),
        ),
    )


def _partition(function: Callable[..., Any], does: str, backward: str) -> Rewrite:
    """Return the rewrite of the partitioner for a choice of `backward`."""
    makes = ("forward", "backward", "saved", "steps")
    return Rewrite("partition", function, does, {"backward": (backward,)}, AGREED, makes[:2], ("call", "steps"), makes)


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(
        "joint",
        derive_sizes_from_inputs,
        "Compute every size from the sizes of inputs, so that no tensor is saved for its shape.",
        OURS,
        Invariant("sizes are read from inputs where possible", sizes_of_other_tensors),
    ),
    Rewrite(
        "joint",
        merge_views,
        "Merge views of views, and remove views without an effect.",
        OURS,
        Invariant("no view of a view and no permutation of a permutation remains", nested_views),
    ),
    Rewrite(
        "joint",
        seed_random,
        "Draw random numbers from seeds, element by element; save other random values.",
        OURS,
        Invariant("random values are drawn once, for forward and backward", undecided_random),
    ),
    Rewrite(
        "joint",
        save_scatter_sums,
        "Save the results of scatter-adds.",
        OURS,
        Invariant("no scatter-add is recomputed in backward", recomputed_sums),
    ),
    Rewrite(
        "joint",
        save_library_results,
        "Save the results of library calls and sorts.",
        OURS,
        Invariant("no library call is recomputed in backward", recomputed_library_results),
    ),
    Rewrite(
        "joint",
        release_weight_buffers,
        "Let recurrent layers of libraries lay out their weights themselves.",
        OURS,
        Invariant("no recurrent layer takes a single tensor of all its weights", weight_buffers),
    ),
    Rewrite(
        "joint",
        join_writes,
        "Join writes into slices of one tensor, and read the written values directly.",
        OURS,
        Invariant("no read goes through a write that covers all or none of it", reads_of_written_parts),
    ),
    Rewrite(
        "joint",
        join_slices,
        "Join tensors that are zero except for one slice each, instead of adding them.",
        OURS,
        Invariant("no sum adds many slices of a tensor", summed_slices),
    ),
    Rewrite(
        "joint",
        sum_stacked_parts,
        "Add the parts of a stack that is only summed or averaged.",
        FUSED,
        Invariant("no stack is only summed", summed_stacks),
    ),
    Rewrite(
        "joint",
        fuse_attention,
        "Replace attention by template kernels, forward and backward.",
        FUSED,
        TEMPLATES,
        asks=(keeps_score_places,),
    ),
    Rewrite(
        "joint",
        write_in_copied_layout,
        "Lay out results of template kernels like their copies.",
        FUSED,
        TEMPLATES,
    ),
    Rewrite(
        "joint",
        find_loops,
        "Find loops, and mark the iteration of each node.",
        OURS,
        Invariant("no iteration uses a value of a later one", takers_of_later_iterations),
    ),
    Rewrite(
        "partition",
        save_loop_states,
        "Compute shared values of loop iterations once, sum over iterations once, and save the states of long loops.",
        OURS,
        graphs=("joint",),
        makes=("steps",),
    ),
    _partition(partition_recomputing, "Partition the joint graph; backward recomputes cheap values.", "recompute"),
    _partition(partition_balancing, "Partition the joint graph like PyTorch.", "balance"),
    _partition(partition_saving, "Partition the joint graph; backward recomputes nothing.", "save"),
    Rewrite(
        "saved",
        save_bases,
        "Save the base of a view instead of the view.",
        OURS,
        AGREED,
        graphs=("forward", "backward"),
        takes=("saved",),
    ),
    Rewrite(
        "saved",
        stack_saved,
        "Save the values of all loop iterations in one tensor.",
        OURS,
        AGREED,
        graphs=("forward", "backward"),
        takes=("saved", "steps"),
    ),
    *_each("forward"),
    Rewrite(
        "forward",
        detach_view_results,
        "Create results that are views of inputs or of other results outside of the operator.",
        {},
        Invariant("no result is a view of an input", results_in_inputs),
        takes=("forward", "outputs", "tangents", "backward"),
        makes=("view_results",),
    ),
    *_each("backward"),
)


def partition(
    graphs: Graphs, joint: fx.GraphModule, inputs: Any, **options: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Partition a joint graph into forward and backward for AOTAutograd, and store both in `graphs`."""
    graphs.joint, graphs.call = joint.graph, PartitionCall(joint, inputs, options)
    for phase in ("joint", "partition", "saved"):
        _run(graphs, phase)
    forward, backward = (graph.owning_module for graph in (graphs.forward, graphs.backward) if graph is not None)
    assert forward is not None and backward is not None
    forward.recompile()
    backward.recompile()
    return forward, backward


def finish(graphs: Graphs, outputs: int, tangents: Sequence[int] | None) -> None:
    """Run the rewrites that remain after partitioning, or all of them on a graph for inference."""
    graphs.outputs, graphs.tangents = outputs, tangents
    if graphs.forward is None:
        _run(graphs, "joint")
        graphs.forward = graphs.joint
    for phase in ("forward", "backward"):
        _run(graphs, phase)


def _run(graphs: Graphs, phase: Phase) -> None:
    """Run the rewrites of a phase on their graph, if there is one."""
    for rewrite in REWRITES:
        if rewrite.phase != phase or not rewrite.applies(graphs.choices):
            continue
        if not graphs.of(rewrite) and phase != "partition":
            continue
        if graphs.watch is None:
            _apply(graphs, rewrite)
            continue
        graphs.watch(rewrite, graphs, None)
        results = {name: _result_specs(graph) for name, graph in graphs.of(rewrite).items()}
        _apply(graphs, rewrite)
        graphs.watch(rewrite, graphs, list(_broken(rewrite, graphs, results)))


def _apply(graphs: Graphs, rewrite: Rewrite) -> None:
    """Run a rewrite."""
    returned = rewrite.function(*(getattr(graphs, name) for name in rewrite.takes or rewrite.graphs), *rewrite.asks)
    values = returned if len(rewrite.makes) > 1 else [returned] * len(rewrite.makes)
    for name, value in zip(rewrite.makes, values, strict=True):
        setattr(graphs, name, value)


def _result_specs(graph: fx.Graph) -> list[Any]:
    """Return the shape and dtype of each result of a graph, None for a result that is no tensor."""
    values = [n.meta["val"] if isinstance(n, fx.Node) else None for n in graph_results(graph)]
    return [(symbolic_shape(v), v.dtype) if isinstance(v, torch.Tensor) else None for v in values]


def _broken(rewrite: Rewrite, graphs: Graphs, results: Mapping[str, list[Any]]) -> Iterator[str]:
    """Yield the violations after a rewrite.

    A rewrite must keep its own invariant. Each graph must stay well-formed and keep its results, except those that
    forward saves and those that are removed. Backward must take the values that forward saves.
    """
    for attribute, graph in graphs.of(rewrite).items():
        try:
            graph.lint()
        except (RuntimeError, ValueError) as error:
            yield f"the {attribute} graph is not well-formed: {error}"
        old, new = results.get(attribute, []), _result_specs(graph)
        own = graphs.saved.outputs if attribute == "forward" and graphs.saved is not None else len(old)
        if any(a != b for a, b in zip(old[:own], new, strict=False) if b is not None):
            yield f"the {attribute} graph has other results than before"
        if rewrite.after is not None and not rewrite.after.of:
            yield from _offended(rewrite.after, graph, f"in the {attribute} graph")
    if graphs.saved is not None:
        yield from _offended(AGREED, graphs.saved, "of forward and backward")


def _offended(invariant: Invariant, subject: Any, where: str) -> Iterator[str]:
    """Yield a sentence with the nodes that violate an invariant, if there are any."""
    offenders = [node.name for node in invariant.offenders(subject)]
    if offenders:
        yield f"not so {where} that {invariant.sentence}: {', '.join(offenders)}"


def listing() -> str:
    """Return the list of all rewrites: the phase, name, condition, description and invariant of each."""
    lines: list[str] = []
    for number, rewrite in enumerate(REWRITES, start=1):
        lines.append(f"{number:>2}  {rewrite.phase:<9}  {rewrite.name:<24}  {rewrite.condition}")
        lines.append(f"    {rewrite.does} ({rewrite.file})")
        if rewrite.after is not None:
            lines.append(f"    After it {rewrite.after.sentence}.")
    return "\n".join(lines) + "\n"
