# Programs with several networks, of which one learns at a time.
import copy
import torch
import torch.nn.functional as F
from torch import nn

class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, z):
        return torch.tanh(self.layers(z))

class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)

# === The discriminator of two rivals
# --- gan.py
import torch
import torch.nn.functional as F
from user import Discriminator, Generator

g, d = Generator(), Discriminator()
of_g, of_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
for real in torch.randn(2, 8, 10):
    fake = g(torch.randn(8, 4))
    of_d.zero_grad()
    (F.softplus(-d(real)) + F.softplus(d(fake.detach()))).mean().backward()
    of_d.step()
    of_g.zero_grad()
    F.softplus(-d(fake)).mean().backward()
    of_g.step()
#: Discriminator
#:   forward: 2 aten.addmm.default, 1 aten.leaky_relu.default, 1 aten.squeeze.dim, 2 aten.t.default
#:   backward: 1 aten.leaky_relu_backward.default, 3 aten.mm.default, 2 aten.sum.dim_IntList, 8 aten.t.default,
#:     1 aten.unsqueeze.default, 2 aten.view.default
#:   saved: 1 f32[1, 16] 64 bytes, 1 f32[8, 10] 320 bytes, 2 f32[8, 16] 512 bytes

# === The generator of two rivals
# --- gan.py
import torch
import torch.nn.functional as F
from user import Discriminator, Generator

g, d = Generator(), Discriminator()
of_g, of_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
for real in torch.randn(2, 8, 10):
    with torch.no_grad():
        fake = g(torch.randn(8, 4))
    of_d.zero_grad()
    (F.softplus(-d(real)) + F.softplus(d(fake))).mean().backward()
    of_d.step()
    of_g.zero_grad()
    F.softplus(-d(g(torch.randn(8, 4)))).mean().backward()
    of_g.step()
#: Generator
#:   forward: 2 aten.addmm.default, 2 aten.detach.default, 1 aten.relu.default, 2 aten.t.default, 1 aten.tanh.default
#:   backward: 2 aten.detach.default, 3 aten.mm.default, 2 aten.sum.dim_IntList, 8 aten.t.default,
#:     1 aten.tanh_backward.default, 1 aten.threshold_backward.default, 2 aten.view.default
#:   saved: 1 f32[10, 16] 640 bytes, 1 f32[8, 10] 320 bytes, 1 f32[8, 16] 512 bytes, 1 f32[8, 4] 128 bytes

# === A frozen discriminator passes gradients on
# --- gan.py
import torch
import torch.nn.functional as F
from user import Discriminator, Generator

g, d = Generator(), Discriminator()
d.requires_grad_(False)
F.softplus(-d(g(torch.randn(8, 4)))).mean().backward()
#: Discriminator
#:   forward: 2 aten.addmm.default, 1 aten.leaky_relu.default, 1 aten.squeeze.dim, 2 aten.t.default
#:   backward: 1 aten.leaky_relu_backward.default, 2 aten.mm.default, 4 aten.t.default, 1 aten.unsqueeze.default
#:   saved: 1 f32[1, 16] 64 bytes, 1 f32[16, 10] 640 bytes, 1 f32[8, 16] 512 bytes

# === A target value without a gradient
def td_loss(values, next_values, actions, rewards, gamma=0.9):
    chosen = values.gather(1, actions.unsqueeze(1)).squeeze(1)
    wanted = rewards + gamma * next_values.amax(1)
    return F.smooth_l1_loss(chosen, wanted.detach())

# --- dqn.py
import copy
import torch
from torch import nn
from user import td_loss

q = nn.Linear(6, 3)
frozen = copy.deepcopy(q)
states, later = torch.randn(2, 8, 6)
td_loss(q(states), frozen(later), torch.randint(3, (8,)), torch.randn(8)).backward()
#: td_loss
#:   forward: 1 aten.add.Tensor, 1 aten.amax.default, 1 aten.detach.default, 1 aten.gather.default, 1 aten.mul.Tensor,
#:     1 aten.smooth_l1_loss.default, 1 aten.squeeze.dim, 1 aten.unsqueeze.default
#:   backward: 1 aten.new_zeros.default, 1 aten.scatter_add.default, 1 aten.smooth_l1_loss_backward.default,
#:     1 aten.unsqueeze.default
#:   saved: 2 f32[8] 32 bytes, 1 i64[8, 1] 64 bytes

# === A target network under no_grad
class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(6, 3)

    def forward(self, states):
        return F.relu(self.value(states))

# --- dqn.py
import copy
import torch
import torch.nn.functional as F
from user import Values

q = Values()
target = copy.deepcopy(q)
for states, later in torch.randn(2, 2, 8, 6):
    with torch.no_grad():
        wanted = target(later).amax(1)
    F.smooth_l1_loss(q(states).amax(1), wanted).backward()
#: Values
#:   forward: 1 aten.addmm.default, 2 aten.detach.default, 1 aten.relu.default, 1 aten.t.default
#:   backward: 1 aten.mm.default, 1 aten.sum.dim_IntList, 3 aten.t.default, 1 aten.threshold_backward.default,
#:     1 aten.view.default
#:   saved: 1 f32[8, 3] 96 bytes, 1 f32[8, 6] 192 bytes

# === Two views of an image, one without a gradient
def byol(a, b, wanted_a, wanted_b):
    def loss(p, z):
        return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1)
    return (loss(a, wanted_b) + loss(b, wanted_a)).mean()

if __name__ == "__main__":
    online, target, predict = nn.Linear(10, 6), nn.Linear(10, 6), nn.Linear(6, 6)
    x, y = torch.randn(2, 8, 10)
    byol(predict(online(x)), predict(online(y)), target(x), target(y)).backward()
#: byol
#:   forward: 1 aten.add.Tensor, 4 aten.clamp_min.Tensor, 4 aten.clone.default, 2 aten.detach.default,
#:     4 aten.div.Tensor, 4 aten.linalg_vector_norm.default, 1 aten.mean.default, 4 aten.mul.Tensor, 2 aten.rsub.Scalar,
#:     1 aten.scalar_tensor.default, 2 aten.sum.dim_IntList
#:   backward: 2 aten.add.Tensor, 4 aten.clamp_min.Tensor, 4 aten.clone.default, 4 aten.detach.default,
#:     1 aten.div.Scalar, 10 aten.div.Tensor, 2 aten.eq.Scalar, 2 aten.expand.default, 2 aten.masked_fill.Scalar,
#:     7 aten.mul.Tensor, 3 aten.neg.default, 1 aten.scalar_tensor.default, 2 aten.sum.dim_IntList,
#:     1 aten.unsqueeze.default
#:   saved: 4 f32[8, 1] 32 bytes, 4 f32[8, 6] 192 bytes
