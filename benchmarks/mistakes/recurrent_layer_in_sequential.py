# crash: an LSTM in nn.Sequential hands its pair of results to the linear layer after it
# evidence: call
import torch
from torch import nn


class LastOutput(nn.Module):
    """What a recurrent layer says at the last step."""

    def forward(self, result):
        output, _ = result
        return output[:, -1]


def build_model(n_features=8, hidden=32, n_outputs=1):
    return nn.Sequential(
        nn.LSTM(n_features, hidden, num_layers=2, batch_first=True, dropout=0.1),
        LastOutput(),  # mistake: nn.ReLU(),
        nn.Linear(hidden, n_outputs),
    )


def windows(series, size):
    x = series.unfold(0, size, 1)[:-1].transpose(1, 2)
    y = series[size:, :1]
    return x, y


def main():
    torch.manual_seed(0)
    series = torch.randn(200, 8).cumsum(dim=0)
    series = (series - series.mean(0)) / series.std(0)
    x, y = windows(series, size=20)
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
