"""What a target reads of the program's entry: names under `if __name__ == "__main__":` and globals of `main()`."""

from inline_snapshot import snapshot

SCRIPT = """
import argparse
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, args.classes)

    def forward(self, x):
        return self.fc(x) * scale + bias.to(device)

def rows():
    return list(open("/nowhere/data.csv"))

def set_up(width):
    global bias
    print("never", undefined)
    bias = torch.zeros(width)

def main(width):
    global scale
    half = width // 2
    scale = torch.ones(half)
    set_up(half)
    for row in rows():
        loss = Net()(row).sum()
        loss.backward()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--classes", type=int, default=4)
    args = parser.parse_args()
    data = open(args.data).read()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    main(2 * args.classes)
"""


def test_a_module_reads_names_of_the_entry(trace):
    traced = trace(SCRIPT, "Net")
    assert [node.name for node in traced.stage("forward").nodes if node.op == "placeholder"] == snapshot(
        ["fc_weight", "fc_bias", "scale", "bias", "x"]
    )
