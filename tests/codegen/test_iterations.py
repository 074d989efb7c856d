"""Every node of a loop knows its iteration, in forward, in backward, and where backward computes it again."""

import torch
from inline_snapshot import snapshot
from interpreted import captured
from spiking import lif

from fx_lsp.codegen.ir.node_facts import facts_of


def table(graph):
    """A line for each operation of the body of a loop: its nodes, by iteration."""
    rows: dict[tuple[int, int], dict[int, str]] = {}
    for node in graph.nodes:
        if (at := facts_of(node).iteration) is not None:
            rows.setdefault((at.loop, at.position), {})[at.number] = node.name
    return [f"{loop}: " + " ".join(f"{k}={nodes[k]}" for k in sorted(nodes)) for (loop, _), nodes in rows.items()]


def joint(function, *shapes):
    """The joint graph of a function."""
    return captured(function, [torch.randn(shape, requires_grad=True) for shape in shapes]).graphs.joint


def test_forward_and_backward():
    assert table(joint(lif, (4, 3, 40))) == snapshot(
        [
            "0: 0=mul 1=mul_1 2=mul_2 3=mul_3",
            "0: 0=select_1 1=select_2 2=select_3 3=select_4",
            "0: 0=add 1=add_1 2=add_2 3=add_3",
            "0: 0=sub 1=sub_2 2=sub_4 3=sub_6",
            "0: 0=gt 1=gt_1 2=gt_2 3=gt_3",
            "0: 0=convert_element_type 1=convert_element_type_1 2=convert_element_type_2 3=convert_element_type_3",
            "0: 0=sub_1 1=sub_3 2=sub_5",
            "2: 0=select_5 1=select_6 2=select_7 3=select_8",
            "0: 0=abs_4 1=abs_3 2=abs_2 3=abs_1",
            "0: 0=mul_10 1=mul_8 2=mul_6 3=mul_4",
            "0: 0=add_14 1=add_10 2=add_6 3=add_4",
            "0: 0=pow_4 1=pow_3 2=pow_2 3=pow_1",
            "1: 0=div 1=div_1 2=div_2 3=div_3",
            "1: 0=mul_5 1=mul_7 2=mul_9",
            "1: 1=neg 2=neg_1 3=neg_2",
            "1: 1=add_5 2=add_9 3=add_13",
            "1: 1=add_7 2=add_11 3=add_15",
            "3: 0=unsqueeze_default 1=unsqueeze_default_1 2=unsqueeze_default_2 3=unsqueeze_default_3",
        ]
    )


def test_what_backward_computes_again():
    graphs = captured(lif, [torch.randn(4, 3, 40, requires_grad=True)]).graphs
    assert [row for row in table(graphs.backward) if row.startswith("0: ")] == snapshot(
        [
            "0: 0=mul 1=mul_1 2=mul_2 3=mul_3",
            "0: 0=select_1 1=select_2 2=select_3 3=select_4",
            "0: 0=add 1=add_1 2=add_2 3=add_3",
            "0: 0=sub 1=sub_2 2=sub_4 3=sub_6",
            "0: 0=gt 1=gt_1 2=gt_2",
            "0: 0=convert_element_type 1=convert_element_type_1 2=convert_element_type_2",
            "0: 0=sub_1 1=sub_3 2=sub_5",
            "0: 0=abs_4 1=abs_3 2=abs_2 3=abs_1",
            "0: 0=mul_10 1=mul_8 2=mul_6 3=mul_4",
            "0: 0=add_14 1=add_10 2=add_6 3=add_4",
            "0: 0=pow_4 1=pow_3 2=pow_2 3=pow_1",
        ]
    )


def test_a_first_iteration_that_is_another():
    def from_a_number(x):
        v = 0.0
        for t in range(len(x)):
            v = v + (torch.tanh(x[t]) - v) / 2.0
        return v

    assert table(joint(from_a_number, (6, 40)))[:6] == snapshot(
        [
            "0: 0=add 1=add_1 2=add_2 3=add_3 4=add_4 5=add_5",
            "0: 1=select_1 2=select_2 3=select_3 4=select_4 5=select_5",
            "0: 1=tanh_1 2=tanh_2 3=tanh_3 4=tanh_4 5=tanh_5",
            "0: 1=alias_1 2=alias_2 3=alias_3 4=alias_4 5=alias_5",
            "0: 1=sub_1 2=sub_2 3=sub_3 4=sub_4 5=sub_5",
            "0: 1=div_1 2=div_2 3=div_3 4=div_4 5=div_5",
        ]
    )


def test_an_iteration_begins_where_little_is_carried():
    def begun_within(x, w):
        h = torch.sigmoid(x[0])
        for t in range(1, len(x)):
            a = h * w
            h = torch.sigmoid(a * a + x[t])
        return h

    assert table(joint(begun_within, (6, 40), (40,)))[:6] == snapshot(
        [
            "0: 0=sigmoid 1=sigmoid_1 2=sigmoid_2 3=sigmoid_3 4=sigmoid_4 5=sigmoid_5",
            "0: 0=alias 1=alias_1 2=alias_2 3=alias_3 4=alias_4 5=alias_5",
            "0: 0=mul 1=mul_2 2=mul_4 3=mul_6 4=mul_8",
            "0: 0=mul_1 1=mul_3 2=mul_5 3=mul_7 4=mul_9",
            "0: 0=select_1 1=select_2 2=select_3 3=select_4 4=select_5",
            "0: 0=add 1=add_1 2=add_2 3=add_3 4=add_4",
        ]
    )


def test_two_loops():
    def two_layers(x):
        for weight in (0.5, 0.25):
            v, out = torch.zeros_like(x[0]), []
            for t in range(len(x)):
                v = torch.tanh(weight * v + x[t])
                out.append(v)
            x = torch.stack(out)
        return x

    assert table(joint(two_layers, (4, 40))) == snapshot(
        [
            "0: 0=mul 1=mul_1 2=mul_2 3=mul_3",
            "0: 0=select_1 1=select_2 2=select_3 3=select_4",
            "0: 0=add 1=add_1 2=add_2 3=add_3",
            "0: 0=tanh 1=tanh_1 2=tanh_2 3=tanh_3",
            "0: 0=alias 1=alias_1 2=alias_2 3=alias_3",
            "1: 0=mul_4 1=mul_5 2=mul_6 3=mul_7",
            "1: 0=select_6 1=select_7 2=select_8 3=select_9",
            "1: 0=add_4 1=add_5 2=add_6 3=add_7",
            "1: 0=tanh_4 1=tanh_5 2=tanh_6 3=tanh_7",
            "1: 0=alias_4 1=alias_5 2=alias_6 3=alias_7",
            "4: 0=select_10 1=select_11 2=select_12 3=select_13",
            "1: 0=alias_11 1=alias_10 2=alias_9 3=alias_8",
            "1: 0=mul_17 1=mul_14 2=mul_11 3=mul_8",
            "1: 0=sub_3 1=sub_2 2=sub_1 3=sub",
            "3: 0=mul_9 1=mul_12 2=mul_15 3=mul_18",
            "3: 0=mul_10 1=mul_13 2=mul_16",
            "3: 0=add_8 1=add_10 2=add_12",
            "0: 0=alias_15 1=alias_14 2=alias_13 3=alias_12",
            "0: 0=mul_28 1=mul_25 2=mul_22 3=mul_19",
            "0: 0=sub_7 1=sub_6 2=sub_5 3=sub_4",
            "2: 0=mul_20 1=mul_23 2=mul_26 3=mul_29",
            "2: 0=mul_21 1=mul_24 2=mul_27",
            "2: 0=add_14 1=add_16 2=add_18",
            "5: 0=unsqueeze_default 1=unsqueeze_default_1 2=unsqueeze_default_2 3=unsqueeze_default_3",
        ]
    )


def test_numbers_that_change_make_no_loop():
    def scheduled(x):
        for k in range(1, 7):
            x = torch.sin(x) / k
        return x

    assert table(joint(scheduled, (40,))) == snapshot([])
