"""Death in hospital from the records of PhysioNet 2012: LFormer beside models on summary features, by cross-validation.

LFORMER_DATA=... python scripts/mortality.py [--only NAME] [--jobs 5] [--out results/mortality.json]

The 8,000 stays as they were charted, to the minute, nothing resampled and nothing imputed. Five folds, the same for
every model; what is in the file already is not run again. `cross_validate` is `cross_val_score` for two scores at once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lformer import LFormerClassifier, Panel, __version__, data
from lformer.data.physionet import STATIC
from lformer.data.store import open_raw, raw_file, write_whole
from lformer.estimators import Summaries

FOLDS = StratifiedKFold(5, shuffle=True, random_state=1)
MODELS: dict[str, Any] = {
    "lformer": LFormerClassifier(
        members=5, hide=0.2, dropout=0.2, weight_decay=0.1, lr=1e-3, batch_size=64, max_epochs=8, patience=None,
        random_state=0,
    ),
    "logistic regression": make_pipeline(
        Summaries(), SimpleImputer(add_indicator=True), StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)
    ),
    "gradient boosting": make_pipeline(Summaries(), HistGradientBoostingClassifier(random_state=0)),
    "gradient boosting, small trees": make_pipeline(
        Summaries(),
        HistGradientBoostingClassifier(
            learning_rate=0.05, max_iter=200, max_leaf_nodes=8, min_samples_leaf=40, l2_regularization=10.0,
            max_features=0.3, random_state=0,
        ),
    ),
}  # fmt: skip


def records() -> tuple[Panel, np.ndarray[Any, Any]]:
    """The stays with their descriptors as static covariates, and who died."""
    with open_raw(raw_file(data.named("physionet").card)) as raw:
        names = raw["param_names"]
        events = pd.DataFrame({
            "stay": np.repeat(raw["record_id"], np.diff(raw["offset"])),
            "minute": raw["time_min"].astype(np.int64),
            "channel": names[raw["param"]],
            "value": raw["value"],
        })  # fmt: skip
        died = pd.Series(raw["outcomes"][:, -1], index=raw["outcomes"][:, 0])
    described = events["channel"].isin(STATIC)
    static = events[described].drop_duplicates(["stay", "channel"])
    static = static.pivot(index="stay", columns="channel", values="value")
    static = static.where(static >= 0)  # -1 stands for unknown
    static["ICUType"] = static["ICUType"].map(lambda kind: f"unit {kind:.0f}")  # four kinds, not a quantity
    panel = Panel.from_long(
        events[~described & (events["channel"] != "RecordID")],
        id="stay", time="minute", channel="channel", value="value", unit="min", static=static, on_duplicate="mean",
    )  # fmt: skip
    return panel, panel.align(died)


def assess(name: str, X: Panel, y: np.ndarray[Any, Any], jobs: int) -> dict[str, Any]:
    began = time.perf_counter()
    scoring = {"auroc": "roc_auc", "auprc": "average_precision"}
    found = cross_validate(MODELS[name], X, y, cv=FOLDS, scoring=scoring, n_jobs=jobs, error_score="raise")
    return {
        "model": name,
        "static": X.static is not None,
        **{score: [round(float(v), 4) for v in found[f"test_{score}"]] for score in scoring},
        "seconds": round(time.perf_counter() - began, 1),
        "settings": repr(MODELS[name][-1] if hasattr(MODELS[name], "steps") else MODELS[name]),
        "versions": {"lformer": __version__, "torch": torch.__version__, "scikit-learn": sklearn.__version__},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores"
        + (f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""),
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| model | covariates | AUROC | AUPRC |", "| :-- | :-- | --: | --: |"]
    for row in sorted(rows, key=lambda row: (row["static"], list(MODELS).index(row["model"]))):
        scores = [f"{np.mean(row[s]):.3f} ± {np.std(row[s]):.3f}" for s in ("auroc", "auprc")]
        lines.append(f"| {row['model']} | {'with' if row['static'] else 'without'} | {' | '.join(scores)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=MODELS, help="a model; all if none is named")
    parser.add_argument("--covariates", choices=["both", "with", "without"], default="both")
    parser.add_argument("--jobs", type=int, default=1, help="folds at a time")
    parser.add_argument("--out", type=Path, default=Path("results/mortality.json"))
    given = parser.parse_args()
    rows = json.loads(given.out.read_text()) if given.out.exists() else []
    X, y = records()
    print(f"{len(X):,} stays, {X.lengths.mean():.1f} rows each, {y.mean():.1%} died")
    kinds = {"without": replace(X, static=None), "with": X}
    for kind in kinds if given.covariates == "both" else [given.covariates]:
        for name in given.only or MODELS:
            if any(row["model"] == name and row["static"] == (kind == "with") for row in rows):
                continue
            rows.append(assess(name, kinds[kind], y, given.jobs))
            text = json.dumps(rows, indent=1) + "\n"
            write_whole(given.out, lambda part, text=text: part.write_text(text))  # type: ignore[misc]
            print(f"{name}, {kind} covariates: {rows[-1]['seconds']} s", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
