"""How much of a batch is padding, as the data doctor tells it."""

from __future__ import annotations

import numpy as np
import pytest

from lformer.doctor.layout import padding
from lformer.panel import Panel


def test_padding_by_hand() -> None:
    lengths = np.asarray([1, 9, 1, 9])
    assert padding(lengths, 1) == (0.0, 0.0)
    assert padding(lengths, 4)[0] == pytest.approx(1 - 20 / 36)
    assert padding(lengths, 2)[1] == 0.0
    assert padding(lengths, 3)[1] == pytest.approx(1 - 20 / (27 + 9))
    assert padding(np.zeros(0, np.int64), 4) == (0.0, 0.0)


def test_padding_is_that_of_training() -> None:
    """Pools of fifty batches, sorted within: measured on the batches that training would draw."""
    from lformer.doctor import layout
    from lformer.parts import POOL, PanelPart, Targets

    assert layout.POOL == POOL
    rng = np.random.default_rng(3)
    lengths = rng.geometric(0.1, 700)
    panel = Panel.build(np.zeros(lengths.sum()), np.zeros((lengths.sum(), 1), np.float32), lengths)
    part = PanelPart(panel, Targets(values=np.zeros(700), at="series"), np.arange(700), seed=0)
    batches = list(part.training_batches(4, epoch=0))
    padded = sum(b.times.numel() for b in batches)
    assert padding(lengths, 4)[1] == pytest.approx(1 - lengths.sum() / padded, abs=0.005)
    assert padding(lengths, 4)[0] > 2 * padding(lengths, 4)[1]
