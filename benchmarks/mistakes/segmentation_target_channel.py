# crash: masks of shape (B, 1, H, W) are given to the cross entropy, "only batches of spatial targets supported (3D)"
# evidence: call
import torch
import torch.nn.functional as F
from torch import nn


class FCN(nn.Module):
    def __init__(self, num_classes: int = 8):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.classifier = nn.Conv2d(64, num_classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.classifier(self.backbone(x))
        return F.interpolate(logits, size=x.shape[-2:], mode="bilinear", align_corners=False)


def mean_iou(logits: torch.Tensor, masks: torch.Tensor, num_classes: int) -> float:
    pred = logits.argmax(dim=1)
    index = masks * num_classes + pred
    confusion = torch.bincount(index.flatten(), minlength=num_classes**2).view(num_classes, num_classes)
    inter = confusion.diag()
    union = confusion.sum(0) + confusion.sum(1) - inter
    return (inter / union.clamp(min=1)).mean().item()


if __name__ == "__main__":
    model = FCN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-5)
    for _ in range(2):
        images = torch.rand(4, 3, 64, 96)
        masks = torch.randint(0, 8, (4, 1, 64, 96))  # as read from a PNG with one channel
        logits = model(images)
        loss = F.cross_entropy(logits, masks.squeeze(1))  # mistake: loss = F.cross_entropy(logits, masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(mean_iou(logits, masks.squeeze(1), 8))
