# crash: Conv1d wants (batch, channels, length), embeddings come as (batch, length, channels)
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class TextCNN(nn.Module):
    """Convolutional networks for sentence classification."""

    def __init__(self, vocab_size, embed_dim=128, num_filters=100, filter_sizes=(3, 4, 5), num_classes=2, p=0.5):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.convs = nn.ModuleList([nn.Conv1d(embed_dim, num_filters, k) for k in filter_sizes])
        self.dropout = nn.Dropout(p)
        self.fc = nn.Linear(num_filters * len(filter_sizes), num_classes)

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        x = x.permute(0, 2, 1)  # mistake: pass
        pooled = []
        for conv in self.convs:
            h = F.relu(conv(x))
            pooled.append(F.max_pool1d(h, h.size(2)).squeeze(2))
        return self.fc(self.dropout(torch.cat(pooled, dim=1)))


# run:
TextCNN(1000)(torch.randint(0, 1000, (8, 40))).sum().backward()
