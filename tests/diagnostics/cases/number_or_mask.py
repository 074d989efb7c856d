# targets: hidden_error, visible_loss, above, warmed, scheduled, trimmed
import torch
import torch.nn.functional as F


def hidden_error(guess, truth, keep):
    mask = keep > 0.5
    return F.mse_loss(guess[mask], truth[mask])


def visible_loss(pred, target, weight):
    return ((pred - target) ** 2 * (weight >= 0.1)).mean()


def above(a, b, level):
    return torch.where(0.5 > level, a, b).sum()


def warmed(x, progress):
    late = progress > 0.5
    if late:
        x = x * 2
    return torch.sin(x)


def scheduled(x, progress):
    return torch.sin(x) if progress > 0.5 else torch.cos(x)


def trimmed(guess, truth, margin):
    inner = slice(margin, -margin)
    return F.mse_loss(guess[inner], truth[inner])
