"""The toy ward: the default classifier beside gradient boosting on summary features, as the README quotes them.

OMP_NUM_THREADS=1 python scripts/ward.py 6 7 8
"""

from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from lformer import LFormerClassifier, Panel
from lformer.data import toy_ward
from lformer.estimators import Summaries

TRAIN = 300


def coincidence(panel: Panel) -> list[float]:
    """What somebody looks for who knows how the ward was made: does lactate move with the heart?"""
    heart, lactate = panel.channels.index("heart rate"), panel.channels.index("lactate")
    found = []
    for clock, values in panel:
        hours = (clock - clock[0]) / np.timedelta64(1, "h")
        drawn, beats = ~np.isnan(values[:, lactate]), ~np.isnan(values[:, heart])
        if drawn.sum() < 3 or not beats.any():
            found.append(np.nan)
            continue
        near = np.abs(hours[drawn][:, None] - hours[beats]).argmin(axis=1)
        found.append(np.corrcoef(values[drawn, lactate], values[beats, heart][near])[0, 1])
    return found


def figures(seed: int) -> dict[str, tuple[float, float]]:
    """Area under the ROC curve and accuracy of each on the patients behind the first 300."""
    ward = toy_ward(seed=seed)
    panel = Panel.from_long(
        ward.table, id="patient", time="time", channel="lab", value="value", unit="h", static=ward.static
    )
    y = panel.align(ward.labels)
    began = time.perf_counter()
    ours = LFormerClassifier(random_state=0, device="cpu").fit(panel[:TRAIN], y[:TRAIN])
    took = time.perf_counter() - began
    told = {f"lformer ({took:.1f} s)": ours.predict_proba(panel[TRAIN:])[:, 1]}
    table = Summaries().fit_transform(panel)
    informed = np.column_stack([table, coincidence(panel)])
    for name, features in (("summaries", table), ("with coincidence", informed)):
        boosting = HistGradientBoostingClassifier(random_state=0).fit(features[:TRAIN], y[:TRAIN])
        told[name] = boosting.predict_proba(features[TRAIN:])[:, 1]
    return {name: (roc_auc_score(y[TRAIN:], p), float(((p > 0.5) == y[TRAIN:]).mean())) for name, p in told.items()}


def main() -> None:
    """Print every seed, and the means."""
    rows = [list(figures(seed).items()) for seed in map(int, sys.argv[1:] or ["6", "7", "8"])]
    for row in [*rows, [(f"mean {k}", tuple(np.mean([r[k][1] for r in rows], axis=0))) for k in range(3)]]:
        print(", ".join(f"{name} {auc:.3f}/{accuracy:.3f}" for name, (auc, accuracy) in row))


if __name__ == "__main__":
    main()
