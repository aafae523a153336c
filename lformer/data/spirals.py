"""Two-dimensional spirals observed at a few noisy, irregular points (interpolation and extrapolation benchmark).

Generator, scaling, targets and metrics are those of the ContiFormer comparison; the number of points and the noise are
those of the LFormer paper. There is nothing to download.

A spiral has 150 points at angles spread evenly over [0, 6π], which are its times. Half of the spirals wind outwards,
`r = a + b θ`, shifted right by 5; the others wind inwards, `r = a + 50 b / z` with `z = 6π + 1 - θ`, shifted left by 5
and reversed in time. `a ~ N(0, α)`, `b ~ N(0.3, α)`. Both axes are scaled to [0, 1] by the extremes of all clean
curves. The input is noisy and comes from the first half; the target is the clean curve at all 150 points.

Note: the extremes are those of both training and test curves, because the published protocol does so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from lformer.batch import IrregularBatch
from lformer.data.dataset import Card, Dataset
from lformer.parts import Spec, Splits

POINTS, HALF = 150, 75
TRAIN, TEST = 200, 100

Unobserved = Literal["query", "rows"]


def draw(alpha: float, count: int, noise: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw `count` spirals.

    Returns:
        times (150,), and the clean and noisy curves (N, 150, 2), with axes scaled to [0, 1].
    """
    rng = np.random.default_rng(seed)
    theta = np.linspace(0, 6 * math.pi, POINTS)
    a = alpha * rng.standard_normal((count, 1))
    b = 0.3 + alpha * rng.standard_normal((count, 1))
    inwards = rng.random((count, 1)) < 0.5

    z = theta[-1] + 1 - theta
    r_out, r_in = a + b * theta, a + 50 * b / z
    x = np.where(inwards, (r_in * np.cos(z) - 5)[:, ::-1], r_out * np.cos(theta) + 5)
    y = np.where(inwards, (r_in * np.sin(z))[:, ::-1], r_out * np.sin(theta))
    clean = np.stack([x, y], axis=-1)
    noisy = clean + noise * rng.standard_normal(clean.shape)

    low, high = clean.min(axis=(0, 1)), clean.max(axis=(0, 1))
    scaled = [torch.from_numpy((curve - low) / (high - low)).float() for curve in (clean, noisy)]
    return torch.from_numpy(theta), scaled[0], scaled[1]


@dataclass(frozen=True, eq=False)
class SpiralPart:
    """A part of the spirals, with one fixed draw of observed points for evaluation and new ones for training."""

    times: Tensor  # (150,)
    clean: Tensor  # (N, 150, 2)
    noisy: Tensor  # (N, 150, 2)
    points: int
    unobserved: Unobserved
    asked: int  # query times per training batch
    steps: int  # training batches per epoch
    seed: int

    def __len__(self) -> int:
        return len(self.clean)

    def batches(self, size: int) -> Iterator[IrregularBatch]:
        """Every spiral once, in order, all observed at the same points, which are the same in every call."""
        seen = self._points(np.random.default_rng([self.seed, 0]))
        for rows in torch.arange(len(self)).split(size):
            yield self._batch(rows, seen)

    def training_steps(self, size: int) -> int:
        """Batches per epoch, whatever their size, because they are drawn at random."""
        return self.steps

    def training_batches(self, size: int, epoch: int, drop_fraction: float = 0.0) -> Iterator[IrregularBatch]:
        """`steps` random batches, each observed at its own points, as a function of (seed, epoch, step) only."""
        if drop_fraction:
            raise ValueError("drop_fraction must be 0: every batch of spirals is already observed at other points.")
        for step in range(self.steps):
            rng = np.random.default_rng([self.seed, 1, epoch, step])
            rows = torch.from_numpy(rng.permutation(len(self))[:size])
            batch = self._batch(rows, self._points(rng))
            yield self._ask_some(batch, rng) if self.unobserved == "query" else batch

    def _ask_some(self, batch: IrregularBatch, rng: np.random.Generator) -> IrregularBatch:
        """Draw some of the queries: as they are independent, a few at a time train the same at lower cost."""
        asked = torch.from_numpy(rng.permutation(POINTS)[: self.asked])
        assert batch.query_times is not None
        assert batch.targets is not None
        return replace(batch, query_times=batch.query_times[:, asked], targets=batch.targets[:, asked])

    def _points(self, rng: np.random.Generator) -> Tensor:
        return torch.from_numpy(np.sort(rng.permutation(HALF)[: self.points]))

    def _batch(self, rows: Tensor, seen: Tensor) -> IrregularBatch:
        clean, noisy = self.clean[rows], self.noisy[rows]
        start = float(self.times[0])
        if self.unobserved == "query":
            return IrregularBatch.build(
                noisy[:, seen], self.times[seen], t0=start, query_times=self.times, targets=clean
            )
        observed = torch.zeros(clean.shape, dtype=torch.bool)
        observed[:, seen] = True
        return IrregularBatch.build(noisy, self.times, t0=start, observed=observed, targets=clean)


def load(
    alpha: float,
    *,
    seed: int = 42,
    points: int = 30,
    noise: float = 0.1,
    unobserved: Unobserved = "query",
    asked: int = 50,
    validation: int = 30,
    steps: int = 100,
) -> Splits[SpiralPart]:
    """Load the benchmark for one alpha.

    Args:
        alpha: spread of the two parameters of a spiral; 2, 0.2 or 0.02 in the papers.
        seed: random seed of the spirals, their noise and every draw of points.
        points: number of observed points among the first 75; the LFormer paper has 30, ContiFormer 50.
        noise: standard deviation of the noise before scaling; the LFormer paper has 0.1, ContiFormer 0.05.
        unobserved: how the other times are represented. "query": only the observed points are rows, and all 150 times
            are queries. "rows": all 150 times are rows, with value 0 where nothing was observed (paper).
        asked: number of queries in a training batch, redrawn for every batch from the 150 times; evaluation uses all.
        validation: number of the 200 training spirals that are held out; the papers select on the test set instead.
        steps: number of training batches per epoch.

    Returns:
        Splits of 200 - validation, validation and 100 spirals.
    """
    if not 1 <= points <= HALF:
        raise ValueError(f"points must lie between 1 and {HALF}, the first half of a spiral; got {points}.")
    if not 1 <= asked <= POINTS:
        raise ValueError(f"asked must lie between 1 and {POINTS}; got {asked}.")
    if not 1 <= validation < TRAIN:
        raise ValueError(f"validation must lie between 1 and {TRAIN - 1}; got {validation}.")
    times, clean, noisy = draw(alpha, TRAIN + TEST, noise, seed)

    def part(begin: int, end: int) -> SpiralPart:
        return SpiralPart(times, clean[begin:end], noisy[begin:end], points, unobserved, asked, steps, seed)

    return Splits(
        name=f"spiral-{alpha:g}",
        train=part(0, TRAIN - validation),
        validation=part(TRAIN - validation, TRAIN),
        test=part(TRAIN, TRAIN + TEST),
        spec=Spec(inputs=2, outputs=2, answer="query" if unobserved == "query" else "step"),
        task="trajectory",
    )


def _dataset(alpha: float) -> Dataset:
    return Dataset(
        card=Card(
            name=f"spiral-{alpha:g}",
            title=f"2-D spirals, alpha = {alpha:g}",
            page="https://arxiv.org/abs/2402.10635",
            licence="generated by this package, none needed",
            citation="Chen et al., ContiFormer: Continuous-Time Transformer for Irregular Time Series Modeling (2023)",
            series=TRAIN + TEST,
            length=f"{POINTS}",
            channels="2",
            tasks=("trajectory",),
            options={
                "points": (30, 50),
                "noise": (0.1, 0.05),
                "unobserved": get_args(Unobserved),
                "asked": (50,),
                "validation": (30,),
                "steps": (100,),
            },
            variants={"lformer": {"points": 30, "noise": 0.1}, "contiformer": {"points": 50, "noise": 0.05}},
        ),
        draw=lambda request: load(alpha, seed=request.seed, **request.options),
    )


SPIRAL_2, SPIRAL_02, SPIRAL_002 = _dataset(2.0), _dataset(0.2), _dataset(0.02)
