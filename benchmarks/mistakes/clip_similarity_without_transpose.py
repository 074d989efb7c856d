# crash: the similarities of images and texts need the text embeddings transposed
# evidence: call
import torch
import torch.nn.functional as F
from torch import nn


class ImageEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 7, stride=4),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, dim),
        )

    def forward(self, pixels):
        return self.net(pixels)


class TextEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, dim, mode="mean")

    def forward(self, ids):
        return self.bag(ids)


class CLIP(nn.Module):
    def __init__(self, vocab=1000, dim=128):
        super().__init__()
        self.visual = ImageEncoder(dim)
        self.text = TextEncoder(vocab, dim)
        self.logit_scale = nn.Parameter(torch.tensor(2.6592))

    def forward(self, pixels, ids):
        image = F.normalize(self.visual(pixels), dim=-1)
        text = F.normalize(self.text(ids), dim=-1)
        logits = self.logit_scale.exp() * image @ text.t()  # mistake: logits = self.logit_scale.exp() * image @ text
        return logits, logits.t()


def clip_loss(per_image, per_text):
    labels = torch.arange(per_image.size(0), device=per_image.device)
    return (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2


if __name__ == "__main__":
    model = CLIP()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2)
    for step in range(2):
        pixels, ids = torch.randn(8, 3, 64, 64), torch.randint(0, 1000, (8, 16))
        loss = clip_loss(*model(pixels, ids))
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())
