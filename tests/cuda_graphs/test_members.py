"""Members of an ensemble side by side on a GPU: each a thread and a stream, the same models as one after the other."""

from typing import Any

import numpy as np
import pytest
import torch
from estimators.every_estimator import SMALL, records, targets

from lformer import LFormerClassifier, LFormerForecaster, LFormerRegressor
from lformer.cuda_graphs import RecordingError, recording
from lformer.estimators import members as training
from lformer.estimators.base import members_of
from lformer.train import DivergedError
from lformer.train.distributed import World


def fitted(kind: Any, at_once: int | None, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    X = records()
    with monkeypatch.context() as patch:
        if at_once is not None:
            patch.setattr(training, "_at_once", lambda members: at_once)
        settings = SMALL | {"members": 4, "max_epochs": 4, "dropout": 0.2, "drop_fraction": 0.2} | changes
        known = {name: value for name, value in settings.items() if name in kind._get_param_names()}
        y = targets(kind, X)
        return kind(**known).fit(X) if y is None else kind(**known).fit(X, y)


def require_same(one: Any, other: Any, tolerance: float) -> None:
    assert [row["member"] for row in one.history_] == [row["member"] for row in other.history_]
    for a, b in zip(one.history_, other.history_, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=tolerance)
    for a, b in zip(members_of(one.model_), members_of(other.model_), strict=True):
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerRegressor])
def test_side_by_side_by_replay_is_one_after_the_other(
    kind: Any, recorded: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    after = fitted(kind, 1, monkeypatch)
    shapes = sorted(recorded)
    assert shapes
    recorded.clear()
    beside = fitted(kind, 4, monkeypatch)
    assert sorted(recorded) == shapes
    require_same(beside, after, 1e-5)


@pytest.mark.parametrize(
    ("members", "longest", "devices", "expected"),
    [(1, 20, 1, 1), (5, 20, 1, 5), (20, 20, 1, 8), (5, 2**13, 1, 2), (5, 2**20, 1, 1), (5, 20, 2, 1)],
)
def test_a_gpu_has_as_many_as_do_not_fill_it(
    members: int, longest: int, devices: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "join", lambda device: World(torch.device("cuda", 0)))
    settings = training.TrainConfig(batch_size=32, devices=devices)

    class Series:
        def __init__(self) -> None:
            self.train = self.panel = self
            self.lengths = np.array([3, longest])

    some = [training.Member(None, Series(), settings, n) for n in range(members)]  # type: ignore[arg-type]
    assert training._at_once(some) == expected


# --- on a GPU ---

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerForecaster])
def test_on_a_gpu_members_train_side_by_side(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    streams, real, rounding = set(), training.fit, torch.get_float32_matmul_precision()

    def watched(*args: Any, **kwargs: Any) -> Any:
        streams.add(torch.cuda.current_stream().cuda_stream)
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "fit", watched)
    beside = fitted(kind, None, monkeypatch, device="gpu", dropout=0.0)
    assert len(streams) == 4
    assert torch.get_float32_matmul_precision() == rounding
    after = fitted(kind, 1, monkeypatch, device="gpu", dropout=0.0)
    require_same(beside, after, 0.05)


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
def test_on_a_gpu_every_member_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    real = recording.record

    def watched(*args: Any) -> Any:
        try:
            return real(*args)
        except RecordingError as error:
            failed.append(str(error))
            raise

    monkeypatch.setattr(recording, "record", watched)
    for _ in range(3):
        fitted(LFormerClassifier, None, monkeypatch, device="gpu", max_epochs=20, members=6)
    assert failed == []


@pytest.mark.gpu
@on_gpu
def test_on_a_gpu_one_that_fails_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    real = training.fit

    def fails(model: Any, *args: Any, seed: int, **kwargs: Any) -> Any:
        if seed % 4 == 1:
            raise DivergedError("the loss became nan", [])
        return real(model, *args, seed=seed, **kwargs)

    monkeypatch.setattr(training, "fit", fails)
    with pytest.raises(DivergedError, match="nan"):
        fitted(LFormerClassifier, None, monkeypatch, device="gpu", max_epochs=200)
    assert bool(torch.isfinite(torch.randn(3, device="cuda")).all())
