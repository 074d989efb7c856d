# shows: documents
# Rounds of loops that PyTorch unrolled are folded.
import torch


# === a recurrent loop, forward and backward
# fx: x=f32[4, 40, 8], w=f32[8, 8]
def f(x, w):
#   ^ document
#  def forward(x: f32[4, 40, 8], w: f32[8, 8]):
#      # user.py:8  h = x.new_zeros(4, 8)
#      h: f32[4, 8] = aten.new_zeros.default(x, [4, 8], pin_memory=False)
#      # user.py:10  h = torch.tanh(x[:, t] + h @ w)
#      select: f32[4, 8](320, 1) = aten.select.int(x, 1, 0)
#      mm: f32[4, 8] = aten.mm.default(h, w)
#      add: f32[4, 8] = aten.add.Tensor(select, mm)
#      h_1: f32[4, 8] = aten.tanh.default(add)  # saved for backward, 128 B
#      # … the 4 ops from select on 38 more times (152 ops), then once more:
#      #   passed on: h_1, h_2, … h_38
#      #   stepping: 1, 2, … 38 in select.int
#      select_39: f32[4, 8](320, 1) = aten.select.int(x, 1, 39)
#      mm_39: f32[4, 8] = aten.mm.default(h_39, w)
#      add_39: f32[4, 8] = aten.add.Tensor(select_39, mm_39)
#      h_40: f32[4, 8] = aten.tanh.default(add_39)
#      detach_39: f32[4, 8] = aten.detach.default(h_40)
#      detach_40: f32[4, 8] = aten.detach.default(detach_39)  # saved for backward, 128 B
#      t_1: f32[8, 8](1, 8) = aten.t.default(w)  # saved for backward, 256 B
#      t_78: f32[8, 4](1, 8) = aten.t.default(h)  # saved for backward, 128 B
#      return (h_40, h_1, h_2, ..., h_39, detach_40, t_1, t_78)  # 36 values in place of ...
#   ^ document
#  def backward(
#      h_1: f32[4, 8],
#      # … the same input 37 more times, then once more:
#      #   stepping: h_2, h_3, … h_38
#      h_39: f32[4, 8],
#      detach_40: f32[4, 8],
#      t_1: f32[8, 8](1, 8),
#      t_78: f32[8, 4](1, 8),
#      grad_h: f32[4, 8],
#  ):
#      # user.py:10  h = torch.tanh(x[:, t] + h @ w)
#      tanh_backward: f32[4, 8] = aten.tanh_backward.default(grad_h, detach_40)
#      t: f32[8, 4](1, 8) = aten.t.default(h_39)
#      mm_40: f32[8, 8] = aten.mm.default(t, tanh_backward)
#      mm_41: f32[4, 8] = aten.mm.default(tanh_backward, t_1)
#      select_backward: f32[4, 40, 8] = aten.select_backward.default(tanh_backward, [4, 40, 8], 1, 39)
#      detach_38: f32[4, 8] = aten.detach.default(h_39)
#      detach_41: f32[4, 8] = aten.detach.default(detach_38)
#      tanh_backward_1: f32[4, 8] = aten.tanh_backward.default(mm_41, detach_41)
#      t_2: f32[8, 4](1, 8) = aten.t.default(h_38)
#      mm_42: f32[8, 8] = aten.mm.default(t_2, tanh_backward_1)
#      mm_43: f32[4, 8] = aten.mm.default(tanh_backward_1, t_1)
#      add_40: f32[8, 8] = aten.add.Tensor(mm_40, mm_42)
#      select_backward_1: f32[4, 40, 8] = aten.select_backward.default(tanh_backward_1, [4, 40, 8], 1, 38)
#      add_41: f32[4, 40, 8] = aten.add.Tensor(select_backward, select_backward_1)
#      # … the 9 ops from detach_38 on 36 more times (324 ops), then once more:
#      #   passed on: mm_43, mm_45, … mm_113 · add_40, add_42, … add_110 · add_41, add_43, … add_111
#      #   stepping: h_38, h_37, … h_3 · h_37, h_36, … h_2 · 37, 36, … 2 in select_backward.default
#      detach_1: f32[4, 8] = aten.detach.default(h_2)
#      detach_78: f32[4, 8] = aten.detach.default(detach_1)
#      tanh_backward_38: f32[4, 8] = aten.tanh_backward.default(mm_115, detach_78)
#      t_76: f32[8, 4](1, 8) = aten.t.default(h_1)
#      mm_116: f32[8, 8] = aten.mm.default(t_76, tanh_backward_38)
#      mm_117: f32[4, 8] = aten.mm.default(tanh_backward_38, t_1)
#      add_114: f32[8, 8] = aten.add.Tensor(add_112, mm_116)
#      select_backward_38: f32[4, 40, 8] = aten.select_backward.default(tanh_backward_38, [4, 40, 8], 1, 1)
#      add_115: f32[4, 40, 8] = aten.add.Tensor(add_113, select_backward_38)
#      detach: f32[4, 8] = aten.detach.default(h_1)
#      detach_79: f32[4, 8] = aten.detach.default(detach)
#      tanh_backward_39: f32[4, 8] = aten.tanh_backward.default(mm_117, detach_79)
#      mm_118: f32[8, 8] = aten.mm.default(t_78, tanh_backward_39)
#      grad_w: f32[8, 8] = aten.add.Tensor(add_114, mm_118)
#      select_backward_39: f32[4, 40, 8] = aten.select_backward.default(tanh_backward_39, [4, 40, 8], 1, 0)
#      grad_x: f32[4, 40, 8] = aten.add.Tensor(add_115, select_backward_39)
#      return (grad_x, grad_w)
    h = x.new_zeros(4, 8)
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] + h @ w)
    return h


# === a neuron whose values of all rounds are in a list
# fx: x=f32[32, 8, 16]
def f(x, beta: float = 0.9):
#   ^ document
#  def inference(x: f32[32, 8, 16]):
#      # user.py:8  v = torch.zeros_like(x[0])
#      select: f32[8, 16] = aten.select.int(x, 0, 0)
#      v: f32[8, 16] = aten.zeros_like.default(select, pin_memory=False)
#      # user.py:11  v = beta * v + x[step]
#      mul: f32[8, 16] = aten.mul.Tensor(v, 0.9)
#      select_1: f32[8, 16] = aten.select.int(x, 0, 0)
#      v_1: f32[8, 16] = aten.add.Tensor(mul, select_1)
#      # user.py:12  s = (v > 1.0).float()
#      gt: b8[8, 16] = aten.gt.Scalar(v_1, 1.0)
#      s: f32[8, 16] = aten._to_copy.default(gt, dtype=torch.float32)
#      # user.py:13  v = v * (1 - s)
#      rsub: f32[8, 16] = aten.rsub.Scalar(s, 1)
#      v_2: f32[8, 16] = aten.mul.Tensor(v_1, rsub)
#      # … the 7 ops from mul on 29 more times (203 ops), then once more:
#      #   passed on: v_2, v_4, … v_58
#      #   stepping: 1, 2, … 29 in select.int
#      # user.py:11  v = beta * v + x[step]
#      mul_60: f32[8, 16] = aten.mul.Tensor(v_60, 0.9)
#      select_31: f32[8, 16] = aten.select.int(x, 0, 30)
#      v_61: f32[8, 16] = aten.add.Tensor(mul_60, select_31)
#      # user.py:12  s = (v > 1.0).float()
#      gt_30: b8[8, 16] = aten.gt.Scalar(v_61, 1.0)
#      s_30: f32[8, 16] = aten._to_copy.default(gt_30, dtype=torch.float32)
#      # user.py:13  v = v * (1 - s)
#      rsub_30: f32[8, 16] = aten.rsub.Scalar(s_30, 1)
#      v_62: f32[8, 16] = aten.mul.Tensor(v_61, rsub_30)
#      # user.py:11  v = beta * v + x[step]
#      mul_62: f32[8, 16] = aten.mul.Tensor(v_62, 0.9)
#      select_32: f32[8, 16] = aten.select.int(x, 0, 31)
#      v_63: f32[8, 16] = aten.add.Tensor(mul_62, select_32)
#      # user.py:12  s = (v > 1.0).float()
#      gt_31: b8[8, 16] = aten.gt.Scalar(v_63, 1.0)
#      s_31: f32[8, 16] = aten._to_copy.default(gt_31, dtype=torch.float32)
#      # user.py:15  return torch.stack(spikes)
#      stack: f32[32, 8, 16] = aten.stack.default([s, s_1, ..., s_31])  # 29 values in place of ...
#      return (stack,)
    v = torch.zeros_like(x[0])
    spikes = []
    for step in range(x.shape[0]):
        v = beta * v + x[step]
        s = (v > 1.0).float()
        v = v * (1 - s)
        spikes.append(s)
    return torch.stack(spikes)


# === a loop within layers
# fx: x=f32[4, 8, 16], ws=[f32[16, 16], f32[16, 16], f32[16, 16], f32[16, 16], f32[16, 16], f32[16, 16]]
@torch.no_grad()
def f(x, ws):
#   ^ document
#  def inference(
#      x: f32[4, 8, 16],
#      ws_0: f32[16, 16],
#      ws_1: f32[16, 16],
#      ws_2: f32[16, 16],
#      ws_3: f32[16, 16],
#      ws_4: f32[16, 16],
#      ws_5: f32[16, 16],
#  ):
#      # user.py:10  h = torch.zeros_like(x[:, 0])
#      select: f32[4, 16](128, 1) = aten.select.int(x, 1, 0)
#      h: f32[4, 16] = aten.zeros_like.default(select, pin_memory=False)
#      # user.py:13  h = torch.tanh(x[:, t] @ w + h)
#      select_1: f32[4, 16](128, 1) = aten.select.int(x, 1, 0)
#      mm: f32[4, 16] = aten.mm.default(select_1, ws_0)
#      add: f32[4, 16] = aten.add.Tensor(mm, h)
#      h_1: f32[4, 16] = aten.tanh.default(add)
#      # … the 4 ops from select_1 on 6 more times (24 ops), then once more:
#      #   passed on: h_1, h_2, … h_6
#      #   stepping: 1, 2, … 6 in select.int
#      select_8: f32[4, 16](128, 1) = aten.select.int(x, 1, 7)
#      mm_7: f32[4, 16] = aten.mm.default(select_8, ws_0)
#      add_7: f32[4, 16] = aten.add.Tensor(mm_7, h_7)
#      h_8: f32[4, 16] = aten.tanh.default(add_7)
#      # user.py:15  x = torch.stack(out, dim=1)
#      x_1: f32[4, 8, 16] = aten.stack.default([h_1, h_2, h_3, h_4, h_5, h_6, h_7, h_8], 1)
#      # … the 35 ops from select on 4 more times (140 ops), then once more:
#      #   passed on: x_1, x_2, … x_4
#      #   stepping: ws_1, ws_2, … ws_4
#      # user.py:10  h = torch.zeros_like(x[:, 0])
#      select_45: f32[4, 16](128, 1) = aten.select.int(x_5, 1, 0)
#      h_45: f32[4, 16] = aten.zeros_like.default(select_45, pin_memory=False)
#      # user.py:13  h = torch.tanh(x[:, t] @ w + h)
#      select_46: f32[4, 16](128, 1) = aten.select.int(x_5, 1, 0)
#      mm_40: f32[4, 16] = aten.mm.default(select_46, ws_5)
#      add_40: f32[4, 16] = aten.add.Tensor(mm_40, h_45)
#      h_46: f32[4, 16] = aten.tanh.default(add_40)
#      # … the 4 ops from select_46 on 6 more times (24 ops), then once more:
#      #   passed on: h_46, h_47, … h_51
#      #   stepping: 1, 2, … 6 in select.int
#      select_53: f32[4, 16](128, 1) = aten.select.int(x_5, 1, 7)
#      mm_47: f32[4, 16] = aten.mm.default(select_53, ws_5)
#      add_47: f32[4, 16] = aten.add.Tensor(mm_47, h_52)
#      h_53: f32[4, 16] = aten.tanh.default(add_47)
#      # user.py:15  x = torch.stack(out, dim=1)
#      x_6: f32[4, 8, 16] = aten.stack.default([h_46, h_47, h_48, h_49, h_50, h_51, h_52, h_53], 1)
#      return (x_6,)
    for w in ws:
        h = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] @ w + h)
            out.append(h)
        x = torch.stack(out, dim=1)
    return x


# === another last step
# fx: x=f32[4, 16, 8], w=f32[8, 8]
@torch.no_grad()
def f(x, w):
#   ^ document
#  def inference(x: f32[4, 16, 8], w: f32[8, 8]):
#      # user.py:9  h = torch.zeros_like(x[:, 0])
#      select: f32[4, 8](128, 1) = aten.select.int(x, 1, 0)
#      h: f32[4, 8] = aten.zeros_like.default(select, pin_memory=False)
#      # user.py:11  h = x[:, t] @ w + h
#      select_1: f32[4, 8](128, 1) = aten.select.int(x, 1, 0)
#      mm: f32[4, 8] = aten.mm.default(select_1, w)
#      h_1: f32[4, 8] = aten.add.Tensor(mm, h)
#      # user.py:13  h = torch.tanh(h)
#      h_2: f32[4, 8] = aten.tanh.default(h_1)
#      # … the 4 ops from select_1 on 13 more times (52 ops), then once more:
#      #   passed on: h_2, h_4, … h_26
#      #   stepping: 1, 2, … 13 in select.int
#      # user.py:11  h = x[:, t] @ w + h
#      select_15: f32[4, 8](128, 1) = aten.select.int(x, 1, 14)
#      mm_14: f32[4, 8] = aten.mm.default(select_15, w)
#      h_29: f32[4, 8] = aten.add.Tensor(mm_14, h_28)
#      # user.py:13  h = torch.tanh(h)
#      h_30: f32[4, 8] = aten.tanh.default(h_29)
#      # user.py:11  h = x[:, t] @ w + h
#      select_16: f32[4, 8](128, 1) = aten.select.int(x, 1, 15)
#      mm_15: f32[4, 8] = aten.mm.default(select_16, w)
#      h_31: f32[4, 8] = aten.add.Tensor(mm_15, h_30)
#      return (h_31,)
    h = torch.zeros_like(x[:, 0])
    for t in range(16):
        h = x[:, t] @ w + h
        if t < 15:
            h = torch.tanh(h)
    return h
