# crash: the cross term of the distances to a codebook needs the codebook transposed
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizer(nn.Module):
    """The codebook of a VQ-VAE, with the straight-through estimator."""

    def __init__(self, num_embeddings, embedding_dim, commitment_cost=0.25):
        super().__init__()
        self.embedding_dim = embedding_dim
        self.commitment_cost = commitment_cost
        self.embedding = nn.Embedding(num_embeddings, embedding_dim)
        nn.init.uniform_(self.embedding.weight, -1 / num_embeddings, 1 / num_embeddings)

    def forward(self, z):
        # BCHW -> BHWC
        z = z.permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, self.embedding_dim)
        codes = self.embedding.weight
        cross = flat @ codes.t()  # mistake: cross = flat @ codes
        distances = flat.pow(2).sum(1, keepdim=True) + codes.pow(2).sum(1) - 2 * cross
        indices = distances.argmin(dim=1)
        quantized = self.embedding(indices).view_as(z)
        loss = F.mse_loss(quantized, z.detach()) + self.commitment_cost * F.mse_loss(quantized.detach(), z)
        quantized = z + (quantized - z).detach()
        return quantized.permute(0, 3, 1, 2), loss, indices.view(z.shape[:-1])


# run:
z = torch.randn(2, 64, 8, 8, requires_grad=True)
out, loss, _ = VectorQuantizer(512, 64)(z)
(out.sum() + loss).backward()
