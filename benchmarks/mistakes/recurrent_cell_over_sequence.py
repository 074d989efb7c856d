# crash: a recurrent cell is given whole sequences, of which it takes one step
# evidence: none
import torch
import torch.nn as nn


class StepwiseEncoder(nn.Module):
    def __init__(self, input_size=16, hidden_size=32, num_classes=4):
        super().__init__()
        self.hidden_size = hidden_size
        self.cell = nn.LSTMCell(input_size, hidden_size)
        self.head = nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        batch, steps, _ = x.shape
        h = x.new_zeros(batch, self.hidden_size)
        c = x.new_zeros(batch, self.hidden_size)
        logits = []
        for step in range(steps):
            h, c = self.cell(x[:, step], (h, c))  # mistake: h, c = self.cell(x, (h, c))
            logits.append(self.head(h))
        return torch.stack(logits, dim=1)


# run:
StepwiseEncoder()(torch.randn(8, 5, 16)).sum().backward()
