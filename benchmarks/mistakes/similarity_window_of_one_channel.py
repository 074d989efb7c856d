# crash: a convolution with a group for each channel gets a window for one channel
# evidence: none
import torch
import torch.nn.functional as F


def gaussian(size: int, sigma: float) -> torch.Tensor:
    x = torch.arange(size, dtype=torch.float32) - size // 2
    g = torch.exp(-(x**2) / (2 * sigma**2))
    return g / g.sum()


def structural_similarity(first, second, size=11):
    """The similarity of two batches of colour images in windows of a Gaussian."""
    b, channels, h, w = first.shape
    row = gaussian(size, 1.5)
    window = (row[:, None] * row[None, :]).to(first)[None, None]
    window = window.expand(channels, 1, size, size).contiguous()  # mistake: window = window.contiguous()
    mean1 = F.conv2d(first, window, padding=size // 2, groups=channels)
    mean2 = F.conv2d(second, window, padding=size // 2, groups=channels)
    var1 = F.conv2d(first * first, window, padding=size // 2, groups=channels) - mean1**2
    var2 = F.conv2d(second * second, window, padding=size // 2, groups=channels) - mean2**2
    return ((2 * mean1 * mean2 + 1e-4) / (mean1**2 + mean2**2 + 1e-4) * (var1 + var2)).mean()


# run:
structural_similarity(torch.rand(2, 3, 32, 32, requires_grad=True), torch.rand(2, 3, 32, 32)).backward()
