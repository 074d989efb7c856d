# Annotations with dimensions are held against what ran: results, and variables of the function.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Tuples optionals and texts
from typing import Annotated, Optional

def f(x: "Annotated[Tensor, 'b c']") -> "tuple[Annotated[Tensor, 'b'], Optional[Annotated[Tensor, 'b']]]":
    return x.sum(1), x.sum(0)
    #      ^^^^^^^^^^^^^^^^^^ error[dimension]:
    #  the result[1] is f32[64], but its annotation is "b": b is 4 in x, but 64 here.
    #  line 9: annotated as "tuple[Annotated[Tensor, 'b'], Optional[Annotated[Tensor, 'b']]]"
#: f(x=f32[4, 64] · annotation) -> f32[4], f32[64]

# === A guessed number of the model is no mistake
from typing import Annotated, Optional

class Layer(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.project = nn.Linear(dim, out)

    def forward(self, x: Annotated[Tensor, "b t d"]) -> Annotated[Tensor, "b t d"]:
        return self.project(x)
#: Layer(init.dim=64, init.out=2 · search; x=f32[4, 8, 64] · annotation) -> f32[4, 8, 2]
