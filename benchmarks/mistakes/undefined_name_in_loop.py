# crash: a variable of the training loop was renamed in one place only, "name is not defined"
# evidence: call
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Student(nn.Module):
    def __init__(self, width=32, classes=10):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, x):
        return self.net(x)


def distill_loss(student_logits, teacher_logits, labels, T=4.0, alpha=0.7):
    soft = nn.functional.kl_div(
        torch.log_softmax(student_logits / T, dim=1),
        torch.softmax(teacher_logits / T, dim=1),
        reduction="batchmean",
    )
    hard = nn.functional.cross_entropy(student_logits, labels)
    return alpha * T * T * soft + (1 - alpha) * hard


def distill(student, teacher, loader, lr=1e-3):
    optimizer = torch.optim.Adam(student.parameters(), lr=lr)
    teacher.eval()
    for images, labels in loader:
        with torch.no_grad():
            teacher_out = teacher(images)
        logits = student(images)
        loss = distill_loss(logits, teacher_out, labels)  # mistake: loss = distill_loss(output, teacher_out, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    data = TensorDataset(torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,)))
    print(distill(Student(), Student(width=256), DataLoader(data, batch_size=16)))


if __name__ == "__main__":
    main()
