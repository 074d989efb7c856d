"""Passes that change the graph they are given: replace, insert and remove nodes."""

import torch
from torch import fx

aten = torch.ops.aten


def relu_to_gelu(gm: fx.GraphModule) -> fx.GraphModule:
    """One operation becomes another."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target == aten.relu.default:
            node.target = aten.gelu.default
    gm.recompile()
    return gm


def clamp_after_relu(gm: fx.GraphModule) -> fx.GraphModule:
    """A node goes in behind every relu, and what read the relu reads the new node."""
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target == aten.relu.default:
            with gm.graph.inserting_after(node):
                clamped = gm.graph.call_function(aten.clamp.default, (node, None, 6.0))
            node.replace_all_uses_with(clamped, delete_user_cb=lambda user, clamped=clamped: user is not clamped)
    gm.recompile()
    return gm


def drop_detach(gm: fx.GraphModule) -> None:
    """Nodes that only hand on what they were given are removed."""
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in (aten.detach.default, aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()


def forgets_its_users(gm: fx.GraphModule) -> None:
    """A pass with a mistake: the node that it erases is still read, and PyTorch refuses."""
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target == aten.relu.default:
            gm.graph.erase_node(node)
