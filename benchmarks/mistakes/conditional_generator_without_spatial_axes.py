# crash: noise and the embedding of a label go into a transposed convolution as rows, not as images of one pixel
# evidence: none
import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, latent_dim=100, num_classes=10, embed_dim=50, features=32, channels=3):
        super().__init__()
        self.label_embedding = nn.Embedding(num_classes, embed_dim)
        self.main = nn.Sequential(
            nn.ConvTranspose2d(latent_dim + embed_dim, features * 4, 4, 1, 0, bias=False),
            nn.BatchNorm2d(features * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(features * 4, features * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(features * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(features * 2, channels, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise, labels):
        z = torch.cat([noise, self.label_embedding(labels)], dim=1)
        return self.main(z.unsqueeze(-1).unsqueeze(-1))  # mistake: return self.main(z)


# run:
Generator()(torch.randn(8, 100), torch.randint(0, 10, (8,))).sum().backward()
