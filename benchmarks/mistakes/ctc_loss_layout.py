# crash: the CTC loss wants log probabilities as (time, batch, classes)
# evidence: call
import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = "abcdefghijklmnopqrstuvwxyz' "
N_CLASSES = len(ALPHABET) + 1  # with the blank


class SpeechModel(nn.Module):
    def __init__(self, n_mels=40, hidden=64, n_classes=N_CLASSES):
        super().__init__()
        self.conv = nn.Conv1d(n_mels, hidden, 11, stride=2, padding=5)
        self.rnn = nn.GRU(hidden, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, n_classes)

    def forward(self, mels):
        x = F.gelu(self.conv(mels)).transpose(1, 2)
        x, _ = self.rnn(x)
        return F.log_softmax(self.fc(x), dim=-1)


def compute_loss(model, mels, targets, target_lengths):
    log_probs = model(mels)
    input_lengths = torch.full((log_probs.size(0),), log_probs.size(1), dtype=torch.long)
    log_probs = log_probs.transpose(0, 1)  # mistake: pass
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, zero_infinity=True)


def main():
    model = SpeechModel()
    mels = torch.randn(4, 40, 200)
    targets = torch.randint(1, N_CLASSES, (4, 20))
    loss = compute_loss(model, mels, targets, torch.tensor([20, 14, 9, 17]))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


if __name__ == "__main__":
    main()
