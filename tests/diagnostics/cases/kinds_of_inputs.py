# targets: of_batches, of_items, misspelt, misspelt_later
import torch
from torch import nn

# What an item of a guess lacks may be due to the guess; what a tensor lacks that is stated to be one is a mistake.


def tqdm(items, leave=True):
    return items


def of_batches(model: nn.Module, batches):
    total = torch.zeros(())
    for batch in tqdm(batches, leave=False):
        total = total + (model(batch.source) - batch.target).pow(2).mean()
    return total


def shuffled(items):
    return iter(items)


def of_items(model: nn.Module, batches):
    total = torch.zeros(())
    for batch in shuffled(batches):
        total = total + (model(batch.source) - batch.target).pow(2).mean()
        #                      ^^^^^^^^^^^^ information[inputs]:
        #  AttributeError: 'Tensor' object has no attribute 'source'. The inputs are guessed; write the real ones in a
        #  comment: `# fx: model=…, batches=f32[4, 64]`.
    return total


def misspelt(x: torch.Tensor):
    return x.softmx(-1)
    #      ^^^^^^^^ error[error]: AttributeError: 'Tensor' object has no attribute 'softmx'.


def misspelt_later(x: torch.Tensor):
    return torch.relu(x).sizes()
    #      ^^^^^^^^^^^^^^^^^^^ error[error]: AttributeError: 'Tensor' object has no attribute 'sizes'.
