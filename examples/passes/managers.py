"""Several passes in a row, with checks after each, and a partitioner."""

import torch
from torch import fx
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper
from torch.fx.passes.operator_support import OperatorSupport

aten = torch.ops.aten


class SubToAdd(PassBase):
    """A pass as a class."""

    def call(self, graph_module):
        changed = False
        for node in graph_module.graph.nodes:
            if node.target == aten.sub.Tensor:
                node.target, changed = aten.add.Tensor, True
        return PassResult(graph_module, changed)


def relu_to_tanh(gm: fx.GraphModule) -> None:
    for node in gm.graph.nodes:
        if node.target == aten.relu.default:
            node.target = aten.tanh.default


def no_tanh(module):
    """The check: nothing here knows tanh."""
    for node in module.graph.nodes:
        if node.target == aten.tanh.default:
            raise ValueError(f"{node.name} calls tanh, which the device has not got")


pipeline = PassManager([SubToAdd(), pass_result_wrapper(relu_to_tanh)], run_checks_after_each_pass=True)
pipeline.add_checks(no_tanh)


class MatmulsAndSums(OperatorSupport):
    """What the device takes: the partitioner makes one submodule of each connected part."""

    def is_node_supported(self, submodules, node):
        return node.op == "call_function" and node.target in (aten.mm.default, aten.addmm.default, aten.add.Tensor)
