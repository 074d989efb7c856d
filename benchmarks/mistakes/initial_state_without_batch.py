# crash: the initial state of a recurrent layer has no dimension for the batch
# evidence: none
import torch
import torch.nn as nn


class SentimentRNN(nn.Module):
    def __init__(self, vocab_size, embedding_dim, hidden_dim, output_dim, n_layers=2):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.n_layers = n_layers
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.rnn = nn.GRU(embedding_dim, hidden_dim, n_layers, batch_first=True, dropout=0.2)
        self.fc = nn.Linear(hidden_dim, output_dim)

    def forward(self, text):
        embedded = self.embedding(text)
        h0 = torch.zeros(self.n_layers, text.size(0), self.hidden_dim)  # mistake: h0 = torch.zeros(self.n_layers, self.hidden_dim)
        output, hidden = self.rnn(embedded, h0)
        return self.fc(output[:, -1])


# run:
torch.manual_seed(0)
model = SentimentRNN(1000, 64, 128, 2)
model(torch.randint(0, 1000, (8, 20))).sum().backward()
