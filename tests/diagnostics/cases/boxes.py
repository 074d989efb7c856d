# targets: upcast, center_distance, sums, iou, decoded, chunked, masked_overlap
import torch
from torch import Tensor


def upcast(t: Tensor) -> Tensor:
    if t.dtype not in (torch.float32, torch.float64):
        t = t.float()
    return t


def center_distance(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    boxes1, boxes2 = upcast(boxes1), upcast(boxes2)
    x1, y1, x2, y2 = boxes1.unbind(-1)
    a1, b1, a2, b2 = boxes2.unbind(-1)
    return ((x1 + x2 - a1 - a2) / 2) ** 2 + ((y1 + y2 - b1 - b2) / 2) ** 2


def sums(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    boxes1 = boxes1.float()
    boxes2 = boxes2.float()
    x1, y1, x2, y2 = boxes1.unbind(dim=-1)
    a1, b1, a2, b2 = boxes2.unbind(dim=-1)
    return ((x1 - a1) ** 2 + (y1 - b1) ** 2 + (x2 - a2) ** 2 + (y2 - b2) ** 2).sum()


def iou(boxes1, boxes2):
    boxes1, boxes2 = upcast(boxes1), upcast(boxes2)
    low = torch.max(boxes1[:, :2], boxes2[:, :2])
    high = torch.min(boxes1[:, 2:], boxes2[:, 2:])
    wh = (high - low).clamp(min=0)
    inter = wh[:, 0] * wh[:, 1]
    area1, area2 = (boxes1[:, 2:] - boxes1[:, :2]).prod(1), (boxes2[:, 2:] - boxes2[:, :2]).prod(1)
    return 1 - inter / (area1 + area2 - inter)


def decoded(deltas, anchors):
    ax, ay, aw, ah = anchors.T
    dx, dy, dw, dh = deltas.T
    return torch.stack([ax + dx * aw, ay + dy * ah, aw * dw.exp(), ah * dh.exp()], 1)


def chunked(rotations: Tensor):
    w, x, y, z = torch.unbind(torch.nn.functional.normalize(rotations, dim=-1), -1)
    return torch.stack([w * x, y * z], -1)


def masked_overlap(boxes1: Tensor, boxes2: Tensor):
    boxes1 = upcast(boxes1)
    x1, y1, x2, y2 = boxes1.unbind(dim=-1)
    a1, b1, a2, b2 = boxes2.unbind(dim=-1)
    overlap = torch.zeros_like(x1)
    meets = (torch.min(x2, a2) > torch.max(x1, a1)) & (torch.min(y2, b2) > torch.max(y1, b1))
    overlap[meets] = (torch.min(x2, a2) - torch.max(x1, a1))[meets]
    return overlap.mean()
