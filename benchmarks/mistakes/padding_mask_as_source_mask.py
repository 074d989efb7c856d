# crash: nn.TransformerEncoder takes the attention mask second, the padding mask has to be given by its name
# evidence: call
import torch
import torch.nn as nn

PAD = 0


class SentimentTransformer(nn.Module):
    def __init__(self, vocab_size=2000, d_model=64, nhead=4, num_layers=2, max_len=128, num_classes=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=PAD)
        self.position = nn.Parameter(torch.zeros(1, max_len, d_model))
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(d_model, num_classes)

    def forward(self, tokens):
        padding = tokens == PAD
        x = self.embedding(tokens) + self.position[:, : tokens.size(1)]
        x = self.encoder(x, src_key_padding_mask=padding)  # mistake: x = self.encoder(x, padding)
        lengths = (~padding).sum(dim=1, keepdim=True)
        pooled = x.masked_fill(padding.unsqueeze(-1), 0.0).sum(dim=1) / lengths
        return self.classifier(pooled)


def make_batch(batch_size=8, length=50):
    tokens = torch.randint(1, 2000, (batch_size, length))
    for row, keep in zip(tokens, torch.randint(10, length, (batch_size,)), strict=True):
        row[keep:] = PAD
    return tokens, torch.randint(0, 2, (batch_size,))


def train(epochs=2):
    model = SentimentTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    criterion = nn.CrossEntropyLoss()
    for _ in range(epochs):
        tokens, labels = make_batch()
        optimizer.zero_grad()
        loss = criterion(model(tokens), labels)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train()
