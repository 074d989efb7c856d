# crash: the gradient of an image is used that was never asked for
# evidence: call
import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 5)
        self.fc = nn.Linear(8 * 24 * 24, 10)

    def forward(self, x):
        return F.log_softmax(self.fc(torch.relu(self.conv(x)).flatten(1)), dim=1)


def attack(model, images, labels, epsilon):
    """Change images in the direction in which the loss grows."""
    images = images.clone().requires_grad_(True)  # mistake: images = images.clone()
    loss = F.nll_loss(model(images), labels)
    model.zero_grad()
    loss.backward()
    changed = images + epsilon * images.grad.sign()
    return changed.clamp(0, 1)


if __name__ == "__main__":
    model = Classifier()
    adversarial = attack(model, torch.rand(16, 1, 28, 28), torch.randint(0, 10, (16,)), 0.1)
    print(model(adversarial).argmax(dim=1).shape)
