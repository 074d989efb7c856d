"""Set up a process that runs the user's code: devices, fake tensors, other processes, weights."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import torch

from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.notes import Notes, collecting_notes
from fx_lsp.tracer.program.data.missing_datasets import samples_of_missing_datasets
from fx_lsp.tracer.program.devices import Devices, possible_devices
from fx_lsp.tracer.program.gpu.triton_kernels import triton_launches
from fx_lsp.tracer.program.higher_order import as_written, differentiable_attention
from fx_lsp.tracer.program.lazy_modules import lazy_tensors
from fx_lsp.tracer.program.processes.process_group import fake_processes
from fx_lsp.tracer.program.processes.remote_calls import remote_calls_here
from fx_lsp.tracer.program.processes.semaphores import thread_semaphores
from fx_lsp.tracer.program.weights import without_weights
from fx_lsp.tracer.run.context import inference_without_gradients
from fx_lsp.tracer.run.fakes import (
    copied_tensors,
    fake_mode,
    formatted_numbers,
    movable_modules,
)


@dataclass(frozen=True)
class Surroundings:
    """Hold the mode of all fake tensors of a process, its devices, and the notes of the run."""

    mode: FakeTensorMode
    devices: Devices
    notes: Notes


@contextmanager
def surroundings(text: str, compiles: bool = False, available: bool = False) -> Generator[Surroundings, None, None]:
    """Run the user's code on fake tensors, wherever PyTorch can, with simulated devices and processes.

    `text` is the text of the program; `compiles` is as in `possible_devices`; `available` is the answer that
    `torch.cuda.is_available()` gives.
    """
    logging.getLogger("torch.__trace").handlers.clear()  # otherwise torch prints every graph for it
    mode = fake_mode()
    with (
        collecting_notes() as run_notes,
        patch.object(torch, "compile", as_written),
        possible_devices(mode, compiles, available) as devices,
        movable_modules(),
        copied_tensors(),
        formatted_numbers(),
        inference_without_gradients(),
        lazy_tensors(),
        without_weights(),
        samples_of_missing_datasets(),
        differentiable_attention(),
        triton_launches(),
        fake_processes(text),
        thread_semaphores(),
        remote_calls_here(),
    ):
        yield Surroundings(mode, devices, run_notes)
