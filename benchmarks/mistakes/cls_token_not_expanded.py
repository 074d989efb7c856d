# crash: the class token has a batch of one and is concatenated to a batch of patches without .expand
# evidence: none
import torch
import torch.nn as nn


class PatchEmbed(nn.Module):
    def __init__(self, img_size=224, patch_size=16, in_chans=3, embed_dim=192):
        super().__init__()
        self.num_patches = (img_size // patch_size) ** 2
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class ViTEmbeddings(nn.Module):
    """Patches, class token and positions, ready for the encoder."""

    def __init__(self, img_size=224, patch_size=16, in_chans=3, embed_dim=192, drop_rate=0.0):
        super().__init__()
        self.patch_embed = PatchEmbed(img_size, patch_size, in_chans, embed_dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, self.patch_embed.num_patches + 1, embed_dim))
        self.pos_drop = nn.Dropout(p=drop_rate)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x):
        x = self.patch_embed(x)
        cls = self.cls_token.expand(x.shape[0], -1, -1)  # mistake: cls = self.cls_token
        x = torch.cat((cls, x), dim=1)
        return self.pos_drop(x + self.pos_embed)


# run:
ViTEmbeddings()(torch.randn(4, 3, 224, 224)).sum().backward()
