"""Programs that a test interrupts."""

from __future__ import annotations

import signal


def interruptible() -> None:
    """For `preexec_fn`: an interrupt ends the program, also where the tests run in the background of a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
