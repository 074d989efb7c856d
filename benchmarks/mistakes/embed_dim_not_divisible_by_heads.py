# crash: the size of word vectors is no multiple of the number of heads, "embed_dim must be divisible by num_heads"
# evidence: call
import argparse

import torch
from torch import nn


class NewsRecommender(nn.Module):
    """Scores candidate articles by attention over what a user has read (word vectors of size 300)."""

    def __init__(self, emb_dim: int = 300, num_heads: int = 10, query_dim: int = 200):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(emb_dim, num_heads, batch_first=True)
        self.pool = nn.Sequential(nn.Linear(emb_dim, query_dim), nn.Tanh(), nn.Linear(query_dim, 1))

    def forward(self, history, candidates):
        h, _ = self.self_attn(history, history, history)
        weights = torch.softmax(self.pool(h), dim=1)
        user = (weights * h).sum(dim=1)
        return torch.einsum("bd,bcd->bc", user, candidates)


def parse_args():
    parser = argparse.ArgumentParser(description="Train a news recommender")
    parser.add_argument("--emb_dim", type=int, default=300)
    parser.add_argument(
        "--num_heads",
        type=int,
        default=12,  # mistake: default=16,
    )
    parser.add_argument("--steps", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse_args()
    model = NewsRecommender(args.emb_dim, args.num_heads)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _ in range(args.steps):
        history, candidates = torch.randn(8, 30, args.emb_dim), torch.randn(8, 5, args.emb_dim)
        clicked = torch.randint(0, 5, (8,))
        loss = nn.functional.cross_entropy(model(history, candidates), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
