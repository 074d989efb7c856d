# crash: .shape is called like .size(), "'torch.Size' object is not callable"
# evidence: call
import torch
from torch import nn


class PerceiverEncoder(nn.Module):
    """A few latents that look at a long array of inputs."""

    def __init__(self, input_dim=40, num_latents=16, dim=64, heads=4, depth=2):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(num_latents, dim) * 0.02)
        self.inp = nn.Linear(input_dim, dim)
        self.cross = nn.MultiheadAttention(dim, heads, batch_first=True)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, batch_first=True, norm_first=True)
        self.process = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, inputs):
        batch = inputs.shape[0]  # mistake: batch = inputs.shape(0)
        memory = self.inp(inputs)
        latents = self.latents.expand(batch, -1, -1)
        latents = latents + self.cross(latents, memory, memory, need_weights=False)[0]
        return self.process(latents)


class PerceiverClassifier(nn.Module):
    def __init__(self, num_classes=7):
        super().__init__()
        self.encoder = PerceiverEncoder()
        self.head = nn.Linear(64, num_classes)

    def forward(self, inputs):
        return self.head(self.encoder(inputs).mean(dim=1))


def test_perceiver():
    model = PerceiverClassifier()
    for length in (50, 300):
        assert model(torch.randn(2, length, 40)).shape == (2, 7)


# run:
test_perceiver()
