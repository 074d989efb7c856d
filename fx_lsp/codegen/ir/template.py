"""Template kernels as data: what a node computes whose kernels have a fixed form.

A rewrite that recognizes a pattern records one of the `Template`s on the node that replaces it. Kernels are generated
from that record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.ir.index import ZERO, Coords, Index, Space
from fx_lsp.codegen.ir.kernel import Naming
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.ir.write_target import WriteTarget


@dataclass(frozen=True)
class Subgraph:
    """Hold a copy of a part of a graph, starting from tensors in memory (`reads`); `of` maps nodes to copies."""

    reads: tuple[fx.Node, ...]
    of: Mapping[fx.Node, fx.Node]


@dataclass(frozen=True)
class MatmulTemplate:
    """A matmul `node` and the `results` computed from it, perhaps itself, as nodes of `subgraph`."""

    subgraph: Subgraph
    node: fx.Node
    results: tuple[fx.Node, ...]


@dataclass(frozen=True)
class ScoreLayout:
    """The shape of the scores of attention. `batched` is False if they have two dimensions: `batch` is 1 then."""

    batched: bool
    batch: Index
    m: Index
    n: Index

    def axes(self, space: Space) -> Coords:
        """Return the coordinates of a score, each an axis. The coordinate of a batch of one is 0."""
        batch = space.axis("batch", self.batch) if self.batch != 1 else ZERO
        return batch, space.axis("m", self.m), space.axis("n", self.n)

    def at(self, coords: Coords) -> Coords:
        """Return coordinates in the form of the scores: without the batch if they have none."""
        return coords if self.batched else coords[1:]


@dataclass(frozen=True)
class ScoreProduct:
    """Describe a product of scores with rows of another tensor, summed over `over` ("m" or "n").

    The scores are argument `side`; `transposed` is True if the result has the order `[batch, depth, rows]`.
    """

    node: fx.Node
    scores: fx.Node
    other: fx.Node
    over: str
    side: int
    transposed: bool


@dataclass(frozen=True)
class ScoreSum:
    """Describe a tensor with an element for each row and column: a sum of `scores` over `summed` batches (1: of none),
    or the scores themselves. `inner` is True if consecutive batches are summed, else those as far apart as possible.
    """

    node: fx.Node
    scores: fx.Node
    summed: Index
    inner: bool


@dataclass(frozen=True)
class Attention:
    """Hold one attention of a graph. `score_product` computes the scores, in the shape `layout`; `row_max` and
    `row_sum` are the maximum and the sum of each row of `shifted`, `weights` its softmax; `gradient` is the product
    that computes the gradient of the weights, `row_dot` the sum of each of its rows. `backward` are the products of
    backward, `sums` its other results: gradients of biases.
    """

    layout: ScoreLayout
    score_product: fx.Node
    shifted: fx.Node
    row_max: fx.Node
    row_sum: fx.Node
    weights: fx.Node
    result: ScoreProduct
    gradient: fx.Node | None
    row_dot: fx.Node | None
    backward: tuple[ScoreProduct, ...]
    sums: tuple[ScoreSum, ...]


@dataclass(frozen=True)
class AttentionForward:
    """Forward of attention: its result, and the maximum and the sum of each row for backward."""

    attention: Attention
    subgraph: Subgraph


@dataclass(frozen=True)
class AttentionGradients:
    """Gradients of attention: `products` that all sum over m (keys and values), or over n (queries)."""

    attention: Attention
    subgraph: Subgraph
    products: tuple[ScoreProduct, ...]


@dataclass(frozen=True)
class AttentionScoreSum:
    """A sum of the scores of attention over batches, such as the gradient of a bias."""

    attention: Attention
    subgraph: Subgraph
    summed: ScoreSum


Template: TypeAlias = "MatmulTemplate | AttentionForward | AttentionGradients | AttentionScoreSum"


@dataclass(frozen=True)
class TemplateCall:
    """A template `node` in a program: its results that are needed, by number, and where a kernel writes them
    (`targets`); the tensors in memory (`buffers`); the title of the kernel.
    """

    node: fx.Node
    targets: Mapping[int, WriteTarget]
    buffers: Mapping[fx.Node, Buffer]
    naming: Naming
    title: str
    choices: Choices

    def memory(self, subgraph: Subgraph) -> dict[fx.Node, Buffer]:
        """Return the tensors in memory that the node reads, by their copies in its subgraph."""
        pairs: Any = zip(subgraph.reads, self.node.args, strict=True)
        return {copy: self.buffers[read] for copy, read in pairs if read in self.buffers}
