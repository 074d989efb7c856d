# crash: a temporal convolution pads both sides for causality and forgets to cut off the end before the residual
# evidence: none
import torch
import torch.nn as nn


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size=3, dilation=2, dropout=0.2):
        super().__init__()
        padding = (kernel_size - 1) * dilation
        self.conv1 = nn.Conv1d(n_inputs, n_outputs, kernel_size, padding=padding, dilation=dilation)
        self.chomp1 = Chomp1d(padding)
        self.conv2 = nn.Conv1d(n_outputs, n_outputs, kernel_size, padding=padding, dilation=dilation)
        self.chomp2 = Chomp1d(padding)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None

    def forward(self, x):
        out = self.dropout(self.relu(self.chomp1(self.conv1(x))))
        out = self.chomp2(self.conv2(out))  # mistake: out = self.conv2(out)
        out = self.dropout(self.relu(out))
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(out + res)


# run:
TemporalBlock(10, 25)(torch.randn(4, 10, 100)).sum().backward()
