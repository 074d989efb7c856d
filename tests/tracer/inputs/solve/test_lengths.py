"""Sequences of several lengths: packed, unpacked, and aligned by CTC loss."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

class Tagger(nn.Module):
    def __init__(self, words=50, width=8, tags=4):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, tags)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, (last, _) = self.rnn(packed)
        padded, lengths = pad_packed_sequence(states, batch_first=True)
        return self.out(padded), last[-1]

"""


def specs(traced, stage: str, *targets: str) -> list[str]:
    """The specs of what operations of a stage give."""
    return [f"{n.target}: {n.spec}" for n in traced.stage(stage).nodes if n.target.partition(".")[2] in targets]


def test_lengths_that_nobody_knows_are_those_of_the_batch(trace):
    traced = trace(HEAD, "Tagger")
    assert traced.inputs() == snapshot(["words: i64[4, 8] · search", "lengths: i64[4] · search"])
    assert specs(traced, "forward", "_pack_padded_sequence.default", "_cudnn_rnn.default") == snapshot(
        [
            "aten._pack_padded_sequence.default: (f32[32, 8], i64[8])",
            "aten._cudnn_rnn.default: (f32[32, 8], f32[1, 4, 8], f32[1, 4, 8], u8[0], f32[32, 8])",
        ]
    )
    assert traced.trace.outputs == snapshot(("f32[4, 8, 4]", "f32[4, 8]"))
    assert not traced.trace.refused
    assert traced.trace.notes[-1] == snapshot(
        "the lengths of packed sequences are unknown; assumed: each is as long as the padded batch"
    )
    assert not traced.trace.remarks


def test_lengths_that_are_numbers_are_what_they_are(trace):
    source = """
# fx: x=f32[3, 9, 8]
def f(x):
    packed = pack_padded_sequence(x, [7, 4, 2], batch_first=True)
    return packed.data, *pad_packed_sequence(packed, batch_first=True)
"""
    traced = trace(HEAD + source, "f")
    assert traced.trace.outputs == snapshot(("f32[13, 8]", "f32[3, 7, 8](8, 24, 1)", "i64[3]"))
    assert traced.stage("backward").nodes[-1].args == ("(grad_x,)",)


SORTED = """
# fx: x=f32[4, 9, 8], lens=i64[4]
class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 8, batch_first=True)

    def forward(self, x, lens):
        lens, order = lens.sort(descending=True)
        packed = pack_padded_sequence(x[order], lens.tolist(), batch_first=True)
        states, _ = self.rnn(packed)
        return pad_packed_sequence(states, batch_first=True, total_length=x.size(1))[0][order.argsort()]
"""


def test_lengths_that_become_numbers_on_the_way(trace):
    assert trace(HEAD + SORTED, "Sorted").trace.outputs == snapshot(("f32[4, 9, 8]",))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (
            "[2, 7, 4]",
            snapshot("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True"),
        ),
        (
            "[9, 7]",
            snapshot("Expected `len(lengths)` to be equal to batch_size, but got 2 and 3"),
        ),
        ("[12, 7, 4]", snapshot("Expected lengths of at most 9, but got 12")),
        ("[9, 7, 0]", snapshot("Length of all samples has to be greater than 0")),
    ],
)
def test_lengths_that_do_not_fit_are_an_error(lengths: str, message: str, trace):
    call = f"pack_padded_sequence(x, {lengths}, batch_first=True)"
    source = f"# fx: x=f32[3, 9, 8]\ndef f(x):\n    return {call}.data\n"
    failure = trace(HEAD + source, "f").failure
    assert (failure.severity, failure.message.partition(" (")[0]) == ("error", message)


CTC = """
def losses(scores, targets, input_lengths, target_lengths):
    return F.ctc_loss(scores.log_softmax(2), targets, input_lengths, target_lengths)
"""


def test_the_loss_of_alignments(trace):
    traced = trace(HEAD + CTC, "losses")
    assert traced.inputs() == snapshot(
        [
            "scores: f32[4, 8, 64] · search",
            "targets: i64[8, 16] · search",
            "input_lengths: i64[8] · search",
            "target_lengths: i64[8] · search",
        ]
    )
    assert specs(traced, "forward", "_ctc_loss.Tensor") == snapshot(["aten._ctc_loss.Tensor: (f32[8], f32[8, 4, 33])"])
    assert specs(traced, "backward", "_ctc_loss_backward.Tensor") == snapshot(
        ["aten._ctc_loss_backward.Tensor: f32[4, 8, 64]"]
    )


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        (
            "scores=f32[50, 4, 20], targets=i64[4, 30], input_lengths=i64[5], target_lengths=i64[4]",
            snapshot("input_lengths must be of size batch_size"),
        ),
        (
            "scores=f32[50, 4, 20], targets=i64[5, 30], input_lengths=i64[4], target_lengths=i64[4]",
            snapshot("Expected targets for 4 examples, but got 5"),
        ),
    ],
)
def test_an_alignment_that_does_not_fit_is_an_error(comment: str, message: str, trace):
    failure = trace(HEAD + CTC, "losses", comment=comment).failure
    assert (failure.severity, failure.message.partition(" (")[0]) == ("error", message)


ALIGNED = """
class Aligned(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = nn.CTCLoss()

    def forward(self, scores, targets, times, counts):
        return self.loss(scores.log_softmax(2), targets, times, counts)
"""


def test_a_loss_of_alignments_that_is_a_module(trace):
    assert trace(HEAD + ALIGNED, "Aligned").inputs() == snapshot(
        [
            "scores: f32[4, 8, 64] · search",
            "targets: i64[8, 16] · search",
            "times: i64[8] · search",
            "counts: i64[8] · search",
        ]
    )
