"""Attention with the masks, biases, groups and caches of real models."""

import math

import torch
import torch.nn.functional as F


def repeat_kv(x, n):
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, n, t, d).reshape(b, h * n, t, d)


# fx: q=bf16[2, 32, 2048, 128], k=bf16[2, 8, 2048, 128], v=bf16[2, 8, 2048, 128]
def grouped_query(q, k, v):
    n = q.size(1) // k.size(1)
    return F.scaled_dot_product_attention(q, repeat_kv(k, n), repeat_kv(v, n), is_causal=True)


# fx: q=f16[1, 16, 4096, 64], k=f16[1, 16, 4096, 64], v=f16[1, 16, 4096, 64]
def sliding_window(q, k, v, window=512):
    i = torch.arange(q.size(2), device=q.device)
    distance = i[:, None] - i[None, :]
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    scores = scores.masked_fill((distance < 0) | (distance >= window), float("-inf"))
    return scores.softmax(-1) @ v


# fx: q=bf16[2, 16, 2048, 64], k=bf16[2, 16, 2048, 64], v=bf16[2, 16, 2048, 64], slopes=f32[16]
def alibi(q, k, v, slopes):
    position = torch.arange(k.size(2), device=q.device)
    bias = slopes.view(-1, 1, 1) * (position[None, :] - position[:, None])
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1)) + bias
    causal = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(causal, float("-inf")).softmax(-1).to(v.dtype) @ v


# fx: q=bf16[1, 8, 2048, 256], k=bf16[1, 8, 2048, 256], v=bf16[1, 8, 2048, 256]
def soft_cap(q, k, v, cap=50.0):
    scores = torch.matmul(q, k.transpose(2, 3)) * 256**-0.5
    scores = torch.tanh(scores / cap) * cap
    mask = torch.full((q.size(2), k.size(2)), float("-inf"), device=q.device).triu(1)
    return torch.matmul(F.softmax(scores + mask, dim=-1, dtype=torch.float32).to(q.dtype), v)


# fx: qkv=f16[512, 49, 288], table=f16[169, 3], index=i64[49, 49]
def shifted_windows(qkv, table, index):
    b, n, _ = qkv.shape
    q, k, v = qkv.reshape(b, n, 3, 3, 32).permute(2, 0, 3, 1, 4)
    bias = table[index].permute(2, 0, 1)
    weights = ((q * 32**-0.5) @ k.transpose(-2, -1) + bias.unsqueeze(0)).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).reshape(b, n, -1)


# fx: q=f16[2, 4096, 320], k=f16[2, 77, 320], v=f16[2, 77, 320]
def cross_attention(q, k, v, heads=8):
    q, k, v = (t.view(t.size(0), t.size(1), heads, -1).transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).reshape(q.size(0), q.size(2), -1)


# fx: q=bf16[8, 32, 1, 128], k_cache=bf16[8, 8, 4096, 128], v_cache=bf16[8, 8, 4096, 128], mask=b8[8, 4096]
def decode(q, k_cache, v_cache, mask):
    k, v = (t.repeat_interleave(q.size(1) // t.size(1), dim=1) for t in (k_cache, v_cache))
    scores = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
    return scores.softmax(-1).to(v.dtype) @ v


# fx: q=bf16[8, 16, 512], q_rope=bf16[8, 16, 64], latent=bf16[8, 4096, 512], k_rope=bf16[8, 4096, 64]
def latent_decode(q, q_rope, latent, k_rope):
    scores = torch.einsum("bhc,btc->bht", q, latent) + torch.einsum("bhr,btr->bht", q_rope, k_rope)
    weights = (scores * 192**-0.5).softmax(dim=-1, dtype=torch.float32).type_as(q)
    return torch.einsum("bht,btc->bhc", weights, latent)


# fx: q=f32[4, 8, 2048, 64], k=f32[4, 8, 2048, 64], v=f32[4, 8, 2048, 64]
def linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    kv = torch.einsum("bhnd,bhne->bhde", k, v)
    z = 1 / (torch.einsum("bhnd,bhd->bhn", q, k.sum(dim=2)) + 1e-6)
    return torch.einsum("bhnd,bhde,bhn->bhne", q, kv, z)


# fx: q=f32[16, 12, 128, 64], k=f32[16, 12, 128, 64], v=f32[16, 12, 128, 64], mask=f32[16, 128]
def padded(q, k, v, mask):
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1))
    scores = scores + (1.0 - mask[:, None, None, :]) * -10000.0
    out = torch.matmul(F.softmax(scores, dim=-1), v)
    return out.permute(0, 2, 1, 3).contiguous().view(q.size(0), q.size(2), -1)


# fx: qkv=f16[64, 197, 2304]
def vision_transformer(qkv, heads=12):
    b, n, c = qkv.shape
    q, k, v = qkv.reshape(b, n, 3, heads, c // 3 // heads).permute(2, 0, 3, 1, 4).unbind(0)
    weights = (q * q.size(-1) ** -0.5 @ k.transpose(-2, -1)).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).reshape(b, n, c // 3)


# fx: q=bf16[1, 64, 1024, 64], k=bf16[1, 64, 1024, 64], v=bf16[1, 64, 1024, 64], sinks=bf16[64]
def with_sinks(q, k, v, sinks):
    scores = torch.matmul(q, k.transpose(2, 3)) * 0.125
    causal = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(causal, float("-inf"))
    column = sinks.reshape(1, -1, 1, 1).expand(q.size(0), -1, q.size(2), 1)
    weights = F.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]
    return torch.matmul(weights, v)


# fx: query=f32[32, 256], keys=f32[32, 51, 256], v=f32[256]
def additive(query, keys, v):
    scores = torch.tanh(query.unsqueeze(1) + keys) @ v
    weights = torch.softmax(scores, dim=1)
    return torch.bmm(weights.unsqueeze(1), keys).squeeze(1), weights
