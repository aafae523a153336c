"""A Gaussian process for each channel of each series: smooth, periodic and white."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from lformer.bench.defaults.grid import channel_means, clocks
from lformer.bench.defaults.measures import Answers
from lformer.bench.defaults.problem import Problem
from lformer.panel import Array

RESTARTS = 4  # of the search for lengths and period, from random places


class GaussianProcess:
    """scikit-learn's, with kernels RBF + periodic + white, fitted again to what is known of each test series."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def fit(self, problem: Problem) -> None:
        """Nothing but the means of the channels: a series is all that a process sees."""
        self._mean = channel_means(problem.train)

    def answer(self, problem: Problem) -> Answers:
        """Means of the fitted processes at the times asked for."""
        said = []
        for (times, values), asked in zip(clocks(problem.test), problem.asked, strict=True):
            found = np.tile(self._mean, (len(asked), 1))
            for c in range(values.shape[1]):
                seen = ~np.isnan(values[:, c])
                if seen.sum() > 2:
                    found[:, c] = self._told(times[seen], values[seen, c].astype(np.float64), asked)
            said.append(found)
        return Answers(said=said)

    def _told(self, times: Array, values: Array, asked: Array) -> Array:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor

        process = GaussianProcessRegressor(
            _kernel(times), normalize_y=True, n_restarts_optimizer=RESTARTS, random_state=self._seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound is an answer, too
            return process.fit(times[:, None], values).predict(asked[:, None])


def _kernel(times: Array) -> Any:
    """Lengths and period between the usual gap and the span of a series."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, WhiteKernel

    gap, span = float(np.median(np.diff(times))), float(times[-1] - times[0])
    smooth = ConstantKernel(1.0) * RBF(span / 4, (gap, 10 * span))
    periodic = ConstantKernel(1.0) * ExpSineSquared(1.0, span / 3, (0.1, 10.0), (2 * gap, span))
    return smooth + periodic + WhiteKernel(0.1, (1e-6, 2.0))
