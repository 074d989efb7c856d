# crash: token ids were read as a float array, and the embedding layer takes only integers
# evidence: call
import numpy as np
import torch
from torch import nn


class CBOW(nn.Module):
    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.linear = nn.Linear(embedding_dim, vocab_size)

    def forward(self, context):
        return self.linear(self.embeddings(context).mean(dim=1))


VOCAB_SIZE = 120
CONTEXT = 2

corpus = np.floor(np.random.default_rng(0).uniform(0, VOCAB_SIZE, size=400))

contexts, targets = [], []
for i in range(CONTEXT, len(corpus) - CONTEXT):
    contexts.append(np.concatenate([corpus[i - CONTEXT : i], corpus[i + 1 : i + CONTEXT + 1]]))
    targets.append(corpus[i])
x = torch.from_numpy(np.stack(contexts)).long()  # mistake: x = torch.from_numpy(np.stack(contexts))
y = torch.tensor(np.array(targets), dtype=torch.long)

model = CBOW(VOCAB_SIZE, 32)
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for _ in range(2):
    for batch in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        loss = loss_function(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
