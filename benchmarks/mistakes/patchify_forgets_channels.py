# crash: the patches of a masked autoencoder are reshaped to p * p numbers, the three channels are forgotten
# evidence: none
import torch
from torch import nn


class PixelLoss(nn.Module):
    """Loss of a masked autoencoder: mean square error on the pixels of masked patches."""

    def __init__(self, patch_size: int = 16, norm_pix: bool = True):
        super().__init__()
        self.patch_size = patch_size
        self.norm_pix = norm_pix

    def patchify(self, imgs):
        # imgs: (N, 3, H, W) -> (N, L, patch_size ** 2 * 3)
        p = self.patch_size
        h, w = imgs.shape[2] // p, imgs.shape[3] // p
        x = imgs.reshape(imgs.shape[0], 3, h, p, w, p)
        x = torch.einsum("nchpwq->nhwpqc", x)
        return x.reshape(imgs.shape[0], h * w, p * p * 3)  # mistake: return x.reshape(imgs.shape[0], h * w, p * p)

    def forward(self, imgs, pred, mask):
        # pred: (N, L, patch_size ** 2 * 3), mask: (N, L), 1 where a patch was removed
        target = self.patchify(imgs)
        if self.norm_pix:
            mean = target.mean(dim=-1, keepdim=True)
            var = target.var(dim=-1, keepdim=True)
            target = (target - mean) / (var + 1e-6).sqrt()
        loss = ((pred - target) ** 2).mean(dim=-1)
        return (loss * mask).sum() / mask.sum()


# run:
pred = torch.randn(2, 16, 768, requires_grad=True)
PixelLoss()(torch.randn(2, 3, 64, 64), pred, torch.ones(2, 16)).backward()
