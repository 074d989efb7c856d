# crash: `1 - mask` does not work where the mask is a comparison, "Subtraction with a bool tensor is not supported"
# evidence: none
import torch
from torch import nn


class TagLoss(nn.Module):
    """Cross entropy over tagged words; words that are padding count nothing."""

    def __init__(self, pad_id: int = 0, smoothing: float = 0.1):
        super().__init__()
        self.pad_id = pad_id
        self.criterion = nn.CrossEntropyLoss(reduction="none", label_smoothing=smoothing)

    def forward(self, logits: torch.Tensor, tags: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        # logits: (batch, words, tags), tags and words: (batch, words)
        pad_mask = words == self.pad_id
        keep = ~pad_mask  # mistake: keep = 1 - pad_mask
        loss = self.criterion(logits.transpose(1, 2), tags)
        return (loss * keep).sum() / keep.sum()


class WindowTagger(nn.Module):
    def __init__(self, vocab: int, n_tags: int, dim: int = 50):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.out = nn.Linear(dim, n_tags)
        self.loss = TagLoss()

    def forward(self, words, tags):
        h = torch.relu(self.conv(self.embed(words).transpose(1, 2))).transpose(1, 2)
        return self.loss(self.out(h), tags, words)


# run:
words = torch.randint(0, 100, (4, 12))
WindowTagger(100, 9)(words, torch.randint(0, 9, (4, 12))).backward()
