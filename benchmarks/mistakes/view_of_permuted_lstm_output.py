# crash: the output of an LSTM is permuted to batch first and then flattened with .view() for the loss
# evidence: none
import torch
from torch import nn


class LSTMLanguageModel(nn.Module):
    def __init__(self, ntoken, ninp=200, nhid=200, nlayers=2, dropout=0.2):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid = nhid
        self.nlayers = nlayers
        self.init_weights()

    def init_weights(self):
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, tokens, hidden):
        """tokens: (seq_len, batch); the logits come back as (batch * seq_len, ntoken)"""
        emb = self.drop(self.encoder(tokens))
        output, hidden = self.rnn(emb, hidden)
        output = self.drop(output).permute(1, 0, 2)
        flat = output.contiguous().view(-1, self.nhid)  # mistake: flat = output.view(-1, self.nhid)
        return self.decoder(flat), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


# run:
model = LSTMLanguageModel(500)
logits, _ = model(torch.randint(0, 500, (35, 8)), model.init_hidden(8))
logits.sum().backward()
