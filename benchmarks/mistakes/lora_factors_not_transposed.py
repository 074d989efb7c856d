# crash: the factors of a low-rank update have the shapes of weights, and are used without .T
# evidence: none
import math

import torch
import torch.nn as nn


class LoRALinear(nn.Module):
    """A frozen linear layer with a trainable low-rank update."""

    def __init__(self, in_features, out_features, r=8, lora_alpha=16, lora_dropout=0.05):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.linear.weight.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, in_features))
        self.lora_B = nn.Parameter(torch.zeros(out_features, r))
        self.scaling = lora_alpha / r
        self.dropout = nn.Dropout(lora_dropout)
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        base = self.linear(x)
        x = self.dropout(x)
        update = x @ self.lora_A.T @ self.lora_B.T  # mistake: update = x @ self.lora_A @ self.lora_B
        return base + update * self.scaling

    @torch.no_grad()
    def merge(self):
        self.linear.weight += self.scaling * self.lora_B @ self.lora_A


# run:
layer = LoRALinear(64, 48)
layer(torch.randn(2, 10, 64)).sum().backward()
layer.merge()
