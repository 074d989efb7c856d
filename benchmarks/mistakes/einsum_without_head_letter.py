# crash: an einsum for one head is used on tensors that have a dimension for heads
# evidence: config
import torch
import torch.nn as nn

config = {
    "dim": 64,
    "heads": 4,
    "depth": 2,
    "num_latents": 16,
    "patch_dim": 48,
}


class LinearAttention(nn.Module):
    """Attention with a feature map, linear in the length."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in (q, k, v))
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        kv = torch.einsum("bnhd,bnhe->bhde", k, v)  # mistake: kv = torch.einsum("bnd,bne->bde", k, v)
        norm = 1 / torch.einsum("bnhd,bhd->bnh", q, k.sum(dim=1))
        out = torch.einsum("bnhd,bhde,bnh->bnhe", q, kv, norm)
        return self.out(out.flatten(2))


class LinearTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(cfg["patch_dim"], cfg["dim"])
        self.layers = nn.ModuleList([LinearAttention(cfg["dim"], cfg["heads"]) for _ in range(cfg["depth"])])
        self.norm = nn.LayerNorm(cfg["dim"])

    def forward(self, patches):
        x = self.inp(patches)
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return x


def make_model():
    return LinearTransformer(config)


# run:
make_model()(torch.randn(2, 21, 48)).sum().backward()
