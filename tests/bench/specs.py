"""What the complete data sets have, and a small batch for any configuration."""

from dataclasses import replace
from typing import Any

import torch
from helpers import irregular_arrays

from lformer import IrregularBatch
from lformer.parts import Spec

SPECS = {
    "ethanol": Spec(inputs=3, outputs=4, answer="series"),
    "scp1": Spec(inputs=6, outputs=2, answer="series"),
    "bidmc-hr": Spec(inputs=2, outputs=1, answer="series"),
    "activity": Spec(inputs=12, outputs=7, answer="step"),
    "pendulum": Spec(inputs=24 * 24, outputs=2, answer="step"),
    "spiral-2": Spec(inputs=2, outputs=2, answer="query"),
    "physionet": Spec(inputs=37, outputs=37, answer="step"),
}


def batch_for(config: Any) -> IrregularBatch:
    shape = (24, 24) if config.embedder == "frames" else (config.inputs,)
    values, times, lengths = irregular_arrays(3, 12, config.inputs, seed=0, dtype=torch.float32)
    times = times / 500
    if len(shape) == 1:
        values[0, :, 0] = torch.nan  # never observed, so that what is said of such a channel counts
    queries = times[:, :4] + 0.01 if config.answer == "query" else None
    batch = IrregularBatch.build(values.unflatten(-1, shape), times, lengths=lengths, query_times=queries)
    return replace(batch, static=torch.ones(3, config.statics)) if config.statics else batch
