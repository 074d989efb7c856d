"""Losses of classifiers, language models, detectors, matching, and reinforcement learning."""

import math

import torch
import torch.nn.functional as F


# fx: logits=bf16[4096, 32000], target=i64[4096]
def label_smoothing(logits, target, smoothing=0.1):
    log_probs = F.log_softmax(logits.float(), dim=-1)
    nll = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    smooth = -log_probs.mean(dim=-1)
    return ((1 - smoothing) * nll + smoothing * smooth).mean()


# fx: logits=f32[2, 1024, 50257], labels=i64[2, 1024]
def next_token(logits, labels):
    shifted = logits[:, :-1].reshape(-1, logits.size(-1))
    return F.cross_entropy(shifted, labels[:, 1:].reshape(-1), ignore_index=-100)


# fx: student=bf16[2048, 32000], teacher=bf16[2048, 32000]
def distillation(student, teacher, temperature=2.0):
    soft = F.softmax(teacher.float() / temperature, dim=-1)
    log_probs = F.log_softmax(student.float() / temperature, dim=-1)
    return F.kl_div(log_probs, soft, reduction="batchmean") * temperature**2


# fx: logits=f32[8, 19206, 80], target=f32[8, 19206, 80]
def focal(logits, target, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p_t = p * target + (1 - p) * (1 - target)
    return ((alpha * target + (1 - alpha) * (1 - target)) * ce * (1 - p_t) ** gamma).sum()


# fx: logits=f32[4, 19, 256, 512], target=i64[4, 256, 512]
def dice(logits, target, smooth=1.0):
    probs = logits.softmax(dim=1)
    onehot = F.one_hot(target, logits.size(1)).permute(0, 3, 1, 2).to(probs.dtype)
    intersection = (probs * onehot).sum(dim=(2, 3))
    union = probs.sum(dim=(2, 3)) + onehot.sum(dim=(2, 3))
    return 1 - ((2 * intersection + smooth) / (union + smooth)).mean()


# fx: image=f32[1024, 512], text=f32[1024, 512], logit_scale=f32[]
def clip(image, text, logit_scale):
    image, text = F.normalize(image, dim=-1), F.normalize(text, dim=-1)
    logits = logit_scale.exp() * image @ text.t()
    labels = torch.arange(logits.size(0), device=logits.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


# fx: z1=f32[61, 128], z2=f32[61, 128]
def nt_xent(z1, z2, temperature=0.5):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    n = z1.size(0)
    sim = z @ z.t() / temperature
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), float("-inf"))
    target = (torch.arange(2 * n, device=z.device) + n) % (2 * n)
    return F.cross_entropy(sim, target)


# fx: anchor=f32[512, 257], positive=f32[512, 257], negative=f32[512, 257]
def triplet(anchor, positive, negative, margin=0.3):
    near = (anchor - positive).pow(2).sum(1).clamp(min=1e-12).sqrt()
    far = (anchor - negative).pow(2).sum(1).clamp(min=1e-12).sqrt()
    return F.relu(near - far + margin).mean()


# fx: pred=f32[16, 8400, 4], target=f32[16, 8400, 4], weight=f32[16, 8400]
def smooth_l1_boxes(pred, target, weight, beta=1.0 / 9):
    diff = (pred - target).abs()
    loss = torch.where(diff < beta, 0.5 * diff * diff / beta, diff - 0.5 * beta)
    return (loss.sum(-1) * weight).sum() / weight.size(0)


# fx: q=f32[256], target=f32[256]
def huber(q, target):
    return F.huber_loss(q, target.detach())


# fx: x=f32[8, 2048, 3], y=f32[8, 2048, 3]
def chamfer(x, y):
    distance = ((x.unsqueeze(2) - y.unsqueeze(1)) ** 2).sum(-1)
    return distance.min(2).values.mean() + distance.min(1).values.mean()


# fx: mean=f32[1009, 7], log_var=f32[1009, 7], target=f32[1009, 7]
def gaussian_nll(mean, log_var, target):
    return 0.5 * (log_var + (target - mean) ** 2 * torch.exp(-log_var) + math.log(2 * math.pi)).sum(-1).mean()


# fx: pred=f32[64, 98, 2], target=f32[64, 98, 2]
def wing(pred, target, w=10.0, epsilon=2.0):
    delta = (target - pred).abs()
    c = w - w * math.log(1 + w / epsilon)
    return torch.where(delta < w, w * torch.log(1 + delta / epsilon), delta - c).mean()


# fx: cost=f32[16, 1000, 1000], u=f32[16, 1000], v=f32[16, 1000]
def sinkhorn_step(cost, u, v, eps=0.05):
    log_k = -cost / eps
    u = -torch.logsumexp(log_k + v.unsqueeze(1), dim=2)
    v = -torch.logsumexp(log_k + u.unsqueeze(2), dim=1)
    return u, v


# fx: logits=bf16[4, 1024, 32000], ids=i64[4, 1024], old=f32[4, 1024], advantage=f32[4], mask=b8[4, 1024]
def clipped_policy(logits, ids, old, advantage, mask, clip_eps=0.2):
    log_probs = logits.float().log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    ratio = torch.exp(log_probs - old)
    gain = torch.min(ratio * advantage[:, None], ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantage[:, None])
    return -(gain * mask).sum() / mask.sum().clamp(min=1)


# fx: chosen=f32[48], rejected=f32[48], ref_chosen=f32[48], ref_rejected=f32[48]
def preference(chosen, rejected, ref_chosen, ref_rejected, beta=0.1):
    margin = (chosen - rejected) - (ref_chosen - ref_rejected)
    return -F.logsigmoid(beta * margin).mean(), (margin > 0).float().mean()


# fx: mu=f32[256, 128], logvar=f32[256, 128]
def variational_kl(mu, logvar):
    return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
