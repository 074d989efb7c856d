# Values of what depends on no input: whoever asks for one has it; what is random, trained or given has none.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A mask of a transformer that asks whether it is causal
import numpy as np

class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 1)

    def forward(self, x):  # fx: x=f32[8, 4, 16]
        return self.encoder(x, mask=torch.log(torch.ones(len(x), len(x)).tril()))
#: Language() -> f32[8, 4, 16]

# === Checks that print do not end a search
import numpy as np

def loudest(wave):
    if torch.max(wave) > 1.0:
    #  ^^^^^^^^^^^^^^^^^^^^^ information[dimension]: the trace assumes that the check `torch.max(wave) > 1.0` passes.
        print("clipped", torch.max(wave))
    return (wave * torch.hann_window(48)).amax()
#: loudest(wave=f32[4, 48] · search: sizes that fit) -> f32[]
