# crash: the padding mask of an encoder with the batch first has its dimensions swapped
# evidence: none
import torch
import torch.nn as nn


class Classifier(nn.Module):
    def __init__(self, vocab_size=1000, d_model=64, nhead=4, num_layers=2, num_classes=5, pad=0):
        super().__init__()
        self.pad = pad
        self.embed = nn.Embedding(vocab_size, d_model, padding_idx=pad)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 4 * d_model, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.fc = nn.Linear(d_model, num_classes)

    def forward(self, tokens):
        padding = tokens == self.pad  # mistake: padding = (tokens == self.pad).transpose(0, 1)
        hidden = self.encoder(self.embed(tokens), src_key_padding_mask=padding)
        keep = (tokens != self.pad).unsqueeze(-1).float()
        pooled = (hidden * keep).sum(1) / keep.sum(1).clamp(min=1)
        return self.fc(pooled)


# run:
Classifier()(torch.randint(1, 1000, (4, 12))).sum().backward()
