"""The screenshots of docs/guides/report.md: the reports of the simulated ward and of some stays of PhysioNet 2012.

    python scripts/report_pictures.py FOLDER          the ward
    python scripts/report_pictures.py FOLDER --stays  the stays too; LFORMER_DATA says where they are

Needs Chromium and the extra `plots`, for Pillow.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lformer import LFormerClassifier, Panel
from lformer.data import load, toy_ward
from lformer.report import report

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--hide-scrollbars",
)  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
COLOURS = 255
STAYS = 600


def shoot(page: Path, picture: Path, top: int, bottom: int, dark: bool = False) -> None:
    """A part of a page, from so many pixels below its top to so many, as a small PNG."""
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", *FLAGS, *([DARK] if dark else []), f"--user-data-dir={profile}"]
        size = [f"--window-size=1060,{bottom}", f"--screenshot={picture}", page.resolve().as_uri()]
        subprocess.run([*command, *size], check=True, capture_output=True, timeout=120)
    with Image.open(picture) as whole:
        part = whole.convert("RGB").crop((0, top, 1060, bottom))
    part.quantize(COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)


def ward(folder: Path) -> None:
    """The ward of the guide, 300 patients to train on and 100 to report on."""
    made = toy_ward(patients=400)
    X = Panel.from_long(made.table, id="patient", time="time", channel="lab", value="value", static=made.static)
    y = X.align(made.labels)
    model = LFormerClassifier(random_state=0, max_epochs=15).fit(X[:300], y[:300])
    title, note = "Who deteriorates on the ward?", "A simulated ward."
    page = report(model, X[300:], y[300:], folder / "ward.html", title=title, note=note, trained_on=X[:300])
    shoot(page, folder / "report-ward-light.png", 0, 1776)
    shoot(page, folder / "report-ward-dark.png", 1776, 3576, dark=True)


def stays(folder: Path) -> None:
    """Few of the stays and few epochs: what a report looks like, not what the model can do."""
    parts = load("physionet", task="classify", scaling="none")

    def some(part: Any, n: int) -> tuple[Panel, Any]:
        chosen = np.random.default_rng(0).permutation(len(part))[:n]
        return part.panel[chosen].compact(), part.targets.values[part.members[chosen]]

    (X, y), (new, truth) = some(parts.train, STAYS), some(parts.test, STAYS // 3)
    model = LFormerClassifier(random_state=0, max_epochs=8).fit(X, y)
    note = f"A small subset of PhysioNet 2012 and a short training, to show the page: {STAYS} stays, 8 epochs."
    title = "In-hospital death, PhysioNet 2012 (subset)"
    page = report(model, new, truth, folder / "physionet.html", title=title, note=note, trained_on=X)
    shoot(page, folder / "report-physionet-light.png", 0, 1770)
    shoot(page, folder / "report-physionet-dark.png", 1770, 3852, dark=True)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    ward(place)
    if "--stays" in sys.argv:
        stays(place)
