"""Stages against what TORCH_LOGS prints when `torch.compile` runs the same functions on real tensors, node for node.

Both sides are read as the text that a person sees. Names may differ, as long as they stand for the same nodes.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conftest import in_fork_many

from fx_lsp import wire
from fx_lsp.model import Stage, Trace, TraceReply
from fx_lsp.specs import SHORT_NAMES
from fx_lsp.tracing.analysis import Analysis, analyse

TARGETS = Path(__file__).parent.parent / "fixtures" / "thirty.py"
RUN = Path(__file__).parent / "logged.py"
LOGS = "aot_joint_graph,aot_graphs,post_grad_graphs"
"""What `torch.compile` prints in the order of its graphs: joint, then forward, then backward."""
""" """
