"""Normalizations over rows, channels, groups and batches, with the layers around them."""

import torch
import torch.nn.functional as F


# fx: x=f32[16, 256], weight=f32[256]
def rms_norm_few_rows(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


# fx: x=bf16[4096, 3584], weight=bf16[3584]
def rms_norm_one_plus(x, weight):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (h * (1.0 + weight.float())).type_as(x)


# fx: x=bf16[8192, 4096], z=bf16[8192, 4096], weight=bf16[4096]
def gated_rms_norm(x, z, weight):
    h = x.float() * F.silu(z.float())
    return weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


# fx: x=f32[591, 331], weight=f32[331], bias=f32[331]
def layer_norm_by_hand(x, weight, bias):
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).pow(2).mean(-1, keepdim=True)
    return weight * (x - mean) / torch.sqrt(var + 1e-12) + bias


# fx: x=f16[8, 320, 64, 64], weight=f16[320], bias=f16[320]
def group_norm_silu(x, weight, bias):
    return F.silu(F.group_norm(x, 32, weight, bias, eps=1e-6))


# fx: x=f32[64, 128, 56, 56], weight=f32[128], bias=f32[128]
def batch_norm_relu(x, weight, bias):
    return F.relu(F.batch_norm(x, None, None, weight, bias, training=True))


# fx: x=f32[33, 200], weight=f32[200], bias=f32[200]
def batch_norm_features(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, training=True)


# fx: x=f32[4, 64, 251, 251]
def instance_norm(x):
    return F.instance_norm(x)


# fx: x=bf16[32, 1024, 1152], shift=bf16[32, 1152], scale=bf16[32, 1152]
def adaptive_layer_norm(x, shift, scale):
    h = F.layer_norm(x, (x.size(-1),), eps=1e-6)
    return h * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


# fx: content=f32[8, 256, 61, 61], style=f32[8, 256, 61, 61]
def adaptive_instance_norm(content, style, eps=1e-5):
    content_mean, style_mean = content.mean((2, 3), keepdim=True), style.mean((2, 3), keepdim=True)
    content_std = (content.var((2, 3), keepdim=True) + eps).sqrt()
    style_std = (style.var((2, 3), keepdim=True) + eps).sqrt()
    return (content - content_mean) / content_std * style_std + style_mean


# fx: q=bf16[2, 4096, 32, 128], k=bf16[2, 4096, 8, 128], q_weight=bf16[128], k_weight=bf16[128]
def qk_norm(q, k, q_weight, k_weight):
    return F.rms_norm(q, (q.size(-1),), q_weight, 1e-6), F.rms_norm(k, (k.size(-1),), k_weight, 1e-6)


# fx: x=f32[16384, 768]
def l2_normalize(x):
    return F.normalize(x, p=2, dim=-1)


# fx: v=f32[512, 512, 7], g=f32[512, 1, 1]
def weight_norm(v, g):
    return g * v / torch.linalg.vector_norm(v, dim=(1, 2), keepdim=True)


# fx: x=f16[32, 96, 56, 56], weight=f16[96], bias=f16[96]
def channel_layer_norm(x, weight, bias):
    u = x.mean(1, keepdim=True)
    s = (x - u).pow(2).mean(1, keepdim=True)
    x = (x - u) / torch.sqrt(s + 1e-6)
    return weight[:, None, None] * x + bias[:, None, None]


# fx: x=f32[16, 28, 28, 384], gamma=f32[1, 1, 1, 384], beta=f32[1, 1, 1, 384]
def global_response_norm(x, gamma, beta):
    gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
    nx = gx / (gx.mean(dim=-1, keepdim=True) + 1e-6)
    return gamma * (x * nx) + beta + x
