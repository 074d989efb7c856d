# crash: a decoder layer is called without the encoder's output, "missing 1 required positional argument"
# evidence: call
import torch
from torch import nn


class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_head, d_ff):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_head, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, n_head, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.n1, self.n2, self.n3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, memory, tgt_mask):
        h = self.n1(x)
        x = x + self.self_attn(h, h, h, attn_mask=tgt_mask, need_weights=False)[0]
        h = self.n2(x)
        x = x + self.cross_attn(h, memory, memory, need_weights=False)[0]
        return x + self.ff(self.n3(x))


class Captioner(nn.Module):
    def __init__(self, vocab=500, d_model=64, n_head=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.project = nn.Linear(256, d_model)
        self.layers = nn.ModuleList([DecoderLayer(d_model, n_head, 4 * d_model) for _ in range(layers)])
        self.out = nn.Linear(d_model, vocab)

    def forward(self, image_features, tokens):
        memory = self.project(image_features)
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.size(1))
        for layer in self.layers:
            x = layer(x, memory, mask)  # mistake: x = layer(x, mask)
        return self.out(x)


if __name__ == "__main__":
    model = Captioner()
    features = torch.randn(2, 49, 256)
    captions = torch.randint(0, 500, (2, 12))
    logits = model(features, captions[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), captions[:, 1:].flatten())
    loss.backward()
