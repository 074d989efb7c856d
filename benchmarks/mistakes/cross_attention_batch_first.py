# crash: nn.MultiheadAttention takes the length first unless it is told otherwise, memory and queries differ in length
# evidence: call
import torch
from torch import nn


class DetrDecoderLayer(nn.Module):
    def __init__(self, d_model=128, nhead=8, dim_feedforward=256, dropout=0.1):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(
            d_model,
            nhead,
            dropout,
            batch_first=True,  # mistake: batch_first=False,
        )
        self.ffn = nn.Sequential(
            nn.Linear(d_model, dim_feedforward), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dim_feedforward, d_model)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, tgt, memory, query_pos):
        q = tgt + query_pos
        tgt = self.norms[0](tgt + self.self_attn(q, q, tgt)[0])
        tgt = self.norms[1](tgt + self.cross_attn(tgt + query_pos, memory, memory)[0])
        return self.norms[2](tgt + self.ffn(tgt))


class DetrDecoder(nn.Module):
    def __init__(self, num_queries=50, d_model=128, num_layers=2, num_classes=20):
        super().__init__()
        self.query_embed = nn.Embedding(num_queries, d_model)
        self.layers = nn.ModuleList(DetrDecoderLayer(d_model) for _ in range(num_layers))
        self.class_embed = nn.Linear(d_model, num_classes + 1)
        self.bbox_embed = nn.Linear(d_model, 4)

    def forward(self, memory):
        pos = self.query_embed.weight.unsqueeze(0).expand(memory.size(0), -1, -1)
        tgt = torch.zeros_like(pos)
        for layer in self.layers:
            tgt = layer(tgt, memory, pos)
        return self.class_embed(tgt), self.bbox_embed(tgt).sigmoid()


def test_decoder_shapes():
    decoder = DetrDecoder()
    logits, boxes = decoder(torch.randn(2, 196, 128))
    assert logits.shape == (2, 50, 21)
    assert boxes.shape == (2, 50, 4)


# run:
test_decoder_shapes()
