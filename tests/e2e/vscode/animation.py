"""The README's moving picture, out of screenshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

COLORS = 256
KMEANS_STEPS = 3
MILLISECONDS = 3000
"""How long each screenshot is shown."""


def animate(shots: Sequence[Path], picture: Path) -> None:
    """Write a GIF that shows the screenshots in a loop, each with a palette of its own."""
    frames = [Image.open(shot).convert("RGB") for shot in shots]
    first, *others = (frame.quantize(COLORS, kmeans=KMEANS_STEPS, dither=Image.Dither.NONE) for frame in frames)
    first.save(picture, save_all=True, append_images=others, duration=MILLISECONDS, loop=0)
