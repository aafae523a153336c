"""Death in hospital, hour by hour of the stay: a model that streams beside one that reads each record as a whole.

LFORMER_DATA=... python scripts/mortality_by_hour.py [--out results/mortality_by_hour.json] [--set max_epochs=5 ...]
python scripts/mortality_by_hour.py --draw docs/guides/mortality-by-hour.png

Both are default classifiers with covariates, fitted on the training and validation part of a fold of PhysioNet 2012,
sets A and B. The streaming one follows the stays of the test part, all of them in one `Streams`, and is asked at the
end of every sixth hour. The offline one reads the record up to then again.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from lformer import LFormerClassifier, Panel, __version__, data
from lformer.panel import join, without_rows
from lformer.sealed import write_text

HOURS = range(6, 49, 6)
FOLD = 42
Told = list[dict[str, float]]


def parts() -> tuple[Panel, Any, Panel, Any]:
    """Stays to learn from and their ends, those to be judged by and theirs."""
    splits = data.load("physionet", task="classify", split="folds", scaling="none", seed=FOLD)
    train, validation, test = (part.panel.compact() for part in (splits.train, splits.validation, splits.test))
    ends = [part.targets.values[part.members] for part in (splits.train, splits.validation, splits.test)]
    return join([train, validation]), np.concatenate(ends[:2]), test, ends[2]


def until(panel: Panel, hour: float) -> Panel:
    """The stays as they were known at an hour."""
    return without_rows(panel, panel.times > hour)


def scores(truth: Any, risk: Any) -> dict[str, float]:
    return {"auroc": float(roc_auc_score(truth, risk)), "auprc": float(average_precision_score(truth, risk))}


def live(model: LFormerClassifier, test: Panel, truth: Any) -> tuple[Told, dict[str, float]]:
    """Every row of every stay, in the order in which they came, once."""
    streams, risk, told, rows = model.streams(), np.full(len(test), truth.mean()), [], 0
    owner = np.repeat(np.arange(len(test)), test.lengths)
    values = np.where(test.observed, test.values, np.nan)
    began = time.process_time()
    for hour in HOURS:
        now = np.flatnonzero((test.times <= hour) & (test.times > (hour - 6 if hour > 6 else -1)))
        ids = test.ids[owner[now]]
        answers = streams.update(ids, test.times[now], values[now], static=test.static)[:, 1]
        order = np.lexsort((test.times[now], owner[now]))
        risk[owner[now][order]] = answers[order]  # the last of each stays
        rows += len(now)
        told.append({"hour": hour, **scores(truth, risk)})
    seconds = time.process_time() - began
    whole = model.predict_proba(test)[:, 1]
    return told, {
        "rows": rows,
        "microseconds per row": 1e6 * seconds / rows,
        "largest difference from predict": float(np.abs(risk - whole).max()),
    }


def offline(model: LFormerClassifier, test: Panel, truth: Any) -> Told:
    return [{"hour": hour, **scores(truth, model.predict_proba(until(test, hour))[:, 1])} for hour in HOURS]


def measure(change: dict[str, Any]) -> dict[str, Any]:
    """Both models, fitted and judged."""
    train, y, test, truth = parts()
    found: dict[str, Any] = {
        "task": "in-hospital mortality, PhysioNet 2012, sets A and B", "fold": FOLD, "trained on": len(train),
        "judged by": len(test), "deaths": int(truth.sum()), "changed": change,
        "machine": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} thread",
        "versions": {"lformer": __version__, "torch": torch.__version__},
    }  # fmt: skip
    for name, streaming in (("streaming", True), ("offline", False)):
        model = LFormerClassifier(streaming=streaming, device="cpu", random_state=0, verbose=0, **change)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.fit(train, y)
        found[name] = {"CPU seconds of fit": time.process_time() - began, "epochs": model.n_iter_}
        if streaming:
            found[name]["by hour"], found[name]["stream"] = live(model, test, truth)
        else:
            found[name]["by hour"] = offline(model, test, truth)
        print(name, json.dumps(found[name], indent=1), flush=True)
    return found


def draw(record: dict[str, Any], out: Path) -> None:
    """AUROC by hour of both."""
    from lformer.bench.plots import require_matplotlib

    plt = require_matplotlib()
    figure, axes = plt.subplots(figsize=(6.4, 3.4), dpi=150)
    for name, colour, mark in (("streaming", "#0b6e4f", "o"), ("offline", "#8a8a8a", "s")):
        rows = record[name]["by hour"]
        label = {"streaming": "streaming, row by row", "offline": "offline, the record read again"}[name]
        axes.plot([row["hour"] for row in rows], [row["auroc"] for row in rows], color=colour, marker=mark, label=label)
    axes.set(xlabel="hours since admission", ylabel="AUROC", xticks=list(HOURS))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/mortality_by_hour.json"))
    parser.add_argument("--draw", type=Path, help="only draw what --out holds into this file")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="change the estimators")
    given = parser.parse_args()
    if given.draw:
        draw(json.loads(given.out.read_text()), given.draw)
        return
    change = {name: ast.literal_eval(value) for name, value in (text.split("=", 1) for text in given.set)}
    write_text(given.out, json.dumps(measure(change), indent=1) + "\n")


if __name__ == "__main__":
    main()
