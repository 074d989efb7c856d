# crash: the kernel of an edge filter is a matrix, a convolution wants output and input channels before it
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class EdgeLoss(nn.Module):
    """Compares the edges of two grey images (depth estimation)."""

    def __init__(self):
        super().__init__()
        kernel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
        kernel = kernel.view(1, 1, 3, 3)  # mistake: kernel = kernel / 8
        self.register_buffer("kernel", kernel)

    def edges(self, image):
        x = F.conv2d(image, self.kernel, padding=1)
        y = F.conv2d(image, self.kernel.transpose(-1, -2), padding=1)
        return torch.sqrt(x**2 + y**2 + 1e-6)

    def forward(self, output, target):
        return F.l1_loss(self.edges(output), self.edges(target))


# run:
EdgeLoss()(torch.rand(2, 1, 16, 16, requires_grad=True), torch.rand(2, 1, 16, 16)).backward()
