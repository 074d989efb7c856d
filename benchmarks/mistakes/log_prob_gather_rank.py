# crash: the log probabilities of the labels are gathered with an index that lacks a dimension
# evidence: none
import torch
import torch.nn.functional as F
from torch import Tensor


def sequence_log_probs(logits: Tensor, labels: Tensor, ignore_index: int = -100) -> Tensor:
    """Sum of the log probabilities of the labels, for each sequence.

    logits: (batch, length, vocab), labels: (batch, length)
    """
    logits, labels = logits[:, :-1], labels[:, 1:]
    keep = labels != ignore_index
    index = labels.masked_fill(~keep, 0)
    log_probs = logits.log_softmax(dim=-1)
    picked = log_probs.gather(2, index.unsqueeze(2)).squeeze(2)  # mistake: picked = log_probs.gather(2, index)
    return (picked * keep).sum(dim=-1)


def dpo_loss(
    policy_chosen: Tensor, policy_rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """Direct preference optimization, from the log probabilities of both models for both answers."""
    margin = (policy_chosen - reference_chosen) - (policy_rejected - reference_rejected)
    return -F.logsigmoid(beta * margin).mean(), (margin > 0).float().mean()


# run:
logits = torch.randn(3, 10, 40, requires_grad=True)
labels = torch.randint(0, 40, (3, 10))
chosen = sequence_log_probs(logits, labels)
dpo_loss(chosen, chosen - 1, chosen.detach(), chosen.detach(), 0.1)[0].backward()
