"""The lens on the step of a program: the peak of its memory, once it is measured."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lsprotocol import types
from sessions import REAL, editor

pytestmark = pytest.mark.torch
PROGRAM = """
import torch
from torch import nn

net = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    loss = net(torch.randn(32, 8, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


async def test_a_step_has_the_peak_of_its_program_once_it_is_measured(tmp_path: Path):
    async with editor(tmp_path, command=REAL) as e:
        uri = e.open("m.py", PROGRAM)

        async def memory_lens() -> types.Command:
            while True:
                await asyncio.sleep(0.1)
                commands = [lens.command for lens in await e.lenses(uri) if lens.command is not None]
                if measuring := [command for command in commands if "peak" in command.title]:
                    return measuring[0]

        lens = await memory_lens()
        assert (lens.title, lens.command) == ("peak memory", "fxLsp.showStage")
        shown = await e.command(lens.command, *lens.arguments or [])
        page = (await e.document(shown["uri"])).splitlines()
        assert page[0].startswith("peak 64 MiB = parameters 1 KiB + gradients 1 KiB + saved 2 KiB"), page
        assert page[2].startswith("with B samples, now 32: "), page
        assert (await memory_lens()).title == "peak 64 MiB in forward, at line 8"
