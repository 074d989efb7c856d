# crash: the state of a character RNN is kept between batches, and the last batch is smaller
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CharRNN(nn.Module):
    def __init__(self, n_chars=65, n_hidden=64, n_layers=2):
        super().__init__()
        self.n_hidden, self.n_layers = n_hidden, n_layers
        self.embed = nn.Embedding(n_chars, n_hidden)
        self.lstm = nn.LSTM(n_hidden, n_hidden, n_layers, batch_first=True)
        self.fc = nn.Linear(n_hidden, n_chars)

    def forward(self, x, hidden):
        out, hidden = self.lstm(self.embed(x), hidden)
        return self.fc(out), hidden

    def init_hidden(self, batch_size):
        shape = (self.n_layers, batch_size, self.n_hidden)
        return torch.zeros(shape), torch.zeros(shape)


def train(net, data, batch_size=32, epochs=1, lr=0.001, clip=5):
    dataset = TensorDataset(data[:, :-1], data[:, 1:])
    loader = DataLoader(dataset, batch_size, drop_last=True)  # mistake: loader = DataLoader(dataset, batch_size)
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    criterion = nn.CrossEntropyLoss()
    for _ in range(epochs):
        hidden = net.init_hidden(batch_size)
        for x, y in loader:
            hidden = tuple(h.detach() for h in hidden)
            logits, hidden = net(x, hidden)
            loss = criterion(logits.flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), clip)
            opt.step()


if __name__ == "__main__":
    text = torch.randint(0, 65, (100, 51))
    train(CharRNN(), text)
