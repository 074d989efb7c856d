# silent: scores of positive items are a column and those of negative ones a vector, all pairs are ranked
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class BPRRecommender(nn.Module):
    def __init__(self, num_users, num_items, dim=32, weight_decay=1e-4):
        super().__init__()
        self.user = nn.Embedding(num_users, dim)
        self.item = nn.Embedding(num_items, dim)
        self.weight_decay = weight_decay
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)

    def forward(self, user, positive, negative):
        # all of them: (batch,)
        u, i, j = self.user(user), self.item(positive), self.item(negative)
        x_ui = (u * i).sum(dim=1)  # mistake: x_ui = (u * i).sum(dim=1, keepdim=True)
        x_uj = (u * j).sum(dim=1)
        loss = -F.logsigmoid(x_ui - x_uj).mean()
        penalty = u.pow(2).sum() + i.pow(2).sum() + j.pow(2).sum()
        return loss + self.weight_decay * penalty / user.size(0)

    @torch.no_grad()
    def recommend(self, user, k=10):
        scores = self.user(user) @ self.item.weight.t()
        return scores.topk(k, dim=1).indices


# run:
model = BPRRecommender(50, 80)
loss = model(torch.randint(0, 50, (16,)), torch.randint(0, 80, (16,)), torch.randint(0, 80, (16,)))
loss.backward()
print(loss.item())
