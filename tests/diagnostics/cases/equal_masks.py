# targets: masked_loss, once_loss, inverted, selected, where, changed, different, different_wrong
import torch
import torch.nn as nn
import torch.nn.functional as F


def masked_loss(net, batch):
    mask = (torch.rand(batch.shape) > 0.25).float()
    out = net(batch)
    return nn.functional.mse_loss(out[mask == 0], batch[mask == 0])


def once_loss(net, batch):
    hidden = torch.rand(batch.shape) > 0.25
    out = net(batch)
    return nn.functional.mse_loss(out[hidden], batch[hidden])


def inverted(out: torch.Tensor, batch: torch.Tensor):
    mask = out > 0.5
    return (out[~mask] - batch[~mask]).abs().mean()


def selected(out: torch.Tensor, batch: torch.Tensor, weight: torch.Tensor):
    keep = (weight > 0.5) & (batch < 3)
    again = (weight > 0.5) & (batch < 3)
    return F.l1_loss(out.masked_select(keep), batch[again]) + F.l1_loss(out[keep.nonzero(as_tuple=True)], batch[again])


def where(out: torch.Tensor, batch: torch.Tensor, labels: torch.Tensor):
    rows, columns = torch.where(labels > 0)
    r, c = (labels > 0).nonzero(as_tuple=True)
    return F.mse_loss(out[rows, columns], batch[r, c])


def changed(out: torch.Tensor, batch: torch.Tensor):
    mask = out > 0.5
    first = out[mask]
    mask = mask.clone()
    mask[0] = True
    second = batch[mask]
    return first.sum() * second.mean()


def different(out: torch.Tensor, batch: torch.Tensor):
    return out[out > 0.5].sum() * batch[batch > 0.5].mean()


def different_wrong(out: torch.Tensor, batch: torch.Tensor):
    return out[out > 0.5] + batch[batch > 0.5]


if __name__ == "__main__":
    net = nn.Linear(7, 7)
    x = torch.randn(32, 7)
    print(masked_loss(net, torch.randn(32, 7)))
    print(once_loss(net, torch.randn(32, 7)))
    print(inverted(x, x), selected(x, x, x), where(x, x, x), changed(x, x), different(x, x))
