# crash: the mean of a comparison, "mean(): could not infer output dtype. Input dtype must be floating point. Got: Bool"
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F


class MLPMixerLite(nn.Module):
    def __init__(self, n_tokens=16, dim=48, n_classes=10):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, kernel_size=8, stride=8)
        self.token_mix = nn.Sequential(nn.Linear(n_tokens, 2 * n_tokens), nn.GELU(), nn.Linear(2 * n_tokens, n_tokens))
        self.channel_mix = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.head = nn.Linear(dim, n_classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = x + self.token_mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channel_mix(self.norm2(x))
        return self.head(x.mean(dim=1))


def training_step(model, batch):
    x, y = batch
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    acc = (logits.argmax(dim=-1) == y).float().mean()  # mistake: acc = (logits.argmax(dim=-1) == y).mean()
    return loss, acc


def main():
    model = MLPMixerLite()
    batch = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    loss, acc = training_step(model, batch)
    loss.backward()
    print(loss.item(), acc.item())


if __name__ == "__main__":
    main()
