# Programs that train a part of a network, or parameters that are not its own.
import copy
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.body = nn.Linear(20, width)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))

# === A frozen backbone
# --- train.py
import torch
from user import Net

net = Net()
net.body.requires_grad_(False)
optimizer = torch.optim.SGD(net.head.parameters(), 0.1)
net(torch.randn(6, 20)).logsumexp(-1).mean().backward()
optimizer.step()
#: Net
#:   forward: 2 aten.addmm.default, 2 aten.t.default, 1 aten.tanh.default
#:   backward: 1 aten.mm.default, 1 aten.sum.dim_IntList, 3 aten.t.default, 1 aten.view.default
#:   saved: 1 f32[6, 40] 960 bytes

# === Frozen first layers
class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return x

def main():
    net = Stack(4)
    for layer in net.layers[:3]:
        for parameter in layer.parameters():
            parameter.requires_grad = False
    for batch in torch.randn(3, 8, 16):
        net(batch).abs().mean().backward()

if __name__ == "__main__":
    main()
#: Stack
#:   forward: 4 aten.add.Tensor, 4 aten.addmm.default, 2 aten.detach.default, 4 aten.relu.default, 4 aten.t.default
#:   backward: 1 aten.mm.default, 1 aten.sum.dim_IntList, 3 aten.t.default, 1 aten.threshold_backward.default,
#:     1 aten.view.default
#:   saved: 2 f32[8, 16] 512 bytes

# === A low-rank adapter
class Adapter(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.down), self.up)

def adapted(net, rank):
    net.requires_grad_(False)
    net.body = Adapter(net.body, rank)
    return net

if __name__ == "__main__":
    net = adapted(Net(), 3)
    net(torch.randn(6, 20)).sum().backward()
#: Adapter
#:   forward: 1 aten.add.Tensor, 1 aten.addmm.default, 2 aten.mm.default, 3 aten.t.default
#:   backward: 3 aten.mm.default, 8 aten.t.default
#:   saved: 1 f32[40, 3] 480 bytes, 1 f32[6, 20] 480 bytes, 1 f32[6, 3] 72 bytes

# === A distillation loss
def distill(student, teacher, temperature=3.0):
    wanted = F.softmax(teacher / temperature, -1)
    return F.kl_div(F.log_softmax(student / temperature, -1), wanted, reduction="batchmean") * temperature**2

# --- distill.py
import torch
from user import Net, distill

teacher, student = Net(80).eval(), Net()
x = torch.randn(6, 20)
with torch.no_grad():
    wanted = teacher(x)
distill(student(x), wanted).backward()
#: distill
#:   forward: 1 aten._log_softmax.default, 1 aten._softmax.default, 2 aten.detach.default, 3 aten.div.Tensor,
#:     2 aten.mul.Tensor, 1 aten.sub.Tensor, 1 aten.sum.default, 1 aten.xlogy.Tensor
#:   backward: 1 aten._log_softmax_backward_data.default, 2 aten.div.Tensor, 1 aten.expand.default, 2 aten.mul.Tensor,
#:     1 aten.neg.default
#:   saved: 2 f32[6, 5] 120 bytes

# === A teacher and a student of one class
# --- distill.py
import torch
import torch.nn.functional as F
from user import Net

teacher, student = Net(80).eval(), Net()
x = torch.randn(6, 20)
with torch.no_grad():
    wanted = teacher(x)
F.mse_loss(student(x), wanted).backward()
#: Net
#:   forward: 2 aten.addmm.default, 2 aten.t.default, 1 aten.tanh.default
#:   backward: 2 aten.detach.default, 3 aten.mm.default, 2 aten.sum.dim_IntList, 8 aten.t.default,
#:     1 aten.tanh_backward.default, 2 aten.view.default
#:   saved: 1 f32[5, 40] 800 bytes, 1 f32[6, 20] 480 bytes, 1 f32[6, 40] 960 bytes

# === Tied weights
class Language(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens):
        return self.out(F.gelu(self.mix(self.embed(tokens))))

if __name__ == "__main__":
    model = Language(50, 12)
    tokens = torch.randint(50, (2, 7))
    F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
#: Language
#:   forward: 1 aten._unsafe_view.default, 1 aten.addmm.default, 1 aten.embedding.default, 1 aten.gelu.default,
#:     1 aten.mm.default, 2 aten.t.default, 3 aten.view.default
#:   backward: 1 aten.add.Tensor, 1 aten.embedding_dense_backward.default, 1 aten.gelu_backward.default,
#:     4 aten.mm.default, 1 aten.sum.dim_IntList, 10 aten.t.default, 6 aten.view.default
#:   saved: 1 f32[12, 12] 576 bytes, 3 f32[14, 12] 672 bytes, 1 f32[50, 12] 2400 bytes, 1 i64[2, 7] 112 bytes

# === A frozen embedding
class Tagger(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.tag = nn.Linear(vectors.shape[1], 4)

    def forward(self, tokens):
        return self.tag(self.embed(tokens).mean(1))

if __name__ == "__main__":
    tagger = Tagger(torch.randn(30, 10))
    tagger(torch.randint(30, (3, 6))).var().backward()
#: Tagger
#:   forward: 1 aten.addmm.default, 1 aten.embedding.default, 1 aten.mean.dim, 1 aten.t.default
#:   backward: 1 aten.mm.default, 1 aten.sum.dim_IntList, 3 aten.t.default, 1 aten.view.default
#:   saved: 1 f32[3, 10] 120 bytes

# === Batch norm in evaluation, the rest in training
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Sequential(nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.1))

    def forward(self, images):
        return self.head(self.backbone(images))

# --- train.py
import torch
from user import Detector

net = Detector()
for epoch in range(2):
    net.train()
    net.backbone.eval()
    net(torch.randn(2, 3, 10, 10)).mean().backward()
#: Detector
#:   forward: 1 aten._native_batch_norm_legit_functional.default, 1 aten._native_batch_norm_legit_no_training.default,
#:     1 aten.add.Tensor, 2 aten.convolution.default, 3 aten.copy_.default, 1 aten.native_dropout.default,
#:     1 aten.relu.default
#:   backward: 2 aten.convolution_backward.default, 2 aten.detach.default, 2 aten.native_batch_norm_backward.default,
#:     1 aten.native_dropout_backward.default, 1 aten.threshold_backward.default
#:   saved: 1 b8[2, 4, 8, 8] 512 bytes, 2 f32[0] 0 bytes, 1 f32[2, 3, 10, 10] 2400 bytes, 1 f32[2, 4, 8, 8] 2048 bytes,
#:     2 f32[2, 8, 8, 8] 4096 bytes, 1 f32[4, 8, 1, 1] 128 bytes, 5 f32[4] 16 bytes, 1 f32[8, 3, 3, 3] 864 bytes,
#:     3 f32[8] 32 bytes

# === A moving average of parameters
def moved(a, p, decay):
    return torch.lerp(p, a, decay)

if __name__ == "__main__":
    net = Net()
    average = copy.deepcopy(net).requires_grad_(False)
    net(torch.randn(6, 20)).sum().backward()
    with torch.no_grad():
        for a, p in zip(average.parameters(), net.parameters()):
            a.copy_(moved(a, p, 0.99))
#: moved
#:   inference: 1 aten.lerp.Scalar

# === A step of an optimizer
def adam(p, g, m, v, lr=1e-3, betas=(0.9, 0.99)):
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    p.sub_(lr * m / (v.sqrt() + 1e-8))

# --- train.py
import torch
from user import Net, adam

net = Net()
moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in net.parameters()]
net(torch.randn(6, 20)).sum().backward()
with torch.no_grad():
    for p, (m, v) in zip(net.parameters(), moments):
        adam(p, p.grad, m, v)
#: adam
#:   inference: 1 aten.add.Tensor, 1 aten.addcmul.default, 3 aten.copy_.default, 1 aten.div.Tensor, 1 aten.lerp.Scalar,
#:     2 aten.mul.Tensor, 1 aten.sqrt.default, 1 aten.sub.Tensor

# === Normalized weights
class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(12, 9))

    def forward(self, x):
        return torch.sin(self.layer(x))

if __name__ == "__main__":
    Normalized()(torch.randn(5, 12)).sum().backward()
#: Normalized
#:   forward: 1 aten._weight_norm_interface.default, 1 aten.addmm.default, 1 aten.sin.default, 1 aten.t.default
#:   backward: 1 aten._weight_norm_interface_backward.default, 1 aten.cos.default, 1 aten.mm.default, 1 aten.mul.Tensor,
#:     1 aten.sum.dim_IntList, 3 aten.t.default, 1 aten.view.default
#:   saved: 1 f32[5, 12] 240 bytes, 1 f32[5, 9] 180 bytes, 1 f32[9, 12] 432 bytes, 2 f32[9, 1] 36 bytes

# === Parameters passed by name
# --- meta.py
import torch
from user import Net

net = Net()
fast = {name: p.detach().clone() for name, p in net.named_parameters()}
fast["head.bias"].requires_grad_()
torch.func.functional_call(net, fast, (torch.randn(6, 20),)).sum().backward()
#: Net
#:   forward: 2 aten.addmm.default, 2 aten.t.default, 1 aten.tanh.default
#:   backward: 1 aten.sum.dim_IntList, 1 aten.view.default
#:   saved: nothing
