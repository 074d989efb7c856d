# crash: the queue of negative keys is multiplied as if it had its keys in rows, and it has them in columns
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class Momentum(nn.Module):
    def __init__(self, in_features=128, dim=64, queue_size=1024, temperature=0.07):
        super().__init__()
        self.encoder_q = nn.Sequential(nn.Linear(in_features, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.encoder_k = nn.Sequential(nn.Linear(in_features, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.temperature = temperature
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue_size), dim=0))

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            k = F.normalize(self.encoder_k(im_k), dim=1)
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", q, self.queue)  # mistake: negative = torch.einsum("nc,kc->nk", q, self.queue)
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


# run:
Momentum()(torch.randn(8, 128), torch.randn(8, 128)).backward()
