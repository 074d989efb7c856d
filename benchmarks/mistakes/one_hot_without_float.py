# crash: one-hot rows are integers and are multiplied with a matrix of floating point numbers
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class RelationalScore(nn.Module):
    def __init__(self, num_entities=50, num_relations=6, dim=32):
        super().__init__()
        self.num_relations = num_relations
        self.entities = nn.Embedding(num_entities, dim)
        self.relations = nn.Parameter(torch.randn(num_relations, dim))

    def forward(self, head, relation, tail):
        rows = F.one_hot(relation, self.num_relations)
        rows = rows.float()  # mistake: rows = rows.contiguous()
        r = rows @ self.relations
        score = (self.entities(head) * r * self.entities(tail)).sum(-1)
        return torch.sigmoid(score)


# run:
n = torch.randint(0, 6, (3, 16))
RelationalScore()(n[0], n[1], n[2]).sum().backward()
