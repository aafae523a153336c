"""How often calibrated intervals hold the truth on series that neither training nor calibration has seen.

LFORMER_DATA=folder python scripts/coverage.py [--out results/coverage.json] [--only physionet | bidmc]

PhysioNet: stays as charted, all 37 channels. A forecaster is trained on stays of the published training part,
calibrated on the validation part and tested on the test part, 1,600 stays each; what was charted in the first 24 h is
given, what came after is asked for. Coverage is the mean over stays and channels of the share of the values of a stay
that lie inside; then over 100 random divisions of the 3,200 stays into calibration and test.

BIDMC: the heart rate from 32 s of PPG and ECG, windows that do not overlap, every fourth sample. Patients are what is
new, and there are 46. Seven models are each trained on six patients; of the other 40 each is left out once, and 39
calibrate, so that no rank is rounded. Coverage is the mean over patients and models of the share of their windows. All
windows of a patient count; with one window of each, 100 times drawn, intervals are exact on average, and differ more.

Models are small and trained for a few epochs: whether intervals cover does not depend on how good a model is, only how
wide they are does.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lformer import LFormerForecaster, LFormerRegressor, Panel, __version__, data
from lformer.data.store import raw_home
from lformer.estimators.conformal import calibrated, level_of
from lformer.sealed import write_text

Array = np.ndarray[Any, Any]
COVERAGES = (0.5, 0.8, 0.9, 0.95)
KINDS = (None, "gaussian", "quantiles")
CUT = 24.0  # hours
DRAWS = 100
MODELS, TRAINED = 7, 6  # models, and patients that each is trained on
SMALL: dict[str, Any] = {"width": 32, "depth": 1, "random_state": 0, "device": "cpu"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/coverage.json"))
    parser.add_argument("--only", choices=["physionet", "bidmc"], help="one data set")
    parser.add_argument("--stays", type=int, default=1000, help="training stays of PhysioNet")
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    rows = json.loads(given.out.read_text()) if given.out.exists() else []
    for name in ("physionet", "bidmc") if given.only is None else (given.only,):
        for kind in KINDS:
            began = time.perf_counter()
            found = physionet(kind, given.stays, given.epochs) if name == "physionet" else bidmc(kind, given.epochs)
            about = {
                "data": name, "uncertainty": kind, "seconds": round(time.perf_counter() - began),
                "versions": {"lformer": __version__, "torch": torch.__version__}, "machine": platform.machine(),
            }  # fmt: skip
            rows = [row for row in rows if (row["data"], row["uncertainty"]) != (name, kind)] + [about | found]
            write_text(given.out, json.dumps(rows, indent=1) + "\n")
            print(f"{name}, {kind}: {about['seconds']} s, {found['coverage']}", flush=True)
    print(table(rows))


# -- PhysioNet


def physionet(kind: Any, stays: int, epochs: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = data.load("physionet", task="reconstruct", scaling="none")
        asked = {name: at_the_cut(getattr(parts, name).panel) for name in ("validation", "test")}
        model = LFormerForecaster(
            horizon=CUT, uncertainty=kind, extrapolate="warn", max_epochs=epochs, n_copies=2, **SMALL
        ).fit(parts.train.panel[:stays])
        known, times, truth = asked["validation"]
        model.calibrate(known, truth, times)
        told = {c: model.predict_interval(*asked["test"][:2], coverage=c) for c in COVERAGES}
        told = {c: np.concatenate(intervals) for c, intervals in told.items()}
        found = [told_scores(model, *one) for one in asked.values()]
    truth, owner = np.concatenate(asked["test"][2]), found[1].owner
    inside = {c: within(truth, ends) for c, ends in told.items()}
    early = np.nan_to_num(found[1].ahead <= model.calibration_.edges[-1], nan=False)
    return {
        "train": min(stays, len(parts.train.panel)),
        "calibration": len(asked["validation"][0]),
        "test": len(asked["test"][0]),
        "values": int((~np.isnan(truth)).sum()),
        "coverage": {str(c): over_series(one, owner) for c, one in inside.items()},
        "pooled": {str(c): round(float(np.nanmean(one)), 4) for c, one in inside.items()},
        "near": {str(c): over_series(one[early], owner[early]) for c, one in inside.items()},
        "far": {str(c): over_series(one[~early], owner[~early]) for c, one in inside.items()},
        "width": {str(c): in_deviations(ends, model, truth) for c, ends in told.items()},
        "divisions": divisions(found, model.calibration_.edges),
        "score": round(float(model.history_[-1]["mse_unseen"]), 4),
    }


def at_the_cut(panel: Panel) -> tuple[Panel, list[Array], list[Array]]:
    """Stays until the cut, and the times and values after it; without stays that lack either."""
    panel = panel.compact()
    series = [(np.asarray(times, float), values) for times, values in panel]
    kept = [
        i
        for i, (times, values) in enumerate(series)
        if np.isfinite(values[times < CUT]).any() and np.isfinite(values[times >= CUT]).any()
    ]
    some = panel[kept]
    known = Panel.from_list(
        [(series[i][0][series[i][0] < CUT], series[i][1][series[i][0] < CUT]) for i in kept],
        channels=list(panel.channels),
        ids=some.ids.tolist(),
        unit=panel.unit or None,
    )
    later = [series[i][0] >= CUT for i in kept]
    return (
        known,
        [series[i][0][t] for i, t in zip(kept, later, strict=True)],
        [series[i][1][t] for i, t in zip(kept, later, strict=True)],
    )


class Scores:
    """How far the truth lies from the answers, in deviations: an interval holds it if that is at most its threshold."""

    def __init__(self, scores: Array, owner: Array, ahead: Array) -> None:
        self.scores, self.owner, self.ahead = scores, owner, ahead


def told_scores(model: Any, known: Panel, times: list[Array], truth: list[Array]) -> Scores:
    told = model._told(model._queries(known, times))
    owner = np.repeat(np.arange(len(told.lengths)), told.lengths)
    return Scores(model._scores(told, np.concatenate(truth)), owner, told.ahead)


def divisions(found: list[Scores], edges: Array) -> dict[str, list[float]]:
    """Mean and deviation of the coverage over random divisions of all series into calibration and test."""
    first, second = found
    scores = np.concatenate([first.scores, second.scores])
    owner = np.concatenate([first.owner, second.owner + first.owner.max() + 1])
    ahead = np.concatenate([first.ahead, second.ahead])
    n, rng = int(owner.max()) + 1, np.random.default_rng(0)
    seen: dict[str, list[float]] = {str(c): [] for c in COVERAGES}
    for _ in range(DRAWS):
        mine = np.isin(owner, rng.permutation(n)[: n // 2])
        calibration = calibrated(scores[mine], owner[mine], ahead[mine], edges)
        for c in COVERAGES:
            limit = calibration.at(c)[:, calibration.bins(ahead[~mine])].T
            inside = np.where(np.isnan(scores[~mine]), np.nan, scores[~mine] <= limit)
            seen[str(c)].append(over_series(inside, owner[~mine]))
    return {c: [round(float(np.mean(x)), 4), round(float(np.std(x)), 4)] for c, x in seen.items()}


def within(truth: Array, ends: Array) -> Array:
    """(N, C) 1 where the truth lies inside, 0 where not, NaN where there is none."""
    return np.where(np.isnan(truth), np.nan, (ends[..., 0] <= truth) & (truth <= ends[..., 1]))


def over_series(inside: Array, owner: Array) -> float:
    """The mean over series and channels of the share of the values of each that lie inside."""
    known, n = ~np.isnan(inside), int(owner.max()) + 1
    shares = []
    for c in range(inside.shape[1]):
        count = np.bincount(owner[known[:, c]], minlength=n)
        hits = np.bincount(owner[known[:, c]], inside[known[:, c], c], minlength=n)
        shares.append((hits / np.maximum(count, 1))[count > 0])
    return round(float(np.concatenate(shares).mean()), 4)


def in_deviations(ends: Array, model: Any, truth: Array) -> float:
    """The mean width where something was asked for, in deviations of a channel."""
    wide = (ends[..., 1] - ends[..., 0]) / np.asarray(model.task_.scale)
    return round(float(wide[np.isfinite(wide) & ~np.isnan(truth)].mean()), 3)


# -- BIDMC


def bidmc(kind: Any, epochs: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        panel, rates, patient = windows()
        names = np.unique(patient)
        order = np.random.default_rng(0).permutation(len(names))
        folds = order[: MODELS * TRAINED].reshape(MODELS, TRAINED)
        shares: dict[float, list[float]] = {c: [] for c in COVERAGES}
        widths: dict[float, list[float]] = {c: [] for c in COVERAGES}
        single: dict[float, list[float]] = {c: [] for c in COVERAGES}
        for fold in folds:
            mine = np.isin(patient, names[fold])
            model = LFormerRegressor(uncertainty=kind, max_epochs=epochs, members=1, **SMALL)
            model.fit(panel[mine], rates[mine])
            told = model._told(panel[~mine])
            scores, owner = model._scores(told, rates[~mine][:, None]), patient[~mine]
            for name in np.unique(owner):
                new = owner == name
                found = calibrated(scores[~new], owner[~new], np.zeros((~new).sum()), np.zeros(0))
                for c in COVERAGES:
                    limit = float(found.thresholds[0, 0, level_of(c) - 1])
                    shares[c].append(float((scores[new] <= limit).mean()))
                    widths[c].append(limit)
            for c, shares_of in one_window_each(scores[:, 0], owner).items():
                single[c] += shares_of
    return {
        "patients": len(names),
        "calibration": len(names) - TRAINED - 1,
        "test": len(names),
        "values": len(panel),
        "coverage": {str(c): round(float(np.mean(x)), 4) for c, x in shares.items()},
        "deviation": {str(c): round(float(np.std(x)), 4) for c, x in shares.items()},
        "one window each": {str(c): round(float(np.mean(x)), 4) for c, x in single.items()},
        "threshold": {str(c): round(float(np.mean(x)), 3) for c, x in widths.items()},
    }


def one_window_each(scores: Array, owner: Array) -> dict[float, list[float]]:
    """Coverage of each patient, by one window of each of the others, drawn again and again."""
    names, rng = np.unique(owner), np.random.default_rng(0)
    mine = [np.flatnonzero(owner == name) for name in names]
    found: dict[float, list[float]] = {c: [] for c in COVERAGES}
    for _ in range(DRAWS):
        drawn = scores[[rng.choice(some) for some in mine]]
        for i, some in enumerate(mine):
            ordered = np.append(np.sort(np.delete(drawn, i)), np.inf)
            for c in COVERAGES:
                rank = int(np.ceil(round(c * len(names), 6)))
                found[c].append(float((scores[some] <= ordered[rank - 1]).mean()))
    return found


def windows() -> tuple[Panel, Array, Array]:
    """Windows that do not overlap, every fourth sample; their heart rates, and whose they are."""
    parts = data.load("bidmc-hr", split="subject", scaling="none")
    raw = np.load(raw_home() / "bidmc" / "bidmc.npz")
    subject = dict(zip(raw["record"].tolist(), raw["mimic2_subject"].tolist(), strict=True))
    series, ids, rates = [], [], []
    for part in (parts.train, parts.validation, parts.test):
        for i, name in enumerate(part.panel.ids.tolist()):
            if int(name.split("+")[1].rstrip("s")) % 33 == 0:  # a window is 32 s long, and one starts every 3 s
                times, values = part.panel[i]
                series.append((np.asarray(times)[::4], values[::4]))
                ids.append(name)
                rates.append(float(part.targets.values[part.members[i], 0]))
    panel = Panel.from_list(series, channels=["PPG", "ECG"], ids=ids, unit="window")
    return panel, np.array(rates), np.array([subject[name.split("+")[0]] for name in ids])


# -- the table


def table(rows: list[dict[str, Any]]) -> str:
    """Coverage in per cent, by what was asked for."""
    head = " | ".join(f"{100 * c:g} %" for c in COVERAGES)
    lines = [f"| data, `uncertainty` | {head} |", "| :-- |" + " --: |" * len(COVERAGES)]
    for row in rows:
        shown = [f"{100 * row['coverage'][str(c)]:.1f}" for c in COVERAGES]
        lines.append(f"| {row['data']}, {row['uncertainty']} | {' | '.join(shown)} |")
        if "divisions" in row:
            both = [f"{100 * m:.1f} ± {100 * s:.1f}" for m, s in (row["divisions"][str(c)] for c in COVERAGES)]
            lines.append(f"| the same, {DRAWS} divisions | {' | '.join(both)} |")
        if "one window each" in row:
            shown = [f"{100 * row['one window each'][str(c)]:.1f}" for c in COVERAGES]
            lines.append(f"| the same, one window per patient | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
