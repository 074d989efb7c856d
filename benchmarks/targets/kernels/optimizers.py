"""Steps of optimizers, which change parameters and their state in place."""

import torch


# fx: p=f32[4096, 11008], grad=f32[4096, 11008], m=f32[4096, 11008], v=f32[4096, 11008], step=f32[]
@torch.no_grad()
def adamw(p, grad, m, v, step, lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1):
    step.abs_().add_(1)
    p.mul_(1 - lr * decay)
    m.lerp_(grad, 1 - beta1)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    denom = (v.abs().sqrt() / (1 - beta2**step).sqrt()).add_(eps)
    p.sub_(lr / (1 - beta1**step) * m / denom)


# fx: p=bf16[4096, 4096], grad=bf16[4096, 4096], m=f32[4096, 4096], v=f32[4096, 4096], master=f32[4096, 4096]
@torch.no_grad()
def adam_with_master_weights(p, grad, m, v, master, lr=1e-4, beta1=0.9, beta2=0.999, eps=1e-8):
    g = grad.float()
    m.mul_(beta1).add_(g, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    master.addcdiv_(m, v.abs().sqrt().add_(eps), value=-lr)
    p.copy_(master)


# fx: p=f32[64, 100], grad=f32[64, 100], m=f32[64, 100], v=f32[64, 100]
@torch.no_grad()
def adam_of_one_layer(p, grad, m, v, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    m.mul_(beta1).add_(grad, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    p.addcdiv_(m, v.abs().sqrt().add_(eps), value=-lr)


# fx: p=bf16[8192, 8192], grad=bf16[8192, 8192], m=bf16[8192, 8192]
@torch.no_grad()
def lion(p, grad, m, lr=1e-4, beta1=0.9, beta2=0.99, decay=0.1):
    p.mul_(1 - lr * decay)
    update = (m * beta1 + grad * (1 - beta1)).sign_()
    p.add_(update, alpha=-lr)
    m.mul_(beta2).add_(grad, alpha=1 - beta2)


# fx: p=f32[2048, 1024, 3], grad=f32[2048, 1024, 3], buffer=f32[2048, 1024, 3]
@torch.no_grad()
def momentum(p, grad, buffer, lr=0.1, mu=0.9, decay=5e-4):
    d = grad.add(p, alpha=decay)
    buffer.mul_(mu).add_(d)
    p.add_(d.add(buffer, alpha=mu), alpha=-lr)


# fx: grads=[f32[1024, 1024], f32[1024], f32[4096, 1024], f32[4096], f32[1024, 4096], f32[1024]], limit=1.0
@torch.no_grad()
def clip_norm(grads, limit):
    total = torch.stack([g.float().norm() for g in grads]).norm()
    scale = (limit / (total + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(scale)
    return total


# fx: average=[f32[512, 512], f32[512], f32[2048, 512]], weights=[f32[512, 512], f32[512], f32[2048, 512]]
@torch.no_grad()
def average_weights(average, weights, decay=0.999):
    for a, w in zip(average, weights, strict=True):
        a.mul_(decay).add_(w, alpha=1 - decay)


# fx: p=f32[257, 131], grad=f32[257, 131], square=f32[257, 131]
@torch.no_grad()
def rmsprop(p, grad, square, lr=1e-2, alpha=0.99, eps=1e-8):
    square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
    p.addcdiv_(grad, square.abs().sqrt().add_(eps), value=-lr)


# fx: p=bf16[8192, 4096], grad=bf16[8192, 4096], row=f32[8192], column=f32[4096]
@torch.no_grad()
def adafactor(p, grad, row, column, lr=1e-3, beta2=0.999):
    g = grad.float()
    square = g**2 + 1e-30
    row.abs_().mul_(beta2).add_(square.mean(dim=-1), alpha=1 - beta2)
    column.abs_().mul_(beta2).add_(square.mean(dim=-2), alpha=1 - beta2)
    update = (row / row.mean()).rsqrt().unsqueeze(-1) * column.rsqrt() * g
    update = update / (update.pow(2).mean().sqrt()).clamp(min=1.0)
    p.copy_(p.float() - lr * update)


# fx: grad=bf16[1024, 4096]
@torch.no_grad()
def orthogonalize(grad, steps=5):
    x = grad / (grad.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        b = -4.7750 * a + 2.0315 * a @ a
        x = 3.4445 * x + b @ x
    return x


# fx: p=f32[1024, 3072], update=f32[1024, 3072]
@torch.no_grad()
def trust_ratio(p, update, lr=1e-3, decay=0.01):
    update = update + decay * p
    p_norm, u_norm = p.norm(), update.norm()
    ratio = torch.where((p_norm > 0) & (u_norm > 0), p_norm / u_norm, torch.ones_like(p_norm))
    p.sub_(lr * ratio * update)
