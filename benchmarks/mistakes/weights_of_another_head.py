# crash: all weights of a trained model are loaded into one with another number of classes
# evidence: call
import torch
from torch import nn


class AudioTagger(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 16, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1))
        self.head = nn.Linear(16, classes)

    def forward(self, wave):
        return self.head(self.features(wave).flatten(1))


def finetune(trained: nn.Module, classes: int) -> nn.Module:
    model = AudioTagger(classes)
    state = trained.state_dict()
    state = {k: v for k, v in state.items() if not k.startswith("head")}  # mistake: state = dict(state)
    model.load_state_dict(state, strict=False)
    return model


if __name__ == "__main__":
    model = finetune(AudioTagger(50), 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loss = model(torch.randn(4, 1, 4000)).logsumexp(dim=1).mean()
    loss.backward()
    optimizer.step()
