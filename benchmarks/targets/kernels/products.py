"""Matrix products with what is around them: adapters, experts, gates, interactions and feed-forward layers."""

import torch
import torch.nn.functional as F


# fx: x=bf16[4096, 4096], weight=bf16[4096, 4096], a=bf16[16, 4096], b=bf16[4096, 16]
def low_rank_adapter(x, weight, a, b, scale=2.0):
    return F.linear(x, weight) + F.linear(F.linear(x, a), b) * scale


# fx: x=f32[64, 100], weight=f32[200, 100], bias=f32[200]
def linear_relu(x, weight, bias):
    return F.relu(F.linear(x, weight, bias))


# fx: x=f32[128, 17], w1=f32[64, 17], b1=f32[64], w2=f32[64, 64], b2=f32[64], w3=f32[6, 64], b3=f32[6]
def policy_network(x, w1, b1, w2, b2, w3, b3):
    x = torch.tanh(F.linear(x, w1, b1))
    x = torch.tanh(F.linear(x, w2, b2))
    return torch.tanh(F.linear(x, w3, b3))


# fx: x=bf16[4096, 2048], w1=bf16[5632, 2048], w2=bf16[2048, 5632], w3=bf16[5632, 2048]
def swiglu_feed_forward(x, w1, w2, w3):
    return F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)


# fx: logits=f32[8192, 64], k=4
def expert_gate(logits, k):
    values, indices = torch.topk(logits, k, dim=-1)
    weights = torch.softmax(values, dim=-1)
    return torch.zeros_like(logits).scatter(-1, indices, weights), indices


# fx: x=bf16[8, 512, 1024], w1=bf16[8, 1024, 2816], w3=bf16[8, 1024, 2816], w2=bf16[8, 2816, 1024]
def batched_experts(x, w1, w3, w2):
    return torch.bmm(F.silu(torch.bmm(x, w1)) * torch.bmm(x, w3), w2)


# fx: k=f32[512, 64], v=f32[512, 64], beta=f32[512], state=f32[512, 64, 64]
def outer_product_update(k, v, beta, state):
    return state + beta[:, None, None] * torch.einsum("bi,bj->bij", k, v)


# fx: x1=f32[128, 50], x2=f32[128, 60], weight=f32[40, 50, 60], bias=f32[40]
def bilinear(x1, x2, weight, bias):
    return torch.einsum("bi,oij,bj->bo", x1, weight, x2) + bias


# fx: x=f16[32, 256, 56, 56], w1=f16[16, 256], b1=f16[16], w2=f16[256, 16], b2=f16[256]
def squeeze_excite(x, w1, b1, w2, b2):
    s = F.relu(F.linear(x.mean((2, 3)), w1, b1))
    return x * torch.sigmoid(F.linear(s, w2, b2))[:, :, None, None]


# fx: x=bf16[2048, 4096], weight=i8[4096, 4096], scale=bf16[4096]
def int8_weight_linear(x, weight, scale):
    return F.linear(x, weight.to(x.dtype)) * scale


# fx: x=f32[1999, 997], weight=f32[503, 997], bias=f32[503], residual=f32[1999, 503]
def linear_residual(x, weight, bias, residual):
    return residual + F.linear(x, weight, bias)


# fx: x0=f32[2048, 429], x=f32[2048, 429], weight=f32[429, 429], bias=f32[429]
def cross_layer(x0, x, weight, bias):
    return x0 * F.linear(x, weight, bias) + x


# fx: dense=f32[2048, 64], sparse=f32[2048, 26, 64]
def dot_interaction(dense, sparse):
    x = torch.cat([dense.unsqueeze(1), sparse], dim=1)
    z = torch.bmm(x, x.transpose(1, 2))
    i, j = torch.tril_indices(x.size(1), x.size(1), -1, device=x.device)
    return torch.cat([dense, z[:, i, j]], dim=1)


# fx: x=f32[1000, 39, 16]
def factorization_machine(x):
    return 0.5 * (x.sum(dim=1).pow(2) - x.pow(2).sum(dim=1)).sum(dim=1, keepdim=True)


# fx: x=bf16[32, 196, 512], w1=bf16[256, 196], b1=bf16[256], w2=bf16[196, 256], b2=bf16[196]
def token_mixing(x, w1, b1, w2, b2):
    y = F.layer_norm(x, (x.size(-1),)).transpose(1, 2)
    return x + F.linear(F.gelu(F.linear(y, w1, b1)), w2, b2).transpose(1, 2)
