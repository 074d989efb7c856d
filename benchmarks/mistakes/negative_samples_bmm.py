# crash: the embedding of the centre word has no last dimension for a product of batches of matrices
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class SkipGram(nn.Module):
    def __init__(self, vocab_size, dim):
        super().__init__()
        self.centre = nn.Embedding(vocab_size, dim)
        self.context = nn.Embedding(vocab_size, dim)

    def forward(self, centre, context, negatives):
        v = self.centre(centre)
        u = self.context(context)
        n = self.context(negatives)
        positive = F.logsigmoid((u * v).sum(dim=1))
        scores = torch.bmm(n.neg(), v.unsqueeze(2)).squeeze(2)  # mistake: scores = torch.bmm(n.neg(), v).squeeze(2)
        negative = F.logsigmoid(scores).sum(dim=1)
        return -(positive + negative).mean()


# run:
words = torch.randint(0, 500, (32,))
SkipGram(500, 64)(words, words.flip(0), torch.randint(0, 500, (32, 5))).backward()
