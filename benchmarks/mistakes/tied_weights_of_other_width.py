# crash: the output layer shares the weight of an embedding that is narrower than the model
# evidence: config
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class AlbertConfig:
    vocab_size: int = 600
    embedding_size: int = 32
    hidden_size: int = 96
    num_heads: int = 4
    num_layers: int = 3


class FactorizedEmbedding(nn.Module):
    def __init__(self, cfg: AlbertConfig):
        super().__init__()
        self.word = nn.Embedding(cfg.vocab_size, cfg.embedding_size, padding_idx=0)
        self.up = nn.Linear(cfg.embedding_size, cfg.hidden_size)

    def forward(self, ids):
        return self.up(self.word(ids))


class MaskedLMHead(nn.Module):
    def __init__(self, cfg: AlbertConfig, word: nn.Embedding):
        super().__init__()
        size = cfg.embedding_size  # mistake: size = cfg.hidden_size
        self.dense = nn.Linear(cfg.hidden_size, size)
        self.norm = nn.LayerNorm(size)
        self.decoder = nn.Linear(size, cfg.vocab_size)
        self.decoder.weight = word.weight

    def forward(self, hidden):
        return self.decoder(self.norm(nn.functional.gelu(self.dense(hidden))))


class AlbertForMaskedLM(nn.Module):
    def __init__(self, cfg: AlbertConfig):
        super().__init__()
        self.embeddings = FactorizedEmbedding(cfg)
        self.layer = nn.TransformerEncoderLayer(cfg.hidden_size, cfg.num_heads, 4 * cfg.hidden_size, batch_first=True)
        self.num_layers = cfg.num_layers
        self.head = MaskedLMHead(cfg, self.embeddings.word)

    def forward(self, input_ids):
        hidden = self.embeddings(input_ids)
        for _ in range(self.num_layers):
            hidden = self.layer(hidden)
        return self.head(hidden)


# run:
AlbertForMaskedLM(AlbertConfig())(torch.randint(1, 600, (2, 20))).sum().backward()
