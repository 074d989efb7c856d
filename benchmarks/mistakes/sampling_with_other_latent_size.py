# crash: images are sampled after training with another latent size than that of the decoder
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self, n_in=784, latent=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, 128), nn.ReLU(), nn.Linear(128, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 128), nn.ReLU(), nn.Linear(128, n_in))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decoder(z), mean, log_var


def main(epochs=1):
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(TensorDataset(torch.rand(64, 784)), batch_size=16)
    for epoch in range(epochs):
        for (x,) in loader:
            out, mean, log_var = model(x)
            kl = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(1).mean()
            loss = F.mse_loss(out, x, reduction="sum") / len(x) + kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            noise = torch.randn(8, 16)  # mistake: noise = torch.randn(8, 32)
            samples = model.decoder(noise).view(-1, 28, 28)
        print(epoch, samples.shape)


main()
