# crash: the state of a bidirectional encoder is given to a decoder with one direction, "Expected hidden size"
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Seq2SeqConfig:
    src_vocab: int = 300
    tgt_vocab: int = 400
    emb: int = 32
    hidden: int = 48


class Encoder(nn.Module):
    def __init__(self, cfg: Seq2SeqConfig):
        super().__init__()
        self.embed = nn.Embedding(cfg.src_vocab, cfg.emb)
        self.rnn = nn.GRU(cfg.emb, cfg.hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * cfg.hidden, cfg.hidden)

    def forward(self, src):
        outputs, state = self.rnn(self.embed(src))
        both = torch.cat([state[0], state[1]], dim=-1)
        state = torch.tanh(self.bridge(both)).unsqueeze(0)  # mistake: pass
        return outputs, state


class Decoder(nn.Module):
    def __init__(self, cfg: Seq2SeqConfig):
        super().__init__()
        self.embed = nn.Embedding(cfg.tgt_vocab, cfg.emb)
        self.rnn = nn.GRU(cfg.emb, cfg.hidden, batch_first=True)
        self.query = nn.Linear(cfg.hidden, 2 * cfg.hidden)
        self.out = nn.Linear(3 * cfg.hidden, cfg.tgt_vocab)

    def forward(self, tgt, memory, state):
        h, _ = self.rnn(self.embed(tgt), state)
        weights = torch.softmax(self.query(h) @ memory.transpose(1, 2), dim=-1)
        return self.out(torch.cat([h, weights @ memory], dim=-1))


class Seq2Seq(nn.Module):
    def __init__(self, cfg: Seq2SeqConfig):
        super().__init__()
        self.encoder = Encoder(cfg)
        self.decoder = Decoder(cfg)

    def forward(self, src, tgt):
        memory, state = self.encoder(src)
        return self.decoder(tgt, memory, state)


# run:
Seq2Seq(Seq2SeqConfig())(torch.randint(0, 300, (5, 12)), torch.randint(0, 400, (5, 9))).sum().backward()
