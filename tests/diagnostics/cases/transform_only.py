# targets: potential, force, compiled_force, jacobians, annotated
import torch
from torch.func import grad, jacrev, vmap


def potential(x):
    return (x**2).sum()


def force(x):
    return grad(potential)(x)


@torch.compile(fullgraph=True)
def compiled_force(x):
    return torch.func.grad(potential)(x)


def jacobians(batch):
    return vmap(jacrev(potential))(batch)


def annotated(x: torch.Tensor) -> torch.Tensor:
    return grad(potential)(x)


if __name__ == "__main__":
    x = torch.randn(5)
    print(force(x), compiled_force(x), jacobians(torch.randn(3, 5)), annotated(x))
