# crash: the encoder gives mean and variance, what it gives goes into the decoder as it is
# evidence: none
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, features, hidden, latent):
        super().__init__()
        self.hidden = nn.Linear(features, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)

    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        return self.mean(h), self.log_variance(h)


class VAE(nn.Module):
    def __init__(self, features=40, hidden=32, latent=8):
        super().__init__()
        self.encoder = Encoder(features, hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, features))

    def forward(self, x):
        mean, log_variance = self.encoder(x)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decoder(z), mean, log_variance

    def reconstruct(self, x):
        z, _ = self.encoder(x)  # mistake: z = self.encoder(x)
        return self.decoder(z)


# run:
VAE().reconstruct(torch.randn(4, 40)).sum().backward()
