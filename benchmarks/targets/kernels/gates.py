"""Pointwise functions: activations, gated units, residuals, casts to 8 bits, and images as floats."""

import torch
import torch.nn.functional as F


# fx: x=bf16[8192, 14336], bias=bf16[14336]
def bias_squared_relu(x, bias):
    return F.relu(x + bias).square()


# fx: x=bf16[8192, 22016]
def swiglu_split(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


# fx: x=bf16[8192, 5760]
def swiglu_interleaved(x, alpha=1.702, limit=7.0):
    gate, linear = x[..., ::2], x[..., 1::2]
    gate = gate.clamp(max=limit)
    linear = linear.clamp(min=-limit, max=limit)
    return gate * torch.sigmoid(alpha * gate) * (linear + 1)


# fx: x=f16[2, 4096, 10240]
def geglu(x):
    hidden, gate = x.chunk(2, dim=-1)
    return hidden * F.gelu(gate)


# fx: x=f32[509, 662]
def reglu(x):
    a, b = x.chunk(2, dim=-1)
    return a * F.relu(b)


# fx: x=bf16[8192, 4096], branch=bf16[8192, 4096], gate=bf16[8192, 4096], scale=f32[4096]
def gated_residual(x, branch, gate, scale):
    return x + (scale * torch.sigmoid(gate.float()) * branch.float()).to(x.dtype)


# fx: x=bf16[8192, 4096]
def quantize_rows_int8(x):
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-5) / 127.0
    return torch.round(x.float() / scale).clamp(-128, 127).to(torch.int8), scale


# fx: x=i8[4096, 11008], scale=f32[4096, 1]
def dequantize_rows_int8(x, scale):
    return (x.float() * scale).to(torch.bfloat16)


# fx: x=bf16[8192, 7168]
def quantize_blocks_fp8(x):
    blocks = x.float().view(x.size(0), -1, 128)
    scale = blocks.abs().amax(dim=-1, keepdim=True).clamp(min=1e-4) / 448.0
    return (blocks / scale).to(torch.float8_e4m3fn).view_as(x), scale.squeeze(-1)


# fx: x=f32[64, 147]
def fake_quantize(x):
    scale = x.detach().abs().max() / 127.0
    rounded = torch.clamp(torch.round(x / scale), -128, 127) * scale
    return x + (rounded - x).detach()


# fx: images=u8[64, 224, 224, 3], mean=f32[3], std=f32[3]
def normalize_images(images, mean, std):
    x = images.permute(0, 3, 1, 2).float() / 255.0
    return (x - mean.view(1, 3, 1, 1)) / (std.abs() + 0.1).view(1, 3, 1, 1)


# fx: x=f32[32, 500]
def mish(x):
    return x * torch.tanh(F.softplus(x))


# fx: x=f16[32, 96, 57, 57]
def hard_swish(x):
    return x * F.relu6(x + 3.0) / 6.0


# fx: x=f32[4, 512, 8191], log_alpha=f32[512]
def snake(x, log_alpha):
    alpha = log_alpha.exp().view(1, -1, 1)
    return x + (alpha + 1e-9).reciprocal() * torch.sin(alpha * x).pow(2)
