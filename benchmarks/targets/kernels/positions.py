"""Positions: rotary embeddings in their layouts, and encodings that are computed."""

import math

import torch


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


# fx: q=bf16[2, 4096, 32, 128], k=bf16[2, 4096, 8, 128], cos=f32[4096, 64], sin=f32[4096, 64]
def rope_interleaved(q, k, cos, sin):
    cos, sin = cos[None, :, None], sin[None, :, None]

    def rotate(x):
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).type_as(x)

    return rotate(q), rotate(k)


# fx: x=f32[2, 1024, 16, 64], freqs=c64[1024, 32]
def rope_complex(x, freqs):
    x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_ * freqs[None, :, None]).flatten(3).type_as(x)


# fx: q=f32[3, 4, 37, 32], k=f32[3, 4, 37, 32], cos=f32[37, 32], sin=f32[37, 32]
def rope_few_tokens(q, k, cos, sin):
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


# fx: q=bf16[4, 32, 2048, 80], k=bf16[4, 32, 2048, 80], cos=bf16[2048, 32], sin=bf16[2048, 32]
def rope_partial(q, k, cos, sin):
    n = cos.size(-1)
    q_rot, q_pass, k_rot, k_pass = q[..., :n], q[..., n:], k[..., :n], k[..., n:]
    q_rot = q_rot * cos + rotate_half(q_rot) * sin
    k_rot = k_rot * cos + rotate_half(k_rot) * sin
    return torch.cat((q_rot, q_pass), dim=-1), torch.cat((k_rot, k_pass), dim=-1)


# fx: q=bf16[8, 32, 1, 128], k=bf16[8, 8, 1, 128], position=i64[8, 1], cos=bf16[8192, 128], sin=bf16[8192, 128]
def rope_at_positions(q, k, position, cos, sin):
    cos, sin = cos[position].unsqueeze(1), sin[position].unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


# fx: q=bf16[4, 32, 4096, 64], base=10000.0
def rope_computed(q, base):
    inv_freq = 1.0 / base ** (torch.arange(0, q.size(-1), 2, device=q.device).float() / q.size(-1))
    angle = torch.outer(torch.arange(q.size(-2), device=q.device).float(), inv_freq)
    angle = torch.cat((angle, angle), dim=-1)
    return q * angle.cos().to(q.dtype) + rotate_half(q) * angle.sin().to(q.dtype)


# fx: x=f16[16, 12, 1024, 64]
def rope_2d(x, side=32):
    freqs = 100.0 ** -(torch.arange(16, device=x.device) / 16)
    t = torch.arange(side, device=x.device)
    rows = (t[:, None] * freqs).repeat_interleave(side, 0)
    columns = (t[:, None] * freqs).repeat(side, 1)
    angle = torch.cat((rows, columns), dim=-1).repeat_interleave(2, -1)
    rotated = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).reshape(x.shape)
    return x * angle.cos().to(x.dtype) + rotated * angle.sin().to(x.dtype)


# fx: q=bf16[2, 28, 2048, 128], cos=bf16[3, 2, 2048, 128], sin=bf16[3, 2, 2048, 128]
def rope_sections(q, cos, sin, sections=(16, 24, 24)):
    parts = list(sections) * 2
    cos = torch.cat([m[i % 3] for i, m in enumerate(cos.split(parts, dim=-1))], dim=-1).unsqueeze(1)
    sin = torch.cat([m[i % 3] for i, m in enumerate(sin.split(parts, dim=-1))], dim=-1).unsqueeze(1)
    return q * cos + rotate_half(q) * sin


# fx: x=f32[32, 100, 512]
def add_sinusoids(x):
    position = torch.arange(x.size(1), device=x.device).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, x.size(2), 2, device=x.device) * (-math.log(10000.0) / x.size(2)))
    pe = torch.zeros(x.size(1), x.size(2), device=x.device)
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return x + pe


# fx: timesteps=f32[64], dim=320
def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, device=timesteps.device).float() / half)
    args = timesteps[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


# fx: x=f32[131071, 3]
def frequency_encoding(x, levels=10):
    bands = 2.0 ** torch.arange(levels, device=x.device)
    angle = (x[..., None, :] * bands[:, None] * math.pi).flatten(-2)
    return torch.cat([x, angle.sin(), angle.cos()], dim=-1)


# fx: table=f32[32, 12], scores=f32[4, 12, 512, 512]
def relative_buckets(table, scores, max_distance=128):
    i = torch.arange(scores.size(-1), device=scores.device)
    n = (i[:, None] - i[None, :]).clamp(min=0)
    exact = table.size(0) // 2
    far = exact + (torch.log(n.clamp(min=1).float() / exact) / math.log(max_distance / exact) * exact).long()
    bucket = torch.where(n < exact, n, far.clamp(max=table.size(0) - 1))
    return scores + table[bucket].permute(2, 0, 1)
