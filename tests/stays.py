"""Stays in intensive care that nobody had: raw arrays of PhysioNet 2012, drawn at random."""

import numpy as np

from lformer.data.dataset import Array
from lformer.data.physionet_files import OUTCOMES, PARAMETERS


def made(stays: int = 40, seed: int = 0) -> dict[str, Array]:
    """Raw arrays of random stays, with many readings in one bin, bins without any, and one stay with nothing at all."""
    rng = np.random.default_rng(seed)
    minutes, params, values, counts = [], [], [], []
    for stay in range(stays):
        events = 0 if stay == 7 else int(rng.integers(1, 120))
        minutes.append(np.sort(rng.integers(20 if stay % 3 == 0 else 0, 2881, events)) // 3 * 3)
        params.append(rng.integers(0, 41, events))
        values.append(rng.choice([rng.normal(80, 20), 5.0, -1.0], events) + (params[-1] == 9) * 3)
        values[-1] = np.where(params[-1] == 12, -1 - rng.integers(0, 2, events), values[-1])  # never above 0
        values[-1] = np.where(params[-1] == 13, 0, values[-1])
        counts.append(events)
    return {
        "record_id": np.arange(stays, dtype=np.int32) + 100,
        "set": np.array(["a"] * stays),
        "offset": np.cumsum([0, *counts]).astype(np.int32),
        "time_min": np.concatenate(minutes).astype(np.uint16),
        "param": np.concatenate(params).astype(np.uint8),
        "value": np.concatenate(values).astype(np.float32),
        "param_names": np.array(PARAMETERS),
        "outcomes": np.c_[np.arange(stays) + 100, np.zeros((stays, 4)), np.arange(stays) % 2].astype(np.int32),
        "outcome_names": np.array(OUTCOMES),
    }
