# Programs that run a target under autocast, around it or inside it.
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(24, 48)
        self.norm = nn.LayerNorm(48)
        self.last = nn.Linear(48, 6)

    def forward(self, x):
        return self.last(self.norm(F.silu(self.first(x))))

# === Autocast around the call
# --- train.py
import torch
import torch.nn.functional as F
from user import Net

net = Net()
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(3):
    x, labels = torch.randn(4, 24), torch.randint(6, (4,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
#: Net
#:   forward: 5 aten._to_copy.default, 2 aten.addmm.default, 1 aten.native_layer_norm.default, 1 aten.silu.default,
#:     3 aten.t.default
#:   backward: 4 aten._to_copy.default, 3 aten.mm.default, 1 aten.native_layer_norm_backward.default,
#:     1 aten.silu_backward.default, 2 aten.sum.dim_IntList, 6 aten.t.default, 2 aten.view.default
#:   saved: 2 bf16[4, 1] 8 bytes, 1 bf16[4, 24] 192 bytes, 3 bf16[4, 48] 384 bytes, 1 bf16[6, 48] 576 bytes,
#:     2 f32[48] 192 bytes

# === Autocast inside the target
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.net(x)
        return y.float() * self.scale

if __name__ == "__main__":
    mixed = Mixed()
    mixed(torch.randn(4, 24)).square().mean().backward()
#: Mixed
#:   forward: 6 aten._to_copy.default, 2 aten.addmm.default, 1 aten.mul.Tensor, 1 aten.native_layer_norm.default,
#:     1 aten.silu.default, 3 aten.t.default
#:   backward: 6 aten._to_copy.default, 3 aten.mm.default, 2 aten.mul.Tensor, 1 aten.native_layer_norm_backward.default,
#:     1 aten.silu_backward.default, 3 aten.sum.dim_IntList, 6 aten.t.default, 3 aten.view.default
#:   saved: 2 bf16[4, 1] 8 bytes, 1 bf16[4, 24] 192 bytes, 3 bf16[4, 48] 384 bytes, 1 bf16[4, 6] 48 bytes,
#:     1 bf16[6, 48] 576 bytes, 2 f32[48] 192 bytes, 1 f32[6] 24 bytes

# === Autocast as a decorator
@torch.autocast("cpu", dtype=torch.bfloat16)
def similarity(a, b):
    return F.softmax(a @ b.t(), -1)

if __name__ == "__main__":
    a, b = torch.randn(5, 16, requires_grad=True), torch.randn(7, 16, requires_grad=True)
    similarity(a, b).amax().backward()
#: similarity
#:   forward: 1 aten._softmax.default, 2 aten._to_copy.default, 2 aten.detach.default, 1 aten.mm.default,
#:     2 aten.t.default
#:   backward: 1 aten._softmax_backward_data.default, 2 aten._to_copy.default, 2 aten.mm.default, 3 aten.t.default
#:   saved: 1 bf16[5, 16] 160 bytes, 1 bf16[5, 7] 70 bytes, 1 bf16[7, 16] 224 bytes

# === Autocast switched off inside
class Careful(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        y = self.net(x)
        with torch.autocast("cpu", enabled=False):
            return (y.float() @ y.float().t()).softmax(-1)

if __name__ == "__main__":
    careful = Careful()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = careful(torch.randn(4, 24)).diagonal().mean()
    loss.backward()
#: Careful
#:   forward: 1 aten._softmax.default, 6 aten._to_copy.default, 2 aten.addmm.default, 2 aten.detach.default,
#:     1 aten.mm.default, 1 aten.native_layer_norm.default, 1 aten.silu.default, 4 aten.t.default
#:   backward: 1 aten._softmax_backward_data.default, 13 aten._to_copy.default, 1 aten.add.Tensor, 5 aten.mm.default,
#:     1 aten.native_layer_norm_backward.default, 1 aten.silu_backward.default, 2 aten.sum.dim_IntList,
#:     11 aten.t.default, 2 aten.view.default
#:   saved: 2 bf16[4, 1] 8 bytes, 1 bf16[4, 24] 192 bytes, 3 bf16[4, 48] 384 bytes, 1 bf16[4, 6] 48 bytes,
#:     1 bf16[6, 48] 576 bytes, 1 f32[4, 4] 64 bytes, 2 f32[48] 192 bytes

# === A loss after autocast
def focal(logits, labels):
    log_p = F.log_softmax(logits, -1).gather(1, labels[:, None])
    return -((1 - log_p.exp()).square() * log_p).mean()

# --- train.py
import torch
from user import Net, focal

net = Net()
with torch.autocast("cpu", dtype=torch.bfloat16):
    logits = net(torch.randn(4, 24))
focal(logits, torch.randint(6, (4,))).backward()
#: focal
#:   forward: 1 aten._log_softmax.default, 2 aten.detach.default, 1 aten.exp.default, 1 aten.gather.default,
#:     1 aten.mean.default, 1 aten.mul.Tensor, 1 aten.neg.default, 1 aten.pow.Tensor_Scalar, 1 aten.rsub.Scalar,
#:     1 aten.unsqueeze.default
#:   backward: 1 aten._log_softmax_backward_data.default, 1 aten.add.Tensor, 2 aten.detach.default, 1 aten.div.Scalar,
#:     1 aten.expand.default, 1 aten.mul.Scalar, 4 aten.mul.Tensor, 2 aten.neg.default, 1 aten.new_zeros.default,
#:     2 aten.pow.Tensor_Scalar, 1 aten.rsub.Scalar, 1 aten.scatter_add.default
#:   saved: 2 bf16[4, 1] 8 bytes, 1 bf16[4, 6] 48 bytes, 1 i64[4, 1] 32 bytes

# === A gradient scaler
# --- train.py
import torch
from user import Net

net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu")
for x in torch.randn(2, 4, 24):
    with torch.autocast("cpu", torch.float16):
        loss = net(x).pow(2).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
#: Net
#:   forward: 5 aten._to_copy.default, 2 aten.addmm.default, 1 aten.native_layer_norm.default, 1 aten.silu.default,
#:     3 aten.t.default
#:   backward: 4 aten._to_copy.default, 3 aten.mm.default, 1 aten.native_layer_norm_backward.default,
#:     1 aten.silu_backward.default, 2 aten.sum.dim_IntList, 6 aten.t.default, 2 aten.view.default
#:   saved: 2 f16[4, 1] 8 bytes, 1 f16[4, 24] 192 bytes, 3 f16[4, 48] 384 bytes, 1 f16[6, 48] 576 bytes,
#:     2 f32[48] 192 bytes
