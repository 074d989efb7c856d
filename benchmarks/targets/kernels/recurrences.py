"""Recurrences over time, written as loops, and scans."""

import torch
import torch.nn.functional as F


# fx: current=f32[50, 32, 100], beta=0.95
def leaky_neuron(current, beta):
    membrane = torch.zeros_like(current[0])
    trace = []
    for step in range(current.size(0)):
        reset = (membrane > 1.0).float()
        membrane = beta * membrane + current[step] - reset
        trace.append(membrane)
    return torch.stack(trace)


# fx: x=f32[16, 4096, 257]
def running_mean(x):
    count = torch.arange(1, x.size(1) + 1, device=x.device).view(1, -1, 1)
    return torch.cumsum(x, dim=1) / count


# fx: mask=i64[64, 512]
def position_ids(mask):
    position = mask.long().cumsum(-1) - 1
    return position.masked_fill(mask == 0, 1)


# fx: x=f32[64, 96, 321]
def moving_average(x, alpha=0.3):
    level = x[:, 0]
    levels = [level]
    for t in range(1, x.size(1)):
        level = alpha * x[:, t] + (1 - alpha) * level
        levels.append(level)
    return torch.stack(levels, dim=1)


# fx: x=f32[64, 128], h=f32[64, 256], w_ih=f32[768, 128], w_hh=f32[768, 256], b_ih=f32[768], b_hh=f32[768]
def gru_cell(x, h, w_ih, w_hh, b_ih, b_hh):
    i_r, i_z, i_n = F.linear(x, w_ih, b_ih).chunk(3, 1)
    h_r, h_z, h_n = F.linear(h, w_hh, b_hh).chunk(3, 1)
    r, z = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
    n = torch.tanh(i_n + r * h_n)
    return (1 - z) * n + z * h


# fx: gates=f16[1024, 8192], c=f16[1024, 2048]
def lstm_gates(gates, c):
    i, f, g, o = gates.chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


# fx: u=f32[2, 256, 64], delta=f32[2, 256, 64], a=f32[256, 16], b=f32[2, 16, 64], c=f32[2, 16, 64], d=f32[256]
def selective_scan(u, delta, a, b, c, d):
    delta = F.softplus(delta)
    delta_a = torch.exp(torch.einsum("bdl,dn->bdln", delta, -torch.exp(a)))
    delta_b_u = torch.einsum("bdl,bnl,bdl->bdln", delta, b, u)
    x = torch.zeros_like(delta_a[:, :, 0])
    ys = []
    for i in range(u.size(2)):
        x = delta_a[:, :, i] * x + delta_b_u[:, :, i]
        ys.append(torch.einsum("bdn,bn->bd", x, c[:, :, i]))
    return torch.stack(ys, dim=2) + u * d[:, None]


# fx: x=bf16[16, 64, 2560], gate=bf16[16, 64, 2560], decay=f32[2560]
def gated_linear_recurrence(x, gate, decay):
    log_a = -8.0 * torch.sigmoid(gate.float()) * F.softplus(decay)
    a = torch.exp(log_a)
    b = torch.sqrt(1 - torch.exp(2 * log_a) + 1e-6) * x.float()
    h = torch.zeros_like(b[:, 0])
    out = []
    for t in range(x.size(1)):
        h = a[:, t] * h + b[:, t]
        out.append(h)
    return torch.stack(out, dim=1).to(x.dtype)


# fx: rewards=f32[128, 4096], gamma=0.99
def discounted_returns(rewards, gamma):
    returns = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[0])
    for t in reversed(range(rewards.size(0))):
        running = rewards[t] + gamma * running
        returns[t] = running
    return returns


# fx: rewards=f32[64, 127], values=f32[65, 127], dones=f32[64, 127]
def generalized_advantage(rewards, values, dones, gamma=0.99, lam=0.95):
    advantage, advantages = torch.zeros_like(rewards[0]), []
    for t in reversed(range(rewards.size(0))):
        delta = rewards[t] + gamma * values[t + 1] * (1 - dones[t]) - values[t]
        advantage = delta + gamma * lam * (1 - dones[t]) * advantage
        advantages.insert(0, advantage)
    return torch.stack(advantages)


# fx: k=f32[4, 48, 768], v=f32[4, 48, 768], r=f32[4, 48, 768], w=f32[768], u=f32[768]
def weighted_key_value(k, v, r, w, u):
    a, b = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0])
    p = torch.full_like(k[:, 0], -1e38)
    out = []
    for t in range(k.size(1)):
        kt, vt = k[:, t], v[:, t]
        q = torch.maximum(p, u + kt)
        e1, e2 = torch.exp(p - q), torch.exp(u + kt - q)
        out.append(torch.sigmoid(r[:, t]) * (e1 * a + e2 * vt) / (e1 * b + e2))
        decayed = p - torch.exp(w)
        q = torch.maximum(decayed, kt)
        e1, e2 = torch.exp(decayed - q), torch.exp(kt - q)
        a, b, p = e1 * a + e2 * vt, e1 * b + e2, q
    return torch.stack(out, dim=1)


# fx: q=f32[2, 8, 32, 64], k=f32[2, 8, 32, 64], v=f32[2, 8, 32, 64], beta=f32[2, 8, 32]
def delta_rule(q, k, v, beta):
    k, beta = F.normalize(k, dim=-1), beta.sigmoid()
    state = torch.zeros(*k.shape[:2], k.size(-1), v.size(-1), device=k.device)
    out = []
    for t in range(k.size(2)):
        error = v[:, :, t] - torch.einsum("bhk,bhkv->bhv", k[:, :, t], state)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, :, t], beta[:, :, t, None] * error)
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state))
    return torch.stack(out, dim=2)


# fx: q=bf16[4, 8, 1024, 64], k=bf16[4, 8, 1024, 64], v=bf16[4, 8, 1024, 128], log_decay=f32[8]
def retention(q, k, v, log_decay):
    i = torch.arange(q.size(2), device=q.device)
    distance = i[:, None] - i[None, :]
    decay = torch.exp(-log_decay.exp()[:, None, None] * distance.clamp(min=0)) * (distance >= 0)
    return ((q @ k.transpose(-1, -2)) * 64**-0.5 * decay.to(q.dtype)) @ v
