"""In-hospital mortality of PhysioNet 2012 by the estimators, as anybody would call them, beside boosting.

LFORMER_DATA=folder python scripts/gpu/mortality.py OUT --fold 42 43 --variant plain pretrained [--split p12]
    [--members 5] [--pretrain-epochs 30]

Every stay is handed over as charted, with age, sex, height and unit as covariates. Training and validation stays of a
fold have their labels, and the estimator holds out its own validation part; test stays are only scored.

    plain           LFormerClassifier with its defaults
    no-neighbours   the same, and rows show nothing but themselves
    pretrained      first without labels on the same stays, then as plain
    pretrained-c    the same with the stays of set C beside them, of which no fold of sets A and B has any
    labelled-c      as plain, with the stays of set C and their labels beside those of the fold; so has boosting

One JSON line for each fold and variant, also in OUT/mortality.jsonl: AUROC and AUPRC (%) of test stays and the seconds
of model and boosting. A smoke test on a CPU: --stays 300 --quick.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from lformer import LFormerClassifier, Panel, __version__, data, pretrain, tasks
from lformer.baselines import BASELINES
from lformer.covariates import Covariates
from lformer.estimators import LosesToNaiveWarning
from lformer.evaluate import predict
from lformer.metrics import average_precision, roc_area
from lformer.panel import Array, join
from lformer.parts import PanelPart, Targets

VARIANTS = ("plain", "no-neighbours", "pretrained", "pretrained-c", "labelled-c")
QUICK: dict[str, Any] = {"width": 16, "depth": 1, "heads": 2, "max_epochs": 2}


class Stays(NamedTuple):
    """Stays as charted, and who died."""

    panel: Panel
    died: Array

    def some(self, count: int | None, seed: int) -> Stays:
        """So many of them, drawn by the seed; all if None."""
        if count is None or count >= len(self.panel):
            return self
        chosen = np.sort(np.random.default_rng(seed).permutation(len(self.panel))[:count])
        return Stays(self.panel[chosen].compact(), self.died[chosen])


def loaded(split: str, fold: int) -> tuple[Stays, Stays]:
    """Stays to train and validate on, and stays to test."""
    splits = data.load("physionet", task="classify", split=split, seed=fold, scaling="none", cache=False)
    train, validation, test = (
        Stays(part.panel, part.targets.values[part.members]) for part in (splits.train, splits.validation, splits.test)
    )
    return together(train, validation), test


def together(*parts: Stays) -> Stays:
    return Stays(join([stays.panel for stays in parts]), np.concatenate([stays.died for stays in parts]))


def set_c() -> Stays:
    """The stays of set C: those of P12 that are in no fold of sets A and B."""
    (panel, died), others = together(*loaded("p12", 42)), together(*loaded("folds", 42))
    new = ~np.isin(panel.ids, others.panel.ids)
    return Stays(panel[new].compact(), died[new])


def figures(score: Array, died: Array, began: float) -> dict[str, float]:
    scores, truth = torch.from_numpy(score), torch.from_numpy(died)
    return {
        "auroc": round(100 * roc_area(scores, truth), 2),
        "auprc": round(100 * average_precision(scores, truth), 2),
        "seconds": round(time.perf_counter() - began, 1),
    }


def boosting(known: Stays, test: Stays) -> dict[str, float]:
    """Small trees on summary features and covariates, as the estimator itself compares itself with."""
    began = time.perf_counter()
    task, coding = tasks.classify(2), Covariates.fit(known.panel.static)
    entry = BASELINES["boosting"]
    model: Any = entry.model(entry.config(inputs=len(known.panel.channels), outputs=2, statics=coding.width))

    def part(stays: Stays) -> PanelPart:
        targets = Targets(values=stays.died, at="series")
        return PanelPart(stays.panel, targets, np.arange(len(stays.panel)), 0, static=coding.encode(stays.panel.static))

    model.fit(part(known), task)
    scores = torch.stack(predict(model, task, part(test))).numpy()
    return figures(scores[:, 1] - scores[:, 0], test.died, began)


def assess(variant: str, known: Stays, test: Stays, more: Stays | None, args: argparse.Namespace, fold: int) -> Any:
    """Train one variant and score it on the test stays."""
    began = time.perf_counter()
    shared: dict[str, Any] = {"random_state": fold, "device": args.device, **(QUICK if args.quick else {})}
    if variant == "no-neighbours":
        shared["neighbours"] = 0
    start = None
    if variant.startswith("pretrained"):
        series = [known.panel] if more is None else [known.panel, more.panel]
        epochs = {} if args.pretrain_epochs is None else {"max_epochs": args.pretrain_epochs}
        start = pretrain(*series, **{**shared, **epochs})
        print(f"pre-trained on {sum(map(len, series)):,} stays: {start.history_[-1]}", flush=True)
    spent = time.perf_counter() - began
    model = LFormerClassifier(pretrained=start, members=args.members, **shared).fit(known.panel, known.died)
    found = figures(model.predict_proba(test.panel)[:, 1], test.died, began)
    return {
        **found, "seconds_pretraining": round(spent, 1), "epochs": model.n_iter_,
        "validation_cross_entropy": round(model.validation_score_, 4),
        "boosting_cross_entropy": round(model.naive_score_, 4),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fold", type=int, nargs="+", default=[42], help="seeds, each of which chooses a fold")
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=["plain"])
    parser.add_argument("--split", choices=("folds", "p12"), default="folds")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--pretrain-epochs", type=int, help="passes without labels; chosen by how many stays there are")
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--stays", type=int, help="so many stays to train on, to test and of set C")
    parser.add_argument("--quick", action="store_true", help="a tiny model for two epochs")
    args = parser.parse_args()
    if args.split == "p12" and any(variant.endswith("-c") for variant in args.variant):
        parser.error("set C is part of --split p12: use --variant plain or pretrained")
    for kind in (LosesToNaiveWarning, ConvergenceWarning, data.PartialDataWarning):
        warnings.simplefilter("ignore", kind)

    args.out.mkdir(parents=True, exist_ok=True)
    for fold in args.fold:
        ours, test = (stays.some(args.stays, seed=0) for stays in loaded(args.split, fold))
        for variant in args.variant:
            more = set_c().some(args.stays, seed=0) if variant.endswith("-c") else None
            known = ours
            if variant == "labelled-c" and more is not None:
                known, more = together(ours, more), None
            beside = boosting(known, test)
            line = {
                "split": args.split, "fold": fold, "variant": variant, "members": args.members,
                "stays": [len(known.panel), len(test.panel)], **assess(variant, known, test, more, args, fold),
                "boosting": beside, "quick": args.quick, "torch": torch.__version__, "lformer": __version__,
                "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            }  # fmt: skip
            with (args.out / "mortality.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
