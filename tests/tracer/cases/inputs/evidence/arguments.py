# Parameters that are no tensors, by what they are handed on as: functions have defaults, and PyTorch says types.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === An array as a default
import numpy as np

def f(x, weights=np.ones(8)):
    return torch.relu(x) * weights.sum()
#: f(x=f32[4, 64] · search; weights=array([1., 1., 1., 1., 1., 1., 1., 1.]) · default) -> f32[4, 64]
