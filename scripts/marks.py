"""What marks for missing values cost: the AUC of a classifier whose telling channel is spoilt, beside the clean one.

python scripts/marks.py [--seeds 1] [--epochs 25]

Two classes differ in the level of one channel of three. Of its values, none to a fifth are replaced by a mark, in
training and test alike; nobody says `missing_values`.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from sklearn.metrics import roc_auc_score

from lformer import LFormerClassifier, Panel

MARKS = (-9999.0, 1e30, 0.0)
SHARES = (0.001, 0.01, 0.05, 0.1, 0.2)
CHANNELS = ["heart rate", "temperature", "lactate"]


def ward(n: int, seed: int, mark: float = 0.0, share: float = 0.0) -> tuple[Panel, np.ndarray]:
    """Irregular series of two classes; the first channel tells them apart, but for chance."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    level = rng.normal(74.0 + 13.3 * y, 5.0)  # deviations of 2.66 apart: an AUC of 0.97 at best
    spoil = np.random.default_rng(seed + 1)  # the same series, whatever is spoilt
    series = []
    for one in level:
        rows = int(rng.integers(12, 30))
        values = rng.normal([one, 37.0, 1.5], [3.0, 0.5, 0.4], (rows, 3))
        values[rng.random((rows, 3)) < 0.3] = np.nan
        hit = (spoil.random(rows) < share) & ~np.isnan(values[:, 0])
        values[hit, 0] = mark
        series.append((np.cumsum(rng.exponential(1.0, rows)), values))
    return Panel.from_list(series, channels=CHANNELS), y


def auc(mark: float, share: float, seed: int, epochs: int) -> float:
    """Of a classifier with its defaults, on series it has not seen."""
    (X, y), (new, truth) = ward(400, 10 * seed, mark, share), ward(1000, 10 * seed + 5, mark, share)
    model = LFormerClassifier(max_epochs=epochs, device="cpu", random_state=seed).fit(X, y)
    return float(roc_auc_score(truth, model.predict_proba(new)[:, 1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=25)
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    for seed in range(given.seeds):
        clean = auc(0.0, 0.0, seed, given.epochs)
        print(f"seed {seed}: clean {clean:.4f}", flush=True)
        for mark in MARKS:
            moved = [auc(mark, share, seed, given.epochs) - clean for share in SHARES]
            words = "   ".join(f"{share:.1%} {m:+.4f}" for share, m in zip(SHARES, moved, strict=True))
            print(f"  {mark:<8g} {words}", flush=True)


if __name__ == "__main__":
    main()
