# targets: shifted, named, of_tensors, packed
import math

import numpy as np
import torch


def shifted(x):  # fx: x=f32[8]
    return x + torch.as_tensor(0.5)


def named(x):  # fx: x=f32[8]
    return x * torch.as_tensor(data=2, dtype=x.dtype)


def of_tensors(x):  # fx: x=f32[8]
    return torch.as_tensor(x.sum()) + torch.as_tensor(np.float32(math.pi)) + torch.as_tensor([[1, 2], [3, 4]]).sum()


def packed(x, lengths):  # fx: x=f32[4, 9, 8], lengths=i64[4]
    sequence = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return torch.as_tensor(True) & (sequence.data > 0)
