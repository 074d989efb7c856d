# What a target reads of the program's entry: names under `if __name__ == "__main__":` and globals of `main()`.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === What cannot be had is said to be missing
def shifted(x):
#   ^^^^^^^ information[nothing]:
#  shifted runs no PyTorch operation before it fails: it needs a value that is unavailable: FileNotFoundError: [Errno
#  2] No such file or directory: '/nowhere/offsets'.
    return x + offset

if __name__ == "__main__":
    offset = torch.tensor([float(line) for line in open("/nowhere/offsets")])
#: shifted()
#:   information[nothing]: shifted runs no PyTorch operation before it fails: it needs a value that is unavailable:
#:     FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/offsets'

# === A function that assigns a global keeps its own text as a target
def remember(x):
    global last
    last = torch.relu(x)
    return last * factor

if __name__ == "__main__":
    factor = 3
    remember(torch.randn(2, 3))
#: remember(x=f32[2, 3] · call site `remember(torch.randn(2, 3))`) -> f32[2, 3]
