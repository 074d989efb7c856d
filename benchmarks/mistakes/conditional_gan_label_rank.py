# crash: the embedding of the class is concatenated to a latent image without the two spatial dimensions
# evidence: call
import torch
import torch.nn as nn

latent_size = 64
n_classes = 10
embed_size = 16


class ConditionalGenerator(nn.Module):
    def __init__(self, ngf=32):
        super().__init__()
        self.label_embed = nn.Embedding(n_classes, embed_size)
        self.main = nn.Sequential(
            nn.ConvTranspose2d(latent_size + embed_size, ngf * 4, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise, labels):
        c = self.label_embed(labels)
        c = c.unsqueeze(2).unsqueeze(3)  # mistake: c = c.unsqueeze(2)
        return self.main(torch.cat([noise, c], dim=1))


def sample_grid(netG, n_per_class=2):
    labels = torch.arange(n_classes).repeat_interleave(n_per_class)
    noise = torch.randn(labels.size(0), latent_size, 1, 1)
    with torch.no_grad():
        return netG(noise, labels)


def main():
    netG = ConditionalGenerator()
    images = sample_grid(netG)
    print("samples", tuple(images.shape))


if __name__ == "__main__":
    main()
