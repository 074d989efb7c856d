# crash: the distances of all pairs of points need an axis in both clouds, one has none
# evidence: none
import torch


def nearest(distances: torch.Tensor, dim: int) -> torch.Tensor:
    return distances.min(dim=dim).values.mean(dim=1)


def chamfer_distance(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The mean distance of points to the nearest of the other cloud.

    first: (batch, n, 3)
    second: (batch, m, 3)
    """
    one = first.unsqueeze(2)
    other = second.unsqueeze(1)  # mistake: other = second
    distances = (one - other).pow(2).sum(dim=-1)
    there = nearest(distances, 2)
    back = nearest(distances, 1)
    return (there + back).mean()


# run:
chamfer_distance(torch.randn(4, 50, 3, requires_grad=True), torch.randn(4, 60, 3)).backward()
