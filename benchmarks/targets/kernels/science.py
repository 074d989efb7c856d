"""Physics, geometry, rendering and statistics, written in tensors."""

import math

import torch


# fx: u=f32[2048, 2048], previous=f32[2048, 2048], c=f32[2048, 2048]
def wave_step(u, previous, c, dt=0.1):
    laplacian = -4 * u
    for dim in (0, 1):
        laplacian = laplacian + torch.roll(u, 1, dim) + torch.roll(u, -1, dim)
    return 2 * u - previous + (c * dt) ** 2 * laplacian


# fx: u=f32[1021, 1021], alpha=0.1
def heat_step(u, alpha):
    inner = u[1:-1, 1:-1]
    laplacian = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner
    out = u.clone()
    out[1:-1, 1:-1] = inner + alpha * laplacian
    return out


# fx: positions=f32[1500, 3], box=12.0
def lennard_jones(positions, box, epsilon=1.0, sigma=1.0):
    delta = positions[:, None] - positions[None]
    delta = delta - box * torch.round(delta / box)
    r2 = (delta**2).sum(-1) + torch.eye(positions.size(0), device=positions.device) * 1e6
    s6 = (sigma**2 / r2.clamp(min=0.64)) ** 3
    return 2 * epsilon * (s6**2 - s6).sum()


# fx: x=f32[65537, 3], b=f32[128, 3]
def fourier_features(x, b):
    projected = 2 * math.pi * x @ b.t()
    return torch.cat([projected.sin(), projected.cos()], dim=-1)


# fx: q=f32[100003, 4], v=f32[100003, 3]
def quaternion_rotate(q, v):
    q = q / q.norm(dim=-1, keepdim=True)
    w, u = q[..., :1], q[..., 1:]
    t = 2 * torch.cross(u, v, dim=-1)
    return v + w * t + torch.cross(u, t, dim=-1)


# fx: quaternions=f32[200000, 4], log_scale=f32[200000, 3]
def gaussian_covariances(quaternions, log_scale):
    r, x, y, z = (quaternions / quaternions.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - r * z), 2 * (x * z + r * y)], -1),
        torch.stack([2 * (x * y + r * z), 1 - 2 * (x * x + z * z), 2 * (y * z - r * x)], -1),
        torch.stack([2 * (x * z - r * y), 2 * (y * z + r * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    m = torch.stack(rows, -2) * log_scale.exp().unsqueeze(-2)
    return m @ m.transpose(-1, -2)


# fx: rgb=f32[4096, 128, 3], sigma=f32[4096, 128], t=f32[4096, 128]
def volume_rendering(rgb, sigma, t):
    step = torch.cat([t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 1e10)], dim=-1).abs()
    alpha = 1 - torch.exp(-torch.relu(sigma) * step)
    through = torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], dim=-1)
    weights = alpha * torch.cumprod(through, dim=-1)[:, :-1]
    color = (weights[..., None] * torch.sigmoid(rgb)).sum(-2)
    return color, (weights * t).sum(-1), weights.sum(-1)


# fx: direction=f32[300007, 3], coefficients=f32[300007, 9, 3]
def spherical_harmonics(direction, coefficients):
    x, y, z = (direction / direction.norm(dim=-1, keepdim=True)).unsqueeze(-1).unbind(1)
    c = coefficients.unbind(1)
    color = 0.28209479 * c[0] - 0.48860251 * (y * c[1] - z * c[2] + x * c[3])
    color = color + 1.09254843 * (x * y * c[4] - y * z * c[5] - x * z * c[7])
    color = color + 0.31539157 * (2 * z * z - x * x - y * y) * c[6] + 0.54627421 * (x * x - y * y) * c[8]
    return torch.clamp(color + 0.5, min=0.0)


# fx: x=f32[20000, 8], means=f32[64, 8], log_std=f32[64, 8], logits=f32[64]
def mixture_log_likelihood(x, means, log_std, logits):
    z = (x[:, None] - means) * torch.exp(-log_std)
    log_prob = -0.5 * (z**2).sum(-1) - log_std.sum(-1) - 0.5 * x.size(-1) * math.log(2 * math.pi)
    return torch.logsumexp(log_prob + torch.log_softmax(logits, 0), dim=-1)


# fx: t=f32[10007, 2], w1=f32[2, 50], b1=f32[50], w2=f32[50, 50], b2=f32[50], w3=f32[50, 1]
def tanh_network(t, w1, b1, w2, b2, w3):
    return torch.tanh(torch.tanh(t @ w1 + b1) @ w2 + b2) @ w3


# fx: x=f32[2000, 64], y=f32[1500, 64], gamma=0.01
def gaussian_kernel(x, y, gamma):
    return torch.exp(-gamma * torch.cdist(x, y).pow(2))


# fx: x=f32[4096, 33], mean=f32[33], precision=f32[33, 33]
def mahalanobis(x, mean, precision):
    d = x - mean
    return torch.einsum("bi,ij,bj->b", d, precision, d)


# fx: ar=f32[16, 32, 256, 129], ai=f32[16, 32, 256, 129], br=f32[32, 256, 129], bi=f32[32, 256, 129]
def complex_multiply(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


# fx: state=f32[512, 3], steps=20
def lorenz(state, steps, dt=0.01):
    for _ in range(steps):
        x, y, z = state.unbind(-1)
        state = state + dt * torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)
    return state


# fx: f=f32[9, 512, 512], c=f32[9, 2], w=f32[9]
def lattice_boltzmann_collision(f, c, w, omega=1.2):
    rho = f.sum(0)
    u = torch.einsum("qd,qxy->dxy", c, f) / (rho.abs() + 1.0)
    cu = torch.einsum("qd,dxy->qxy", c, u)
    equilibrium = w[:, None, None] * rho * (1 + 3 * cu + 4.5 * cu**2 - 1.5 * (u**2).sum(0))
    return f - omega * (f - equilibrium)
