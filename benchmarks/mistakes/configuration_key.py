# crash: a key of the configuration is read by another name, KeyError
# evidence: config
import torch
import torch.nn as nn

CONFIG = {
    "model": {"input_dim": 20, "hidden_dim": 64, "num_layers": 3, "output_dim": 4, "dropout": 0.1},
    "training": {"lr": 3e-4, "weight_decay": 0.01, "max_steps": 1000},
}


class ResidualLayer(nn.Module):
    def __init__(self, dim, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.fc2(torch.relu(self.fc1(self.norm(x)))))


class ResidualMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        dim = config["hidden_dim"]  # mistake: dim = config["hidden_size"]
        self.inp = nn.Linear(config["input_dim"], dim)
        self.layers = nn.ModuleList([ResidualLayer(dim, config["dropout"]) for _ in range(config["num_layers"])])
        self.out = nn.Linear(dim, config["output_dim"])

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def create_model(config=CONFIG):
    return ResidualMLP(config["model"])


def create_optimizer(model, config=CONFIG):
    options = config["training"]
    return torch.optim.AdamW(model.parameters(), lr=options["lr"], weight_decay=options["weight_decay"])


# run:
model = create_model()
optimizer = create_optimizer(model)
model(torch.randn(8, 20)).sum().backward()
optimizer.step()
