# crash: an RNN over a packed sequence returns a packed sequence, which is used as a tensor
# evidence: none
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class NERTagger(nn.Module):
    def __init__(self, vocab_size, n_tags, emb_dim=64, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, emb_dim, padding_idx=0)
        self.lstm = nn.LSTM(emb_dim, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.25)
        self.out = nn.Linear(2 * hidden, n_tags)

    def forward(self, tokens, lengths):
        x = self.dropout(self.emb(tokens))
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed_out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(packed_out, batch_first=True)  # mistake: out = packed_out
        return self.out(self.dropout(out))


# run:
tokens = torch.randint(1, 100, (4, 9))
NERTagger(100, 7)(tokens, torch.tensor([9, 4, 6, 2])).sum().backward()
