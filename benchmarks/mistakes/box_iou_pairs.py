# crash: the corners of N boxes and M boxes are compared without an axis for the pairs
# evidence: none
import torch
from torch import Tensor


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """Intersection over union of all pairs: (N, 4) and (M, 4), as x1 y1 x2 y2, to (N, M)."""
    area1 = box_area(boxes1)
    area2 = box_area(boxes2)
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])  # mistake: lt = torch.max(boxes1[:, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])  # mistake: rb = torch.min(boxes1[:, 2:], boxes2[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    union = area1[:, None] + area2 - inter
    return inter / union, union


def match_anchors(anchors: Tensor, targets: Tensor, high: float = 0.5, low: float = 0.4) -> Tensor:
    """For each anchor the index of its target; -1 is background, -2 is ignored."""
    iou, _ = box_iou(targets, anchors)
    best, index = iou.max(dim=0)
    index = torch.where(best < low, torch.full_like(index, -1), index)
    return torch.where((best >= low) & (best < high), torch.full_like(index, -2), index)


# run:
def boxes(n):
    corner = torch.rand(n, 2)
    return torch.cat([corner, corner + torch.rand(n, 2)], dim=1)


assert match_anchors(boxes(50), boxes(7)).shape == (50,)
