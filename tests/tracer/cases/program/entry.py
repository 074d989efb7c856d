# What a target reads of the program's entry: names under `if __name__ == "__main__":` and globals of `main()`.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === What cannot run is as if it did not stand there
def shifted(x):
    return x + offset
    #          ^^^^^^ error[error]: NameError: name 'offset' is not defined.

if __name__ == "__main__":
    offset = torch.tensor([float(line) for line in open("/nowhere/offsets")])
#: shifted(x=f32[4, 64] · search)

# === A function that assigns a global keeps its own text as a target
def remember(x):
    global last
    last = torch.relu(x)
    return last * factor

if __name__ == "__main__":
    factor = 3
    remember(torch.randn(2, 3))
#: remember(x=f32[2, 3] · call site `remember(torch.randn(2, 3))`) -> f32[2, 3]
