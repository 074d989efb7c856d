# targets: Wrong.generate, Right.generate
import torch
from torch import nn


class Wrong(nn.Module):
    def __init__(self, vocabulary: int = 32, width: int = 8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.hidden = nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, vocabulary)

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens):
        for _ in range(max_new_tokens):
            logits = self.head(self.hidden(self.embed(tokens[:, -1])))
            #        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
            #  matrices of 4×16 and 8×32 cannot be multiplied: the inner sizes 16 and 8 differ (input: f32[4, 16],
            #  weight: f32[32, 8], bias: f32[32]).
            tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), 1)
        return tokens


class Right(nn.Module):
    def __init__(self, vocabulary: int = 32, width: int = 8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary)

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens):
        for _ in range(max_new_tokens):
            logits = self.head(self.embed(tokens[:, -1]))
            tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), 1)
        return tokens
