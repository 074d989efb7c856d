"""Triton has to know that it is to interpret before anything imports it."""

import os

os.environ["TRITON_INTERPRET"] = "1"
