# crash: the gates of a convolutional LSTM do not count the channels of its state
# evidence: none
import torch
import torch.nn as nn


class ConvLSTMCell(nn.Module):
    def __init__(self, input_dim, hidden_dim, kernel_size=3):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.conv = nn.Conv2d(input_dim + hidden_dim, 4 * hidden_dim, kernel_size, padding=kernel_size // 2)  # mistake: self.conv = nn.Conv2d(input_dim, 4 * hidden_dim, kernel_size, padding=kernel_size // 2)

    def forward(self, x, state=None):
        if state is None:
            zeros = x.new_zeros(x.size(0), self.hidden_dim, x.size(2), x.size(3))
            state = (zeros, zeros)
        h, c = state
        i, f, o, g = self.conv(torch.cat([x, h], dim=1)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)


# run:
ConvLSTMCell(3, 16)(torch.randn(2, 3, 20, 20))[0].sum().backward()
