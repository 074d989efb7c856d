# Programs that switch gradients off and on, or evaluate.
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(18, 36)
        self.b = nn.Linear(36, 3)

    def forward(self, x):
        return self.b(F.dropout(F.elu(self.a(x)), 0.3, self.training))

# === Evaluation
# --- evaluate.py
import torch
from user import Net

net = Net().eval()
with torch.no_grad():
    for batch in torch.randn(2, 5, 18):
        print(net(batch).argmax(-1))
#: Net
#:   inference: 2 aten.addmm.default, 1 aten.clone.default, 1 aten.elu.default, 2 aten.t.default

# === Training
# --- train.py
import torch
from user import Net

net = Net()
net.train()
net(torch.randn(5, 18)).sum().backward()
#: Net
#:   forward: 2 aten.addmm.default, 1 aten.elu.default, 1 aten.native_dropout.default, 2 aten.t.default
#:   backward: 1 aten.elu_backward.default, 3 aten.mm.default, 1 aten.native_dropout_backward.default,
#:     2 aten.sum.dim_IntList, 8 aten.t.default, 2 aten.view.default
#:   saved: 1 b8[5, 36] 180 bytes, 1 f32[3, 36] 432 bytes, 1 f32[5, 18] 360 bytes, 2 f32[5, 36] 720 bytes

# === Training, then evaluation
# --- train.py
import torch
from user import Net

net = Net()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(2):
    net.train()
    net(torch.randn(5, 18)).var().backward()
    optimizer.step()
    optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        net(torch.randn(9, 18))
#: Net
#:   forward: 2 aten.addmm.default, 1 aten.elu.default, 1 aten.native_dropout.default, 2 aten.t.default
#:   backward: 1 aten.elu_backward.default, 3 aten.mm.default, 1 aten.native_dropout_backward.default,
#:     2 aten.sum.dim_IntList, 8 aten.t.default, 2 aten.view.default
#:   saved: 1 b8[5, 36] 180 bytes, 1 f32[3, 36] 432 bytes, 1 f32[5, 18] 360 bytes, 2 f32[5, 36] 720 bytes

# === Evaluation before training
# --- train.py
import torch
from user import Net

net = Net()

def score():
    net.eval()
    with torch.no_grad():
        return net(torch.randn(9, 18)).argmax(-1)

score()
for batch in torch.randn(3, 5, 18):
    net.train()
    net(batch).var().backward()
score()
#: Net
#:   forward: 2 aten.addmm.default, 1 aten.elu.default, 1 aten.native_dropout.default, 2 aten.t.default
#:   backward: 1 aten.elu_backward.default, 3 aten.mm.default, 1 aten.native_dropout_backward.default,
#:     2 aten.sum.dim_IntList, 8 aten.t.default, 2 aten.view.default
#:   saved: 1 b8[5, 36] 180 bytes, 1 f32[3, 36] 432 bytes, 1 f32[5, 18] 360 bytes, 2 f32[5, 36] 720 bytes

# === Random dropout without gradients
# --- uncertainty.py
import torch
from user import Net

net = Net().eval()
net.train()
with torch.no_grad():
    samples = torch.stack([net(torch.randn(5, 18)) for _ in range(3)])
print(samples.std(0))
#: Net
#:   inference: 2 aten.addmm.default, 1 aten.elu.default, 1 aten.native_dropout.default, 2 aten.t.default

# === Inference mode
# --- evaluate.py
import torch
from user import Net

@torch.inference_mode()
def predictions(net, x):
    return net(x).softmax(-1)

net = Net()
net.requires_grad_(True)
print(predictions(net.eval(), torch.randn(5, 18)))
#: Net
#:   inference: 2 aten.addmm.default, 1 aten.clone.default, 1 aten.elu.default, 2 aten.t.default

# === Evaluation with gradients
# --- saliency.py
import torch
from user import Net

net = Net().eval()
x = torch.randn(5, 18, requires_grad=True)
net(x).amax(-1).sum().backward()
print(x.grad.abs().mean())
#: Net
#:   forward: 2 aten.addmm.default, 1 aten.clone.default, 1 aten.elu.default, 2 aten.t.default
#:   backward: 1 aten.elu_backward.default, 4 aten.mm.default, 2 aten.sum.dim_IntList, 10 aten.t.default,
#:     2 aten.view.default
#:   saved: 1 f32[3, 36] 432 bytes, 1 f32[36, 18] 2592 bytes, 1 f32[5, 18] 360 bytes, 2 f32[5, 36] 720 bytes

# === No gradients by a decorator
@torch.no_grad()
def accuracy(logits, labels):
    return (logits.softmax(-1).argmax(-1) == labels).float().mean()

if __name__ == "__main__":
    net = Net()
    logits = net(torch.randn(5, 18))
    print(accuracy(logits, torch.randint(3, (5,))))
#: accuracy
#:   inference: 1 aten._softmax.default, 1 aten._to_copy.default, 1 aten.argmax.default, 1 aten.eq.Tensor,
#:     1 aten.mean.default

# === Gradients by a flag
def run(net, x, train):
    with torch.set_grad_enabled(train):
        return net(x)

if __name__ == "__main__":
    net = Net()
    for phase in ("val", "train"):
        net.train(phase == "train")
        y = run(net, torch.randn(5, 18), phase == "train")
        if phase == "train":
            y.sum().backward()
#: Net
#:   forward: 2 aten.addmm.default, 1 aten.elu.default, 1 aten.native_dropout.default, 2 aten.t.default
#:   backward: 1 aten.elu_backward.default, 3 aten.mm.default, 1 aten.native_dropout_backward.default,
#:     2 aten.sum.dim_IntList, 8 aten.t.default, 2 aten.view.default
#:   saved: 1 b8[5, 36] 180 bytes, 1 f32[3, 36] 432 bytes, 1 f32[5, 18] 360 bytes, 2 f32[5, 36] 720 bytes

# === A function that switches gradients by a flag
def run(net, x, train):
    with torch.set_grad_enabled(train):
        return F.softmax(net(x), -1)

if __name__ == "__main__":
    net = Net()
    net.eval()
    run(net, torch.randn(5, 18), False)
    net.train()
    run(net, torch.randn(5, 18), True).amax().backward()
#: run
#:   forward: 1 aten._softmax.default, 2 aten.addmm.default, 2 aten.detach.default, 1 aten.elu.default,
#:     1 aten.native_dropout.default, 2 aten.t.default
#:   backward: 1 aten._softmax_backward_data.default, 1 aten.elu_backward.default, 3 aten.mm.default,
#:     1 aten.native_dropout_backward.default, 2 aten.sum.dim_IntList, 8 aten.t.default, 2 aten.view.default
#:   saved: 1 b8[5, 36] 180 bytes, 1 f32[3, 36] 432 bytes, 1 f32[5, 18] 360 bytes, 2 f32[5, 36] 720 bytes,
#:     1 f32[5, 3] 60 bytes

# === A part without gradients
class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(18, 8)
        self.codes = nn.Parameter(torch.randn(10, 8))

    def forward(self, x):
        y = self.project(x)
        with torch.no_grad():
            nearest = torch.cdist(y, self.codes).argmin(-1)
        chosen = self.codes[nearest]
        return y + (chosen - y).detach(), F.mse_loss(chosen, y.detach())

if __name__ == "__main__":
    out, loss = Quantized()(torch.randn(5, 18))
    (out.sum() + loss).backward()
#: Quantized
#:   forward: 1 aten._cdist_forward.default, 1 aten.add.Tensor, 1 aten.addmm.default, 1 aten.argmin.default,
#:     2 aten.detach.default, 1 aten.index.Tensor, 1 aten.mse_loss.default, 1 aten.sub.Tensor, 1 aten.t.default
#:   backward: 1 aten.index_put.default, 1 aten.mm.default, 1 aten.mse_loss_backward.default, 1 aten.new_zeros.default,
#:     1 aten.sum.dim_IntList, 3 aten.t.default, 1 aten.view.default
#:   saved: 1 f32[5, 18] 360 bytes, 2 f32[5, 8] 160 bytes, 1 i64[5] 40 bytes

# === A cache of keys and values
def attend(q, k, v, keys, values, at):
    end = at + k.shape[2]
    keys[:, :, at:end] = k
    values[:, :, at:end] = v
    return F.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end])

# --- generate.py
import torch
from user import attend

keys, values = torch.zeros(1, 2, 32, 8), torch.zeros(1, 2, 32, 8)
with torch.inference_mode():
    for at in range(6, 9):
        q, k, v = torch.randn(3, 1, 2, 1, 8)
        attend(q, k, v, keys, values, at)
#: attend
#:   inference: 1 aten._scaled_dot_product_flash_attention_for_cpu.default, 2 aten.copy.default, 2 aten.copy_.default,
#:     4 aten.slice.Tensor, 2 aten.slice_scatter.default

# === A recurrent state that is carried and detached
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 10)
        self.out = nn.Linear(10, 6)

    def forward(self, x, state):
        state = self.cell(x, state)
        return self.out(state), state

if __name__ == "__main__":
    reader = Reader()
    state = torch.zeros(4, 10)
    for x in torch.randn(3, 4, 6):
        y, state = reader(x, state)
        y.square().mean().backward()
        state = state.detach()
#: Reader
#:   forward: 4 aten.add.Tensor, 3 aten.addmm.default, 1 aten.clone.default, 2 aten.mul.Tensor, 2 aten.sigmoid.default,
#:     1 aten.sub.Tensor, 3 aten.t.default, 1 aten.tanh.default, 2 aten.unsafe_split.Tensor
#:   backward: 2 aten.add.Tensor, 2 aten.cat.default, 1 aten.clone.default, 6 aten.detach.default, 4 aten.mm.default,
#:     4 aten.mul.Tensor, 1 aten.neg.default, 2 aten.sigmoid_backward.default, 1 aten.sub.Tensor,
#:     3 aten.sum.dim_IntList, 11 aten.t.default, 1 aten.tanh_backward.default, 3 aten.view.default
#:   saved: 6 f32[4, 10] 160 bytes, 1 f32[4, 6] 96 bytes, 1 f32[6, 10] 240 bytes

# === A recurrent state within one sequence
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = nn.Linear(16, 10)

    def forward(self, x, state):
        return torch.tanh(self.turn(torch.cat([x, state], -1)))

if __name__ == "__main__":
    cell = Cell()
    state = torch.zeros(4, 10)
    for x in torch.randn(3, 4, 6):
        state = cell(x, state)
    state.sum().backward()
#: Cell
#:   forward: 1 aten.addmm.default, 1 aten.cat.default, 2 aten.detach.default, 1 aten.t.default, 1 aten.tanh.default
#:   backward: 1 aten.mm.default, 1 aten.sum.dim_IntList, 3 aten.t.default, 1 aten.tanh_backward.default,
#:     1 aten.view.default
#:   saved: 1 f32[4, 10] 160 bytes, 1 f32[4, 16] 256 bytes

# === A checkpoint inside the target
from torch.utils.checkpoint import checkpoint

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(18, 18), nn.GELU()) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

if __name__ == "__main__":
    Deep()(torch.randn(5, 18)).sum().backward()
#: Deep
#:   forward: 2 aten.addmm.default, 2 aten.gelu.default, 2 aten.t.default
#:   backward: 2 aten.addmm.default, 2 aten.gelu_backward.default, 3 aten.mm.default, 2 aten.sum.dim_IntList,
#:     9 aten.t.default, 2 aten.view.default
#:   saved: 2 f32[18, 18] 1296 bytes, 2 f32[18] 72 bytes, 2 f32[5, 18] 360 bytes

# === A target inside a checkpoint
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(18, 18)

    def forward(self, x):
        return x + F.gelu(self.mix(x))

if __name__ == "__main__":
    block = Block()
    checkpoint(block, torch.randn(5, 18), use_reentrant=False).sum().backward()
#: Block
#:   forward: 1 aten.add.Tensor, 1 aten.addmm.default, 1 aten.gelu.default, 1 aten.t.default
#:   backward: 1 aten.gelu_backward.default, 1 aten.mm.default, 1 aten.sum.dim_IntList, 3 aten.t.default,
#:     1 aten.view.default
#:   saved: 2 f32[5, 18] 360 bytes

# === A gradient penalty
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(18, 12)
        self.b = nn.Linear(12, 1)

    def forward(self, x):
        return self.b(F.softplus(self.a(x)))

def penalty(critic, x):
    y = critic(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return (slope.norm(dim=-1) - 1).square().mean()

if __name__ == "__main__":
    critic = Critic()
    penalty(critic, torch.randn(5, 18, requires_grad=True)).backward()
#: penalty
#:   forward: 2 aten.addmm.default, 1 aten.expand.default, 1 aten.linalg_vector_norm.default, 1 aten.mean.default,
#:     2 aten.mm.default, 1 aten.ones_like.default, 1 aten.pow.Tensor_Scalar, 1 aten.softplus.default,
#:     1 aten.softplus_backward.default, 1 aten.sub.Tensor, 1 aten.sum.default, 5 aten.t.default
#:   backward: 1 aten._to_copy.default, 1 aten.add.Tensor, 2 aten.detach.default, 1 aten.div.Scalar, 1 aten.div.Tensor,
#:     1 aten.eq.Scalar, 2 aten.expand.default, 1 aten.lt.Scalar, 1 aten.masked_fill.Scalar, 5 aten.mm.default,
#:     3 aten.mul.Scalar, 4 aten.mul.Tensor, 1 aten.pow.Tensor_Scalar, 1 aten.sigmoid.default,
#:     1 aten.sigmoid_backward.default, 1 aten.softplus_backward.default, 1 aten.sub.Tensor, 1 aten.sum.dim_IntList,
#:     10 aten.t.default, 2 aten.unsqueeze.default, 1 aten.view.default
#:   saved: 1 f32[12, 18] 864 bytes, 1 f32[12, 5](1, 12) 240 bytes, 2 f32[5, 12] 240 bytes, 2 f32[5, 18] 360 bytes,
#:     1 f32[5] 20 bytes, 1 f32[] 4 bytes

# === A penalty of gradients that are passed
def too_steep(slope, limit):
    return F.relu(slope.norm(dim=-1) - limit).square().mean()

if __name__ == "__main__":
    net, x = Net(), torch.randn(5, 18, requires_grad=True)
    (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    too_steep(slope, 0.1).backward()
#: too_steep
#:   forward: 2 aten.detach.default, 1 aten.linalg_vector_norm.default, 1 aten.mean.default, 1 aten.pow.Tensor_Scalar,
#:     1 aten.relu.default, 1 aten.sub.Tensor
#:   backward: 2 aten.detach.default, 1 aten.div.Scalar, 1 aten.div.Tensor, 1 aten.eq.Scalar, 1 aten.expand.default,
#:     1 aten.masked_fill.Scalar, 1 aten.mul.Scalar, 2 aten.mul.Tensor, 1 aten.pow.Tensor_Scalar,
#:     1 aten.threshold_backward.default, 2 aten.unsqueeze.default
#:   saved: 1 f32[5, 18] 360 bytes, 2 f32[5] 20 bytes
