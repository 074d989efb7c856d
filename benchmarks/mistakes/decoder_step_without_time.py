# crash: one step of a decoder embeds a vector of tokens, and the GRU misses the dimension of time
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class DecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)
        self.dropout = nn.Dropout(dropout)

    def step(self, token, hidden):
        # token: (batch,), hidden: (1, batch, hidden_size)
        x = self.dropout(self.embedding(token))
        x = x.unsqueeze(1)  # mistake: pass
        output, hidden = self.gru(F.relu(x), hidden)
        return self.out(output.squeeze(1)), hidden

    def forward(self, target, hidden):
        # teacher forcing: target is (batch, length)
        outputs = []
        for t in range(target.size(1)):
            logits, hidden = self.step(target[:, t], hidden)
            outputs.append(logits)
        return torch.stack(outputs, dim=1), hidden


# run:
logits, _ = DecoderRNN(32, 90)(torch.randint(0, 90, (6, 7)), torch.zeros(1, 6, 32))
logits.sum().backward()
