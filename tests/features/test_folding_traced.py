"""What people see of loops that PyTorch unrolled."""

# ruff: noqa: E501 (documents are as wide as they are)

import pytest
from inline_snapshot import snapshot
from unfolding import check

from fx_lsp.features.documents import render_stage

PRELUDE = "import torch\n"

RNN = """
# fx: x=f32[4, 40, 8], w=f32[8, 8], u=f32[8, 8]
def f(x, w, u):
    h = x.new_zeros(4, 8)
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ w + h @ u)
    return h
"""

LIF = """
# fx: x=f32[32, 8, 16]
def f(x, beta: float = 0.9):
    v = torch.zeros_like(x[0])
    spikes = []
    for step in range(x.shape[0]):
        v = beta * v + x[step]
        s = (v > 1.0).float()
        v = v * (1 - s)
        spikes.append(s)
    return torch.stack(spikes)
"""

LAYERS = """
# fx: x=f32[4, 12, 16], ws=[f32[16, 16], f32[16, 16], f32[16, 16], f32[16, 16], f32[16, 16], f32[16, 16]]
def f(x, ws):
    for w in ws:
        h = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] @ w + h)
            out.append(h)
        x = torch.stack(out, dim=1)
    return x
"""

LAST_STEP = """
# fx: x=f32[4, 16, 8], w=f32[8, 8]
def f(x, w):
    h = torch.zeros_like(x[:, 0])
    for t in range(16):
        h = x[:, t] @ w + h
        if t < 15:
            h = torch.tanh(h)
    return h
"""

ALMOST = """
# fx: x=f32[4, 24, 8], w=f32[8, 8]
def f(x, w):
    h = torch.zeros_like(x[:, 0])
    for t in range(24):
        h = x[:, (t * t) % 24] @ w + h
        if t * t % 7 == 1:
            h = torch.tanh(h)
    return h
"""


def show(traced, stage: str) -> str:
    """The document of a stage, without its header."""
    lines = traced.source.splitlines()
    text = render_stage(traced.trace, traced.stage(stage), lambda span: lines[span.line - 1]).text
    return text[text.index("\ndef ") + 1 :]


def test_recurrent_loop(trace):
    traced = trace(PRELUDE + RNN)
    assert show(traced, "forward") == snapshot("""\
def forward(x: f32[4, 40, 8], w: f32[8, 8], u: f32[8, 8]):
    # user.py:5  h = x.new_zeros(4, 8)
    h: f32[4, 8] = aten.new_zeros.default(x, [4, 8], pin_memory=False)

    # user.py:7  h = torch.tanh(x[:, t] @ w + h @ u)
    select: f32[4, 8](320, 1) = aten.select.int(x, 1, 0)
    mm: f32[4, 8] = aten.mm.default(select, w)
    mm_1: f32[4, 8] = aten.mm.default(h, u)
    add: f32[4, 8] = aten.add.Tensor(mm, mm_1)
    h_1: f32[4, 8] = aten.tanh.default(add)  # saved for backward, 128 B

    # … the 5 ops from select on 38 more times (190 ops), then once more:
    #   passed on: h_1, h_2, … h_38
    #   stepping: 1, 2, … 38 in select.int

    select_39: f32[4, 8](320, 1) = aten.select.int(x, 1, 39)
    mm_78: f32[4, 8] = aten.mm.default(select_39, w)
    mm_79: f32[4, 8] = aten.mm.default(h_39, u)
    add_39: f32[4, 8] = aten.add.Tensor(mm_78, mm_79)
    h_40: f32[4, 8] = aten.tanh.default(add_39)

    detach_39: f32[4, 8] = aten.detach.default(h_40)
    detach_40: f32[4, 8] = aten.detach.default(detach_39)  # saved for backward, 128 B
    t_1: f32[8, 8](1, 8) = aten.t.default(u)  # saved for backward, 256 B
    t_2: f32[8, 4](1, 320) = aten.t.default(select_39)  # saved for backward, 128 B
    t_3: f32[8, 8](1, 8) = aten.t.default(w)  # saved for backward, 256 B
    t_6: f32[8, 4](1, 320) = aten.t.default(select_38)  # saved for backward, 128 B

    # … the same op 36 more times, then once more:
    #   stepping: select_37, select_36, … select_2

    t_154: f32[8, 4](1, 320) = aten.t.default(select_1)  # saved for backward, 128 B
    t_156: f32[8, 4](1, 8) = aten.t.default(h)  # saved for backward, 128 B
    t_157: f32[8, 4](1, 320) = aten.t.default(select)  # saved for backward, 128 B
    return (h_40, h_1, h_2, ..., h_39, detach_40, t_1, t_2, t_3, t_6, t_10, ..., t_154, t_156, t_157)  # 71 values in place of ...
""")
    assert show(traced, "backward") == snapshot("""\
def backward(
    h_1: f32[4, 8],
    # … the same input 37 more times, then once more:
    #   stepping: h_2, h_3, … h_38
    h_39: f32[4, 8],
    detach_40: f32[4, 8],
    t_1: f32[8, 8](1, 8),
    t_2: f32[8, 4](1, 320),
    t_3: f32[8, 8](1, 8),
    t_6: f32[8, 4](1, 320),
    # … the same input 36 more times, then once more:
    #   stepping: t_10, t_14, … t_150
    t_154: f32[8, 4](1, 320),
    t_156: f32[8, 4](1, 8),
    t_157: f32[8, 4](1, 320),
    grad_h: f32[4, 8],
):
    # user.py:7  h = torch.tanh(x[:, t] @ w + h @ u)
    tanh_backward: f32[4, 8] = aten.tanh_backward.default(grad_h, detach_40)
    t: f32[8, 4](1, 8) = aten.t.default(h_39)
    mm_80: f32[8, 8] = aten.mm.default(t, tanh_backward)
    mm_81: f32[4, 8] = aten.mm.default(tanh_backward, t_1)
    mm_82: f32[8, 8] = aten.mm.default(t_2, tanh_backward)
    mm_83: f32[4, 8] = aten.mm.default(tanh_backward, t_3)
    select_backward: f32[4, 40, 8] = aten.select_backward.default(mm_83, [4, 40, 8], 1, 39)

    detach_38: f32[4, 8] = aten.detach.default(h_39)
    detach_41: f32[4, 8] = aten.detach.default(detach_38)
    tanh_backward_1: f32[4, 8] = aten.tanh_backward.default(mm_81, detach_41)
    t_4: f32[8, 4](1, 8) = aten.t.default(h_38)
    mm_84: f32[8, 8] = aten.mm.default(t_4, tanh_backward_1)
    mm_85: f32[4, 8] = aten.mm.default(tanh_backward_1, t_1)
    add_40: f32[8, 8] = aten.add.Tensor(mm_80, mm_84)
    mm_86: f32[8, 8] = aten.mm.default(t_6, tanh_backward_1)
    mm_87: f32[4, 8] = aten.mm.default(tanh_backward_1, t_3)
    add_41: f32[8, 8] = aten.add.Tensor(mm_82, mm_86)
    select_backward_1: f32[4, 40, 8] = aten.select_backward.default(mm_87, [4, 40, 8], 1, 38)
    add_42: f32[4, 40, 8] = aten.add.Tensor(select_backward, select_backward_1)

    # … the 12 ops from detach_38 on 36 more times (432 ops), then once more:
    #   passed on: mm_85, mm_89, … mm_225 · add_40, add_43, … add_145 · add_41, add_44, … add_146 · add_42, add_45, … add_147
    #   stepping: h_38, h_37, … h_3 · h_37, h_36, … h_2 · t_10, t_14, … t_150 · 37, 36, … 2 in select_backward.default

    detach_1: f32[4, 8] = aten.detach.default(h_2)
    detach_78: f32[4, 8] = aten.detach.default(detach_1)
    tanh_backward_38: f32[4, 8] = aten.tanh_backward.default(mm_229, detach_78)
    t_152: f32[8, 4](1, 8) = aten.t.default(h_1)
    mm_232: f32[8, 8] = aten.mm.default(t_152, tanh_backward_38)
    mm_233: f32[4, 8] = aten.mm.default(tanh_backward_38, t_1)
    add_151: f32[8, 8] = aten.add.Tensor(add_148, mm_232)
    mm_234: f32[8, 8] = aten.mm.default(t_154, tanh_backward_38)
    mm_235: f32[4, 8] = aten.mm.default(tanh_backward_38, t_3)
    add_152: f32[8, 8] = aten.add.Tensor(add_149, mm_234)
    select_backward_38: f32[4, 40, 8] = aten.select_backward.default(mm_235, [4, 40, 8], 1, 1)
    add_153: f32[4, 40, 8] = aten.add.Tensor(add_150, select_backward_38)

    detach: f32[4, 8] = aten.detach.default(h_1)
    detach_79: f32[4, 8] = aten.detach.default(detach)
    tanh_backward_39: f32[4, 8] = aten.tanh_backward.default(mm_233, detach_79)
    mm_236: f32[8, 8] = aten.mm.default(t_156, tanh_backward_39)
    grad_u: f32[8, 8] = aten.add.Tensor(add_151, mm_236)
    mm_237: f32[8, 8] = aten.mm.default(t_157, tanh_backward_39)
    mm_238: f32[4, 8] = aten.mm.default(tanh_backward_39, t_3)
    grad_w: f32[8, 8] = aten.add.Tensor(add_152, mm_237)
    select_backward_39: f32[4, 40, 8] = aten.select_backward.default(mm_238, [4, 40, 8], 1, 0)
    grad_x: f32[4, 40, 8] = aten.add.Tensor(add_153, select_backward_39)
    return (grad_x, grad_w, grad_u)
""")


def test_neuron_loop(trace):
    assert show(trace(PRELUDE + LIF), "inference") == snapshot("""\
def inference(x: f32[32, 8, 16]):
    # user.py:5  v = torch.zeros_like(x[0])
    select: f32[8, 16] = aten.select.int(x, 0, 0)
    v: f32[8, 16] = aten.zeros_like.default(select, pin_memory=False)

    # user.py:8  v = beta * v + x[step]
    mul: f32[8, 16] = aten.mul.Tensor(v, 0.9)
    select_1: f32[8, 16] = aten.select.int(x, 0, 0)
    v_1: f32[8, 16] = aten.add.Tensor(mul, select_1)

    # user.py:9  s = (v > 1.0).float()
    gt: b8[8, 16] = aten.gt.Scalar(v_1, 1.0)
    s: f32[8, 16] = aten._to_copy.default(gt, dtype=torch.float32)

    # user.py:10  v = v * (1 - s)
    rsub: f32[8, 16] = aten.rsub.Scalar(s, 1)
    v_2: f32[8, 16] = aten.mul.Tensor(v_1, rsub)

    # … the 7 ops from mul on 29 more times (203 ops), then once more:
    #   passed on: v_2, v_4, … v_58
    #   stepping: 1, 2, … 29 in select.int

    # user.py:8  v = beta * v + x[step]
    mul_60: f32[8, 16] = aten.mul.Tensor(v_60, 0.9)
    select_31: f32[8, 16] = aten.select.int(x, 0, 30)
    v_61: f32[8, 16] = aten.add.Tensor(mul_60, select_31)

    # user.py:9  s = (v > 1.0).float()
    gt_30: b8[8, 16] = aten.gt.Scalar(v_61, 1.0)
    s_30: f32[8, 16] = aten._to_copy.default(gt_30, dtype=torch.float32)

    # user.py:10  v = v * (1 - s)
    rsub_30: f32[8, 16] = aten.rsub.Scalar(s_30, 1)
    v_62: f32[8, 16] = aten.mul.Tensor(v_61, rsub_30)

    # user.py:8  v = beta * v + x[step]
    mul_62: f32[8, 16] = aten.mul.Tensor(v_62, 0.9)
    select_32: f32[8, 16] = aten.select.int(x, 0, 31)
    v_63: f32[8, 16] = aten.add.Tensor(mul_62, select_32)

    # user.py:9  s = (v > 1.0).float()
    gt_31: b8[8, 16] = aten.gt.Scalar(v_63, 1.0)
    s_31: f32[8, 16] = aten._to_copy.default(gt_31, dtype=torch.float32)

    # user.py:12  return torch.stack(spikes)
    stack: f32[32, 8, 16] = aten.stack.default([s, s_1, ..., s_31])  # 29 values in place of ...
    return (stack,)
""")


def test_loop_in_layers(trace):
    assert show(trace(PRELUDE + LAYERS), "forward") == snapshot("""\
def forward(
    x: f32[4, 12, 16],
    ws_0: f32[16, 16],
    ws_1: f32[16, 16],
    ws_2: f32[16, 16],
    ws_3: f32[16, 16],
    ws_4: f32[16, 16],
    ws_5: f32[16, 16],
):
    # user.py:6  h = torch.zeros_like(x[:, 0])
    select: f32[4, 16](192, 1) = aten.select.int(x, 1, 0)
    h: f32[4, 16] = aten.zeros_like.default(select, pin_memory=False)

    # user.py:9  h = torch.tanh(x[:, t] @ w + h)
    mm: f32[4, 16] = aten.mm.default(select, ws_0)
    add: f32[4, 16] = aten.add.Tensor(mm, h)
    h_1: f32[4, 16] = aten.tanh.default(add)

    detach: f32[4, 16] = aten.detach.default(h_1)
    select_2: f32[4, 16](192, 1) = aten.select.int(x, 1, 1)
    mm_1: f32[4, 16] = aten.mm.default(select_2, ws_0)
    add_1: f32[4, 16] = aten.add.Tensor(mm_1, h_1)
    h_2: f32[4, 16] = aten.tanh.default(add_1)

    # … the 5 ops from detach on 9 more times (45 ops), then once more:
    #   passed on: h_2, h_3, … h_10
    #   stepping: 2, 3, … 10 in select.int

    detach_10: f32[4, 16] = aten.detach.default(h_11)
    select_12: f32[4, 16](192, 1) = aten.select.int(x, 1, 11)
    mm_11: f32[4, 16] = aten.mm.default(select_12, ws_0)
    add_11: f32[4, 16] = aten.add.Tensor(mm_11, h_11)
    h_12: f32[4, 16] = aten.tanh.default(add_11)

    detach_11: f32[4, 16] = aten.detach.default(h_12)

    # user.py:11  x = torch.stack(out, dim=1)
    x_1: f32[4, 12, 16] = aten.stack.default([h_1, h_2, h_3, h_4, h_5, h_6, h_7, h_8, h_9, h_10, h_11, h_12], 1)

    # … the 62 ops from select on 4 more times (248 ops), then once more:
    #   passed on: x_1, x_2, … x_4
    #   stepping: ws_1, ws_2, … ws_4

    # user.py:6  h = torch.zeros_like(x[:, 0])
    select_65: f32[4, 16](192, 1) = aten.select.int(x_5, 1, 0)
    h_65: f32[4, 16] = aten.zeros_like.default(select_65, pin_memory=False)

    # user.py:9  h = torch.tanh(x[:, t] @ w + h)
    mm_60: f32[4, 16] = aten.mm.default(select_65, ws_5)
    add_60: f32[4, 16] = aten.add.Tensor(mm_60, h_65)
    h_66: f32[4, 16] = aten.tanh.default(add_60)

    detach_60: f32[4, 16] = aten.detach.default(h_66)
    select_67: f32[4, 16](192, 1) = aten.select.int(x_5, 1, 1)
    mm_61: f32[4, 16] = aten.mm.default(select_67, ws_5)
    add_61: f32[4, 16] = aten.add.Tensor(mm_61, h_66)
    h_67: f32[4, 16] = aten.tanh.default(add_61)

    # … the 5 ops from detach_60 on 9 more times (45 ops), then once more:
    #   passed on: h_67, h_68, … h_75
    #   stepping: 2, 3, … 10 in select.int

    detach_70: f32[4, 16] = aten.detach.default(h_76)
    select_77: f32[4, 16](192, 1) = aten.select.int(x_5, 1, 11)
    mm_71: f32[4, 16] = aten.mm.default(select_77, ws_5)
    add_71: f32[4, 16] = aten.add.Tensor(mm_71, h_76)
    h_77: f32[4, 16] = aten.tanh.default(add_71)

    detach_71: f32[4, 16] = aten.detach.default(h_77)

    # user.py:11  x = torch.stack(out, dim=1)
    x_6: f32[4, 12, 16] = aten.stack.default([h_66, h_67, h_68, h_69, h_70, h_71, h_72, h_73, h_74, h_75, h_76, h_77], 1)

    # user.py:9  h = torch.tanh(x[:, t] @ w + h)
    detach_72: f32[4, 16] = aten.detach.default(detach_71)  # saved for backward, 256 B
    t: f32[16, 4](1, 192) = aten.t.default(select_77)  # saved for backward, 256 B
    t_1: f32[16, 16](1, 16) = aten.t.default(ws_5)  # saved for backward, 1 KiB
    detach_73: f32[4, 16] = aten.detach.default(detach_70)  # saved for backward, 256 B
    t_2: f32[16, 4](1, 192) = aten.t.default(select_76)  # saved for backward, 256 B
    detach_74: f32[4, 16] = aten.detach.default(detach_69)  # saved for backward, 256 B
    t_4: f32[16, 4](1, 192) = aten.t.default(select_75)  # saved for backward, 256 B
    detach_75: f32[4, 16] = aten.detach.default(detach_68)  # saved for backward, 256 B
    t_6: f32[16, 4](1, 192) = aten.t.default(select_74)  # saved for backward, 256 B
    detach_76: f32[4, 16] = aten.detach.default(detach_67)  # saved for backward, 256 B
    t_8: f32[16, 4](1, 192) = aten.t.default(select_73)  # saved for backward, 256 B
    detach_77: f32[4, 16] = aten.detach.default(detach_66)  # saved for backward, 256 B
    t_10: f32[16, 4](1, 192) = aten.t.default(select_72)  # saved for backward, 256 B
    detach_78: f32[4, 16] = aten.detach.default(detach_65)  # saved for backward, 256 B
    t_12: f32[16, 4](1, 192) = aten.t.default(select_71)  # saved for backward, 256 B
    detach_79: f32[4, 16] = aten.detach.default(detach_64)  # saved for backward, 256 B
    t_14: f32[16, 4](1, 192) = aten.t.default(select_70)  # saved for backward, 256 B
    detach_80: f32[4, 16] = aten.detach.default(detach_63)  # saved for backward, 256 B
    t_16: f32[16, 4](1, 192) = aten.t.default(select_69)  # saved for backward, 256 B
    detach_81: f32[4, 16] = aten.detach.default(detach_62)  # saved for backward, 256 B
    t_18: f32[16, 4](1, 192) = aten.t.default(select_68)  # saved for backward, 256 B
    detach_82: f32[4, 16] = aten.detach.default(detach_61)  # saved for backward, 256 B
    t_20: f32[16, 4](1, 192) = aten.t.default(select_67)  # saved for backward, 256 B
    detach_83: f32[4, 16] = aten.detach.default(detach_60)  # saved for backward, 256 B
    t_22: f32[16, 4](1, 192) = aten.t.default(select_65)  # saved for backward, 256 B

    # … the 25 ops from detach_72 on 4 more times (100 ops), then once more:
    #   stepping: detach_59, detach_47, … detach_23 · select_64, select_51, … select_25 · ws_4, ws_3, … ws_1 · detach_58, detach_46, … detach_22 · and 21 more

    detach_132: f32[4, 16] = aten.detach.default(detach_11)  # saved for backward, 256 B
    t_120: f32[16, 4](1, 192) = aten.t.default(select_12)  # saved for backward, 256 B
    t_121: f32[16, 16](1, 16) = aten.t.default(ws_0)  # saved for backward, 1 KiB
    detach_133: f32[4, 16] = aten.detach.default(detach_10)  # saved for backward, 256 B
    t_122: f32[16, 4](1, 192) = aten.t.default(select_11)  # saved for backward, 256 B
    detach_134: f32[4, 16] = aten.detach.default(detach_9)  # saved for backward, 256 B
    t_124: f32[16, 4](1, 192) = aten.t.default(select_10)  # saved for backward, 256 B
    detach_135: f32[4, 16] = aten.detach.default(detach_8)  # saved for backward, 256 B
    t_126: f32[16, 4](1, 192) = aten.t.default(select_9)  # saved for backward, 256 B
    detach_136: f32[4, 16] = aten.detach.default(detach_7)  # saved for backward, 256 B
    t_128: f32[16, 4](1, 192) = aten.t.default(select_8)  # saved for backward, 256 B
    detach_137: f32[4, 16] = aten.detach.default(detach_6)  # saved for backward, 256 B
    t_130: f32[16, 4](1, 192) = aten.t.default(select_7)  # saved for backward, 256 B
    detach_138: f32[4, 16] = aten.detach.default(detach_5)  # saved for backward, 256 B
    t_132: f32[16, 4](1, 192) = aten.t.default(select_6)  # saved for backward, 256 B
    detach_139: f32[4, 16] = aten.detach.default(detach_4)  # saved for backward, 256 B
    t_134: f32[16, 4](1, 192) = aten.t.default(select_5)  # saved for backward, 256 B
    detach_140: f32[4, 16] = aten.detach.default(detach_3)  # saved for backward, 256 B
    t_136: f32[16, 4](1, 192) = aten.t.default(select_4)  # saved for backward, 256 B
    detach_141: f32[4, 16] = aten.detach.default(detach_2)  # saved for backward, 256 B
    t_138: f32[16, 4](1, 192) = aten.t.default(select_3)  # saved for backward, 256 B
    detach_142: f32[4, 16] = aten.detach.default(detach_1)  # saved for backward, 256 B
    t_140: f32[16, 4](1, 192) = aten.t.default(select_2)  # saved for backward, 256 B
    detach_143: f32[4, 16] = aten.detach.default(detach)  # saved for backward, 256 B
    t_142: f32[16, 4](1, 192) = aten.t.default(select)  # saved for backward, 256 B

    return (x_6, detach_72, t, t_1, detach_73, t_2, detach_74, t_4, detach_75, t_6, detach_76, t_8, detach_77, t_10, detach_78, t_12, detach_79, t_14, detach_80, t_16, detach_81, t_18, detach_82, t_20, detach_83, t_22, detach_84, t_24, t_25, detach_85, t_26, detach_86, t_28, detach_87, t_30, detach_88, t_32, detach_89, t_34, detach_90, t_36, detach_91, t_38, detach_92, t_40, detach_93, t_42, detach_94, t_44, detach_95, t_46, ..., ..., detach_83, t_22, detach_84, t_24, t_25, detach_85, t_26, detach_86, t_28, detach_87, t_30, detach_88, t_32, detach_89, t_34, detach_90, t_36, detach_91, t_38, detach_92, t_40, detach_93, t_42, detach_94, t_44, detach_95, t_46, detach_96, t_48, t_49, detach_97, t_50, detach_98, t_52, detach_99, t_54, detach_100, t_56, detach_101, t_58, detach_102, t_60, detach_103, t_62, detach_104, t_64, detach_105, t_66, detach_106, t_68, detach_107, t_70, detach_108, t_72, t_73, detach_109, t_74, detach_110, t_76, detach_111, t_78, detach_112, t_80, detach_113, t_82, detach_114, t_84, detach_115, t_86, detach_116, t_88, detach_117, t_90, detach_118, t_92, detach_119, t_94, detach_120, t_96, t_97, detach_121, t_98, detach_122, t_100, detach_123, t_102, detach_124, t_104, detach_125, t_106, detach_126, t_108, detach_127, t_110, detach_128, t_112, detach_129, t_114, detach_130, t_116, detach_131, t_118, detach_132, t_120, t_121, detach_133, t_122, detach_134, t_124, ..., detach_143, t_142)  # 107 values in place of ...
""")


def test_another_last_step(trace):
    assert show(trace(PRELUDE + LAST_STEP), "forward") == snapshot("""\
def forward(x: f32[4, 16, 8], w: f32[8, 8]):
    # user.py:5  h = torch.zeros_like(x[:, 0])
    select: f32[4, 8](128, 1) = aten.select.int(x, 1, 0)
    h: f32[4, 8] = aten.zeros_like.default(select, pin_memory=False)

    # user.py:7  h = x[:, t] @ w + h
    mm: f32[4, 8] = aten.mm.default(select, w)
    h_1: f32[4, 8] = aten.add.Tensor(mm, h)

    # user.py:9  h = torch.tanh(h)
    h_2: f32[4, 8] = aten.tanh.default(h_1)
    detach: f32[4, 8] = aten.detach.default(h_2)

    # user.py:7  h = x[:, t] @ w + h
    select_2: f32[4, 8](128, 1) = aten.select.int(x, 1, 1)
    mm_1: f32[4, 8] = aten.mm.default(select_2, w)
    h_3: f32[4, 8] = aten.add.Tensor(mm_1, h_2)

    # user.py:9  h = torch.tanh(h)
    h_4: f32[4, 8] = aten.tanh.default(h_3)
    detach_1: f32[4, 8] = aten.detach.default(h_4)

    # … the 5 ops from select_2 on 12 more times (60 ops), then once more:
    #   passed on: h_4, h_6, … h_26
    #   stepping: 2, 3, … 13 in select.int

    # user.py:7  h = x[:, t] @ w + h
    select_15: f32[4, 8](128, 1) = aten.select.int(x, 1, 14)
    mm_14: f32[4, 8] = aten.mm.default(select_15, w)
    h_29: f32[4, 8] = aten.add.Tensor(mm_14, h_28)

    # user.py:9  h = torch.tanh(h)
    h_30: f32[4, 8] = aten.tanh.default(h_29)
    detach_14: f32[4, 8] = aten.detach.default(h_30)

    # user.py:7  h = x[:, t] @ w + h
    select_16: f32[4, 8](128, 1) = aten.select.int(x, 1, 15)
    mm_15: f32[4, 8] = aten.mm.default(select_16, w)
    h_31: f32[4, 8] = aten.add.Tensor(mm_15, h_30)
    t: f32[8, 4](1, 128) = aten.t.default(select_16)  # saved for backward, 128 B
    t_1: f32[8, 8](1, 8) = aten.t.default(w)  # saved for backward, 256 B

    # user.py:9  h = torch.tanh(h)
    detach_15: f32[4, 8] = aten.detach.default(detach_14)  # saved for backward, 128 B

    # user.py:7  h = x[:, t] @ w + h
    t_2: f32[8, 4](1, 128) = aten.t.default(select_15)  # saved for backward, 128 B

    # user.py:9  h = torch.tanh(h)
    detach_16: f32[4, 8] = aten.detach.default(detach_13)  # saved for backward, 128 B

    # … the 2 ops from t_2 on 12 more times (24 ops), then once more:
    #   stepping: select_14, select_13, … select_3 · detach_12, detach_11, … detach_1

    # user.py:7  h = x[:, t] @ w + h
    t_28: f32[8, 4](1, 128) = aten.t.default(select_2)  # saved for backward, 128 B

    # user.py:9  h = torch.tanh(h)
    detach_29: f32[4, 8] = aten.detach.default(detach)  # saved for backward, 128 B

    # user.py:7  h = x[:, t] @ w + h
    t_30: f32[8, 4](1, 128) = aten.t.default(select)  # saved for backward, 128 B
    return (h_31, t, t_1, detach_15, t_2, detach_16, t_4, ..., detach_29, t_30)  # 24 values in place of ...
""")


@pytest.mark.parametrize(
    ("source", "folded"), [(RNN, True), (LIF, True), (LAYERS, True), (LAST_STEP, True), (ALMOST, False)]
)
def test_unfolding_gives_every_node_back(trace, source: str, folded: bool):
    traced = trace(PRELUDE + source)
    for stage in traced.trace.stages:
        nodes = [n for n in traced.stage(stage.name).nodes if n.op != "placeholder"]
        assert bool(check(nodes)) == folded
