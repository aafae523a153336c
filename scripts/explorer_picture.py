"""The screenshot of docs/results.md and README.md: the explorer at one place, from the committed records.

    python scripts/explorer_picture.py docs/explorer.png

Needs Chromium and the extra `plots`, for Pillow.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from lformer.bench import explorer

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--hide-scrollbars", "--disable-quic",
)  # fmt: skip
PLACE = "#dataset=physionet&task=extrapolate&metric=mse"
WIDE, HIGH = 1200, 1062
COLOURS = 255


def shoot(picture: Path) -> None:
    """The top of the page, as a small PNG."""
    with tempfile.TemporaryDirectory() as folder:
        page = explorer.write(Path("results/bench"), Path(folder, "index.html"))
        command = ["chromium", *FLAGS, f"--user-data-dir={folder}/profile", f"--window-size={WIDE},{HIGH}"]
        command += [f"--screenshot={picture.resolve()}", page.as_uri() + PLACE]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    with Image.open(picture) as whole:
        small = whole.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


if __name__ == "__main__":
    shoot(Path(sys.argv[1]))
