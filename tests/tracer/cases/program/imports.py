# Only what the target needs runs.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Name is never main
FACTOR = 2 if __name__ == "__main__" else 5

def f(x: Tensor):
    return x * FACTOR
#: f [forward](x=f32[4, 64] · search) -> f32[4, 64]
#:   forward:
#:     x: f32[4, 64] = placeholder
#:     mul: f32[4, 64] = aten.mul.Tensor(x, 5)
#:     return (mul,)

# === An environment variable that nobody has set is what the file reads it as
import os

MODE, PARTS, WIDTH = os.environ["NET_MODE"], os.environ["NET_PARTS"], int(os.environ["NET_WIDTH_OF_HEAD"])

if "gate" in os.environ["NET_PARTS"] and "skip" in os.environ["NET_PARTS"]:
    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(WIDTH, 8)

        def forward(self, x: Tensor):
            assert os.environ["NET_MODE"] == "fast"
            return self.fc(x) * float(os.environ["NET_SCALE_OF_HEAD"])
#: Head(x=f32[8, 12, 4] · search) -> f32[8, 12, 8]
#:   note: the environment variable NET_MODE is not set; assumed: 'fast'
#:   note: the environment variable NET_PARTS is not set; assumed: 'gate skip'
#:   note: the environment variable NET_WIDTH_OF_HEAD is not set; assumed: '4'
#:   note: the environment variable NET_SCALE_OF_HEAD is not set; assumed: '4'
