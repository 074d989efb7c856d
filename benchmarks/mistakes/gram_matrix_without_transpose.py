# crash: the Gram matrix of style transfer is a product of the features with themselves, one of them transposed
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


def gram_matrix(feat):
    b, c, h, w = feat.size()
    features = feat.view(b, c, h * w)
    gram = torch.bmm(features, features.transpose(1, 2))  # mistake: gram = torch.bmm(features, features)
    return gram.div(c * h * w)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.register_buffer("target", gram_matrix(target_feature).detach())

    def forward(self, x):
        return F.mse_loss(gram_matrix(x), self.target)


class StyleTransferLoss(nn.Module):
    """Content and style loss over several layers of an encoder."""

    def __init__(self, content_weight=1.0, style_weight=1e5):
        super().__init__()
        self.content_weight = content_weight
        self.style_weight = style_weight

    def forward(self, feats, content_feats, style_feats):
        content = sum(F.mse_loss(a, b) for a, b in zip(feats, content_feats, strict=True))
        style = sum(StyleLoss(s)(f) for f, s in zip(feats, style_feats, strict=True))
        return self.content_weight * content + self.style_weight * style


# run:
shapes = [(1, 16, 32, 32), (1, 32, 16, 16)]
a, b, c = ([torch.randn(s, requires_grad=i == 0) for s in shapes] for i in range(3))
StyleTransferLoss()(a, b, c).backward()
