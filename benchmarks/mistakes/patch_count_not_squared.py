# crash: there are as many position embeddings as patches in a row, not as in an image
# evidence: none
import torch
import torch.nn as nn


class VisionTransformer(nn.Module):
    def __init__(self, image_size=64, patch_size=8, dim=96, depth=2, heads=4, num_classes=10):
        super().__init__()
        num_patches = (image_size // patch_size) ** 2  # mistake: num_patches = image_size // patch_size
        self.patch_embed = nn.Conv2d(3, dim, kernel_size=patch_size, stride=patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, num_patches + 1, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, dim * 4, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, img):
        x = self.patch_embed(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.pos_embed
        return self.head(self.blocks(x)[:, 0])


# run:
VisionTransformer()(torch.randn(2, 3, 64, 64)).sum().backward()
