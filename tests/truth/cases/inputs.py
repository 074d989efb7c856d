# Programs whose tensors have gradients, strides or dtypes of their own.
import torch
import torch.nn.functional as F
from torch import nn

# === Transposed queries and keys
def scores(q, k):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)

# --- train.py
import torch
from torch import nn
from user import scores

project = nn.Linear(12, 2 * 3 * 4)
q, k = project(torch.randn(2, 5, 12)).view(2, 5, 2, 3, 4).permute(2, 0, 3, 1, 4)
scores(q, k).square().sum().backward()
#: scores
#:   forward: 1 aten._softmax.default, 2 aten._unsafe_view.default, 1 aten.bmm.default, 2 aten.clone.default,
#:     2 aten.detach.default, 1 aten.div.Tensor, 2 aten.expand.default, 3 aten.transpose.int, 1 aten.view.default
#:   backward: 1 aten._softmax_backward_data.default, 2 aten.bmm.default, 1 aten.div.Tensor, 1 aten.transpose.int,
#:     3 aten.view.default
#:   saved: 1 f32[2, 3, 5, 5] 600 bytes, 1 f32[6, 4, 5](20, 1, 4) 480 bytes, 1 f32[6, 5, 4](20, 1, 5) 480 bytes

# === An expanded input
def shifted(x, by):
    return torch.exp(x - by) * by

if __name__ == "__main__":
    by = torch.randn(1, 7, requires_grad=True)
    shifted(torch.randn(5, 7), by.expand(5, 7)).sum().backward()
#: shifted
#:   forward: 1 aten.exp.default, 1 aten.mul.Tensor, 1 aten.sub.Tensor
#:   backward: 1 aten.add.Tensor, 2 aten.detach.default, 3 aten.mul.Tensor, 1 aten.neg.default
#:   saved: 1 f32[5, 7] 140 bytes, 1 f32[5, 7](0, 1) 28 bytes

# === Every second row
def normalized(x):
    return x.flatten() / x.flatten().norm()

if __name__ == "__main__":
    x = torch.randn(10, 6, requires_grad=True)
    normalized(x[::2]).max().backward()
#: normalized
#:   forward: 1 aten._unsafe_view.default, 1 aten.clone.default, 1 aten.div.Tensor, 1 aten.linalg_vector_norm.default
#:   backward: 1 aten.add.Tensor, 2 aten.detach.default, 4 aten.div.Tensor, 1 aten.eq.Scalar, 1 aten.masked_fill.Scalar,
#:     2 aten.mul.Tensor, 1 aten.neg.default, 1 aten.sum.default, 2 aten.view.default
#:   saved: 1 f32[30] 120 bytes, 1 f32[] 4 bytes

# === Channels last
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, images):
        return self.pool(F.relu(self.conv(images))).flatten(1)

# --- train.py
import torch
from user import Conv

net = Conv().to(memory_format=torch.channels_last)
images = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
net(images).mean().backward()
#: Conv
#:   forward: 1 aten._unsafe_view.default, 1 aten.clone.default, 1 aten.convolution.default,
#:     1 aten.max_pool2d_with_indices.default, 1 aten.relu.default
#:   backward: 1 aten.convolution_backward.default, 2 aten.detach.default,
#:     1 aten.max_pool2d_with_indices_backward.default, 1 aten.threshold_backward.default, 1 aten.view.default
#:   saved: 1 f32[2, 3, 8, 8](192, 1, 24, 3) 1536 bytes, 1 f32[2, 6, 8, 8](384, 1, 48, 6) 3072 bytes,
#:     1 f32[6, 3, 3, 3](27, 1, 9, 3) 648 bytes, 1 i64[2, 6, 4, 4](96, 1, 24, 6) 1536 bytes

# === Numbers that are no fractions
def counted(labels, size):
    return F.one_hot(labels, size).sum(0).cumsum(0) // 2

if __name__ == "__main__":
    print(counted(torch.randint(5, (12,)), 5))
#: counted
#:   inference: 2 aten._assert_async.msg, 1 aten._to_copy.default, 2 aten.all.default, 1 aten.arange.default,
#:     1 aten.cumsum.default, 1 aten.eq.Tensor, 1 aten.floor_divide.default, 1 aten.ge.Scalar, 1 aten.lt.Scalar,
#:     1 aten.sum.dim_IntList, 1 aten.unsqueeze.default

# === A buffer as an argument
def rotate(x, angles):
    a, b = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()

class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8)
        self.register_buffer("angles", torch.randn(6, 8))

    def forward(self, x):
        return rotate(self.query(x), self.angles)

if __name__ == "__main__":
    Rotary()(torch.randn(2, 6, 8)).sum().backward()
#: rotate
#:   forward: 1 aten.add.Tensor, 1 aten.cat.default, 1 aten.cos.default, 2 aten.mul.Tensor, 1 aten.neg.default,
#:     1 aten.sin.default, 1 aten.split.Tensor
#:   backward: 1 aten.add.Tensor, 1 aten.cat.default, 1 aten.cos.default, 2 aten.mul.Tensor, 1 aten.neg.default,
#:     1 aten.sin.default, 2 aten.slice.Tensor
#:   saved: 1 f32[6, 8] 192 bytes

# === A module with a buffer
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.randn(8))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        self.steps += 1
        return self.out((x - self.mean) * torch.rsqrt(self.mean.square() + 1))

if __name__ == "__main__":
    Scaled()(torch.randn(3, 8)).sum().backward()
#: Scaled
#:   forward: 2 aten.add.Tensor, 1 aten.addmm.default, 1 aten.copy_.default, 1 aten.mul.Tensor,
#:     1 aten.pow.Tensor_Scalar, 1 aten.rsqrt.default, 1 aten.sub.Tensor, 1 aten.t.default
#:   backward: 1 aten.mm.default, 1 aten.sum.dim_IntList, 3 aten.t.default, 1 aten.view.default
#:   saved: 1 f32[3, 8] 96 bytes

# === A loss of a result
def margin(scores, labels):
    right = scores.gather(1, labels[:, None])
    return F.relu(scores - right + 1).mean()

if __name__ == "__main__":
    net = nn.Linear(9, 4)
    margin(net(torch.randn(5, 9)), torch.randint(4, (5,))).backward()
#: margin
#:   forward: 1 aten.add.Tensor, 2 aten.detach.default, 1 aten.gather.default, 1 aten.mean.default, 1 aten.relu.default,
#:     1 aten.sub.Tensor, 1 aten.unsqueeze.default
#:   backward: 1 aten.add.Tensor, 1 aten.div.Scalar, 1 aten.expand.default, 1 aten.neg.default,
#:     1 aten.new_zeros.default, 1 aten.scatter_add.default, 1 aten.sum.dim_IntList, 1 aten.threshold_backward.default
#:   saved: 1 f32[5, 4] 80 bytes, 1 i64[5, 1] 40 bytes

# === One of two tensors needs a gradient
def mixed(a, b, w):
    return torch.sigmoid(a @ w) * (b @ w)

if __name__ == "__main__":
    w = torch.randn(6, 3, requires_grad=True)
    mixed(torch.randn(4, 6), torch.randn(4, 6), w).sum().backward()
#: mixed
#:   forward: 2 aten.mm.default, 1 aten.mul.Tensor, 1 aten.sigmoid.default, 2 aten.t.default
#:   backward: 1 aten.add.Tensor, 2 aten.detach.default, 2 aten.mm.default, 2 aten.mul.Tensor,
#:     1 aten.sigmoid_backward.default
#:   saved: 2 f32[4, 3] 48 bytes, 2 f32[6, 4](1, 6) 96 bytes

# === Data alone
def standardized(x):
    return (x - x.mean(0)) / x.std(0).clamp(min=1e-6)

if __name__ == "__main__":
    print(standardized(torch.randn(20, 3)).abs().max())
#: standardized
#:   inference: 1 aten.clamp.default, 1 aten.div.Tensor, 1 aten.mean.dim, 1 aten.std.correction, 1 aten.sub.Tensor

# === An adversarial image
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.out = nn.Linear(4, 10)

    def forward(self, images):
        return self.out(F.relu(self.conv(images)).mean((2, 3)))

# --- attack.py
import torch
import torch.nn.functional as F
from user import Classifier

net = Classifier().eval()
for p in net.parameters():
    p.requires_grad_(False)
images, labels = torch.rand(2, 1, 9, 9), torch.randint(10, (2,))
images.requires_grad_()
F.cross_entropy(net(images), labels).backward()
images = (images + 0.1 * images.grad.sign()).clamp(0, 1).detach()
#: Classifier
#:   forward: 1 aten.addmm.default, 1 aten.convolution.default, 2 aten.detach.default, 1 aten.mean.dim,
#:     1 aten.relu.default, 1 aten.t.default
#:   backward: 1 aten.convolution_backward.default, 1 aten.div.Scalar, 1 aten.expand.default, 1 aten.mm.default,
#:     2 aten.t.default, 1 aten.threshold_backward.default, 2 aten.unsqueeze.default
#:   saved: 1 f32[10, 4] 160 bytes, 1 f32[2, 1, 9, 9] 648 bytes, 1 f32[2, 4, 7, 7] 1568 bytes,
#:     1 f32[4, 1, 3, 3] 144 bytes

# === In place on an argument
def accumulated(total, x, weight):
    total += weight * x.exp()
    return total.sum()

if __name__ == "__main__":
    x = torch.randn(5, 3, requires_grad=True)
    accumulated(torch.zeros(5, 3), x, 0.5).backward()
#: accumulated
#:   forward: 1 aten.add.Tensor, 1 aten.clone.default, 2 aten.detach.default, 1 aten.exp.default, 1 aten.mul.Tensor,
#:     1 aten.sum.default
#:   backward: 1 aten.add.Tensor, 1 aten.expand.default, 2 aten.mul.Tensor
#:   saved: 1 f32[5, 3] 60 bytes

# === A module of doubles
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(7, 11)
        self.b = nn.Linear(11, 2)

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))

if __name__ == "__main__":
    net = Net().double()
    net(torch.randn(5, 7, dtype=torch.float64)).sum().backward()
#: Net
#:   forward: 2 aten.addmm.default, 1 aten.gelu.default, 2 aten.t.default
#:   backward: 1 aten.gelu_backward.default, 3 aten.mm.default, 2 aten.sum.dim_IntList, 8 aten.t.default,
#:     2 aten.view.default
#:   saved: 1 f64[2, 11] 176 bytes, 2 f64[5, 11] 440 bytes, 1 f64[5, 7] 280 bytes

# === Weights in bfloat16
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.out(self.norm(x.float()).to(x.dtype))

if __name__ == "__main__":
    net = Net()
    net.out.to(torch.bfloat16)
    net(torch.randn(5, 8, dtype=torch.bfloat16)).sum().backward()
#: Net
#:   forward: 2 aten._to_copy.default, 1 aten.add.Tensor, 1 aten.addmm.default, 1 aten.native_layer_norm.default,
#:     1 aten.t.default
#:   backward: 1 aten._to_copy.default, 2 aten.mm.default, 1 aten.native_layer_norm_backward.default,
#:     1 aten.sum.dim_IntList, 5 aten.t.default, 1 aten.view.default
#:   saved: 1 bf16[5, 8] 80 bytes, 1 bf16[8, 8] 128 bytes, 2 f32[5, 1] 20 bytes, 1 f32[5, 8] 160 bytes,
#:     2 f32[8] 32 bytes

# === Doubles by default
class Wave(nn.Module):
    def __init__(self):
        super().__init__()
        self.frequency = nn.Parameter(torch.ones(4))

    def forward(self, t):
        return torch.sin(t[:, None] * self.frequency * torch.linspace(0, 1, 4))

if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    Wave()(torch.arange(5.0)).sum().backward()
#: Wave
#:   forward: 1 aten.linspace.default, 2 aten.mul.Tensor, 1 aten.sin.default, 1 aten.unsqueeze.default
#:   backward: 1 aten.cos.default, 5 aten.mul.Tensor, 1 aten.sum.dim_IntList, 1 aten.unsqueeze.default,
#:     1 aten.view.default
#:   saved: 2 f64[4] 32 bytes, 1 f64[5] 40 bytes

# === A device by default
class Positions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return x + torch.arange(x.shape[0])[:, None] * self.scale

# --- main.py
import torch
from user import Positions

with torch.device("cpu"):
    net = Positions(6)
    net(torch.randn(3, 6)).prod().backward()
#: Positions
#:   forward: 1 aten.add.Tensor, 1 aten.arange.default, 1 aten.mul.Tensor, 1 aten.unsqueeze.default
#:   backward: 1 aten.arange.default, 1 aten.mul.Tensor, 1 aten.sum.dim_IntList, 1 aten.unsqueeze.default,
#:     1 aten.view.default
#:   saved: nothing

# === Attention of one kind
def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)

if __name__ == "__main__":
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = torch.randn(3, 2, 2, 6, 8, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        attend(q, k, v).sum().backward()
#: attend
#:   forward: 1 aten._safe_softmax.default, 1 aten.add.Tensor, 2 aten.bmm.default, 4 aten.expand.default,
#:     2 aten.mul.Scalar, 1 aten.ones.default, 2 aten.scalar_tensor.default, 4 aten.transpose.int, 1 aten.tril.default,
#:     6 aten.view.default, 1 aten.where.self
#:   backward: 1 aten._softmax_backward_data.default, 4 aten.bmm.default, 2 aten.detach.default, 1 aten.expand.default,
#:     2 aten.mul.Scalar, 2 aten.transpose.int, 7 aten.view.default
#:   saved: 1 f32[2, 2, 6, 6] 576 bytes, 1 f32[4, 6, 8] 768 bytes, 2 f32[4, 8, 6](48, 1, 8) 768 bytes
