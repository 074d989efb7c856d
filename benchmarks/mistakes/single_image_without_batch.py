# crash: one image is given to a classifier without the dimension of the batch, reported when a trained model is tried
# evidence: call
import torch
from torch import nn

CLASSES = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


@torch.no_grad()
def predict(model, image):
    """The name of the class of one image, a tensor (3, 32, 32)."""
    model.eval()
    logits = model(image.unsqueeze(0))  # mistake: logits = model(image)
    return CLASSES[logits.argmax(dim=1).item()]


if __name__ == "__main__":
    net = Net()
    image = torch.rand(3, 32, 32)
    print(predict(net, image))
