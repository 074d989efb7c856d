# crash: a parameter is set before the constructor of nn.Module ran, "cannot assign parameters before Module.__init__()"
# evidence: call
import torch
from torch import nn
from torch.nn import functional as F


class ArcFace(nn.Module):
    """Additive angular margin on the cosines between embeddings and class centers."""

    def __init__(self, dim, n_classes, scale=30.0, margin=0.5):
        super().__init__()  # mistake: pass
        self.weight = nn.Parameter(torch.empty(n_classes, dim))
        self.scale = scale
        self.margin = margin
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, labels):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        angle = torch.acos(cosine.clamp(-1 + 1e-7, 1 - 1e-7))
        one_hot = F.one_hot(labels, cosine.size(1)).to(cosine.dtype)
        logits = torch.cos(angle + self.margin * one_hot) * self.scale
        return F.cross_entropy(logits, labels)


class FaceNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 5, stride=4), nn.PReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.embed = nn.Linear(32 * 16, dim)

    def forward(self, x):
        return self.embed(self.body(x))


def main():
    net, head = FaceNet(), ArcFace(dim=64, n_classes=100)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    images, labels = torch.randn(8, 3, 112, 112), torch.randint(0, 100, (8,))
    loss = head(net(images), labels)
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    main()
