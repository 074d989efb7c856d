# Values of what depends on no input: whoever asks for one has it; what is random, trained or given has none.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === An index out of bounds is told
import numpy as np

# fx: x=f32[4, 8]
def f(x):
    table = torch.arange(8)
    return x * table[torch.tensor([8])]
#: f

# === A mask of a transformer that asks whether it is causal
import numpy as np

class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 1)

    def forward(self, x):  # fx: x=f32[8, 4, 16]
        return self.encoder(x, mask=torch.log(torch.ones(len(x), len(x)).tril()))
#: Language

# === Checks that print do not end a search
import numpy as np

def loudest(wave):
    if torch.max(wave) > 1.0:
        print("clipped", torch.max(wave))
    return (wave * torch.hann_window(48)).amax()
#: loudest

# === Integers are drawn the same each time
import numpy as np

text = torch.arange(1000)

def windows(count=4, size=8):
    starts = torch.randint(len(text) - size, (count,))
    return torch.stack([text[i : i + size] for i in starts]).to(torch.float32)
#: windows [inference]
