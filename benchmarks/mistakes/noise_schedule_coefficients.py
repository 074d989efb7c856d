# crash: the coefficients of the noise are a vector over the batch and are multiplied to images
# evidence: call
import torch
import torch.nn.functional as F
from torch import nn


class GaussianDiffusion(nn.Module):
    def __init__(self, model, timesteps=200, beta_start=1e-4, beta_end=0.02):
        super().__init__()
        self.model = model
        self.timesteps = timesteps
        betas = torch.linspace(beta_start, beta_end, timesteps)
        alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
        self.register_buffer("sqrt_ac", alphas_cumprod.sqrt())
        self.register_buffer("sqrt_one_minus_ac", (1.0 - alphas_cumprod).sqrt())

    def q_sample(self, x0, t, noise):
        a = self.sqrt_ac[t].view(-1, 1, 1, 1)  # mistake: a = self.sqrt_ac[t]
        b = self.sqrt_one_minus_ac[t].view(-1, 1, 1, 1)  # mistake: b = self.sqrt_one_minus_ac[t]
        return a * x0 + b * noise

    def forward(self, x0):
        t = torch.randint(0, self.timesteps, (x0.size(0),), device=x0.device)
        noise = torch.randn_like(x0)
        return F.mse_loss(self.model(self.q_sample(x0, t, noise), t), noise)


class TinyDenoiser(nn.Module):
    def __init__(self, channels=1, width=32, timesteps=200):
        super().__init__()
        self.time = nn.Embedding(timesteps, width)
        self.inp = nn.Conv2d(channels, width, 3, padding=1)
        self.out = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x, t):
        return self.out(F.silu(self.inp(x) + self.time(t)[:, :, None, None]))


if __name__ == "__main__":
    diffusion = GaussianDiffusion(TinyDenoiser())
    optimizer = torch.optim.AdamW(diffusion.parameters(), lr=2e-4)
    for step in range(2):
        loss = diffusion(torch.rand(16, 1, 28, 28) * 2 - 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
