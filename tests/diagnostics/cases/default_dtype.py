# targets: project, Projection, Split, Feed, Model
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn.functional as F
from torch import nn

block = 128


@dataclass
class Settings:
    width: int = 256
    inner: int = 512
    vocabulary: int = 1000


def project(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
    if weight.element_size() > 1:
        return F.linear(x, weight, bias)
    raise NotImplementedError


class Projection(nn.Module):
    dtype = torch.bfloat16

    def __init__(self, ins: int, outs: int, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outs, ins, dtype=dtype or Projection.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return project(x, self.weight)


class Split(Projection):
    def __init__(self, ins: int, outs: int, dtype=None):
        super().__init__(ins, outs, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return project(x, self.weight)


class Feed(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.up = Split(width, inner)
        self.gate = Split(width, inner)
        self.down = Split(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Model(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.embed = nn.Embedding(settings.vocabulary, settings.width)
        self.feed = Feed(settings.width, settings.inner)
        self.head = Split(settings.width, settings.vocabulary, dtype=torch.get_default_dtype())

    @torch.inference_mode()
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embed(tokens)
        h = h + self.feed(h)
        return self.head(h[:, -1])


if __name__ == "__main__":
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cuda")
    settings = Settings()
    tokens = torch.randint(0, settings.vocabulary, (2, 128))
    model = Model(settings)
    print(model(tokens).size())
