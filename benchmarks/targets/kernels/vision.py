"""Images: blocks of networks, patches, pools, resampling, boxes and filters."""

import torch
import torch.nn.functional as F


# fx: x=f32[4, 96, 56, 56], dw=f32[96, 1, 7, 7], w1=f32[384, 96], b1=f32[384], w2=f32[96, 384], gamma=f32[96]
def convnext_block(x, dw, w1, b1, w2, gamma):
    h = F.conv2d(x, dw, padding=3, groups=x.size(1)).permute(0, 2, 3, 1)
    h = F.gelu(F.linear(F.layer_norm(h, (h.size(-1),), eps=1e-6), w1, b1))
    return x + (gamma * F.linear(h, w2)).permute(0, 3, 1, 2)


# fx: x=f16[64, 3, 224, 224]
def patchify(x, p=16):
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // p, p, w // p, p)
    return torch.einsum("nchpwq->nhwpqc", x).reshape(b, (h // p) * (w // p), p * p * c)


# fx: x=bf16[16, 4, 128, 128]
def patchify_latent(x):
    b, c, h, w = x.shape
    return x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h * w // 4, c * 4)


# fx: x=f32[8, 256, 96, 96], slope=f32[64]
def pixel_shuffle_prelu(x, slope):
    return F.prelu(F.pixel_shuffle(x, 2), slope)


# fx: x=f16[64, 64, 112, 112]
def max_pool(x):
    return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


# fx: x=f32[3, 19, 61, 67]
def average_pool(x):
    return F.avg_pool2d(x, kernel_size=3, stride=2, padding=1)


# fx: x=f16[128, 2048, 7, 7]
def global_average_pool(x):
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


# fx: image=f32[4, 32, 192, 192], grid=f32[4, 192, 192, 2]
def grid_sample(image, grid):
    return F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


# fx: image=f32[2, 64, 120, 160], flow=f32[2, 2, 120, 160]
def warp(image, flow):
    h, w = image.shape[2:]
    y, x = torch.meshgrid(torch.arange(h, device=image.device), torch.arange(w, device=image.device), indexing="ij")
    x = 2.0 * (x + flow[:, 0]) / (w - 1) - 1.0
    y = 2.0 * (y + flow[:, 1]) / (h - 1) - 1.0
    return F.grid_sample(image, torch.stack((x, y), dim=-1), align_corners=True)


# fx: x=f16[4, 128, 128, 128]
def upsample_bilinear(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


# fx: x=f32[8, 128, 32, 32], skip=f32[8, 64, 64, 64]
def upsample_and_join(x, skip):
    return torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), skip], dim=1)


# fx: x=f16[32, 56, 56, 96], shift=3
def window_partition(x, shift, size=7):
    b, h, w, c = x.shape
    x = torch.roll(x, shifts=(-shift, -shift), dims=(1, 2))
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, c)


# fx: boxes1=f32[1511, 4], boxes2=f32[777, 4]
def box_iou(boxes1, boxes2):
    area1 = (boxes1[:, 2] - boxes1[:, 0]) * (boxes1[:, 3] - boxes1[:, 1])
    area2 = (boxes2[:, 2] - boxes2[:, 0]) * (boxes2[:, 3] - boxes2[:, 1])
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (area1[:, None] + area2 - inter).abs().clamp(min=1e-6)


# fx: x=f32[16, 3, 255, 255], y=f32[16, 3, 255, 255]
def ssim(x, y):
    def mean(t):
        return F.avg_pool2d(t, 3, 1)

    mu_x, mu_y = mean(x), mean(y)
    sigma_x, sigma_y = mean(x * x) - mu_x**2, mean(y * y) - mu_y**2
    sigma_xy = mean(x * y) - mu_x * mu_y
    n = (2 * mu_x * mu_y + 0.01**2) * (2 * sigma_xy + 0.03**2)
    d = (mu_x**2 + mu_y**2 + 0.01**2) * (sigma_x + sigma_y + 0.03**2)
    return torch.clamp((1 - n / d) / 2, 0, 1).mean()


# fx: heatmaps=f32[16, 17, 64, 48]
def soft_argmax(heatmaps):
    b, k, h, w = heatmaps.shape
    p = heatmaps.flatten(2).softmax(-1).view(b, k, h, w)
    x = (p.sum(2) * torch.arange(w, device=p.device)).sum(-1)
    y = (p.sum(3) * torch.arange(h, device=p.device)).sum(-1)
    return torch.stack([x, y], dim=-1)


# fx: x=f16[32, 232, 29, 29]
def channel_shuffle(x, groups=2):
    b, c, h, w = x.shape
    return x.view(b, groups, c // groups, h, w).transpose(1, 2).reshape(b, c, h, w)
