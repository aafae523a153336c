"""Where estimators answer: on the device of their training, by a copy; what they keep and save stays on the CPU."""

import gc
import pickle
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from estimators.every_estimator import POINTS, SERIES, SIX, answers, fitted, records, same, targets

from lformer import LFormerClassifier, LFormerPointRegressor, LFormerRegressor, Panel
from lformer.estimators import base, devices, load
from lformer.estimators import records as asked
from lformer.parts import PanelPart, Targets

TF32 = 16 * 2.0**-10  # units of the last digit of TF32, for products in several layers


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is not the model's: PyTorch tells the first of all CPUs from "the CPU"."""
    monkeypatch.setattr(base, "choose", lambda device: torch.device("cpu", None if device == "cpu" else 0))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Device and rounding of every prediction from now on."""
    found = []

    def watch(module: Any, name: str) -> None:
        work = getattr(module, name)

        def watched(model: torch.nn.Module, *arguments: Any) -> Any:
            found.append((next(model.parameters()).device.type, torch.get_float32_matmul_precision()))
            return work(model, *arguments)

        monkeypatch.setattr(module, name, watched)

    watch(base, "predict")
    watch(asked, "predict")
    watch(asked, "evaluate")
    return found


def on_cpu(model: Any) -> bool:
    return {tensor.device.type for tensor in model.model_.state_dict().values()} == {"cpu"}


def refuse(*arguments: Any) -> None:
    raise AssertionError("the model itself was asked")


def test_a_gpu_answers_more_series_at_a_time_as_long_as_they_are_short() -> None:
    """A batch of training would not fill it."""
    cuda, cpu = torch.device("cuda", 0), torch.device("cpu")

    def part(longest: int, channels: int = 2, asked: int | None = None) -> PanelPart:
        series = [(np.arange(rows), np.zeros((rows, channels))) for rows in (3, longest)]
        queries = None if asked is None else np.array([1, asked])
        return PanelPart(
            Panel.from_list(series), Targets(values=np.zeros(2), at="series", lengths=queries), np.arange(2), 0
        )

    assert devices.series_at_once(part(100), cpu, 32) == 32
    assert devices.series_at_once(part(100), cuda, 32) == 1024
    assert devices.series_at_once(part(1024), cuda, 32) == 256
    assert devices.series_at_once(part(512, asked=512), cuda, 32) == 256
    assert devices.series_at_once(part(1024, channels=128), cuda, 32) == 128
    assert devices.series_at_once(part(2**16), cuda, 32) == 32
    assert devices.series_at_once(part(100).some(np.arange(0)), cuda, 32) == 32


# -- the choice


@pytest.mark.parametrize(
    ("device", "there", "chosen"),
    [("auto", True, "cuda:0"), ("gpu", True, "cuda:0"), ("cpu", True, "cpu"), ("auto", False, "cpu"),
     ("gpu", False, "cpu"), ("cpu", False, "cpu")],
)  # fmt: skip
def test_cuda_is_chosen_where_it_is_and_may_be(
    device: str, there: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert devices.choose(device) == torch.device(chosen)


def test_a_device_of_another_name_is_refused_by_fit_and_predict() -> None:
    says = 'device must be "auto", "cpu" or "gpu"; got \'cuda\''
    model = fitted(LFormerRegressor)
    with pytest.raises(ValueError, match=says):
        model.set_params(device="cuda").predict(records())
    with pytest.raises(ValueError, match=says):
        fitted(LFormerRegressor, device="cuda")


@pytest.mark.parametrize(("device", "rounded"), [("auto", "high"), ("cpu", "highest")])
@pytest.mark.parametrize("kind", SIX)
def test_products_are_rounded_as_in_training(
    kind: Any,
    device: str,
    rounded: str,
    elsewhere: None,
    seen: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = fitted(kind).set_params(device=device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    answers(model, records())
    assert seen == [("cpu", rounded)] * (1 if kind is LFormerRegressor or kind is LFormerPointRegressor else 2)
    assert torch.get_float32_matmul_precision() == "highest"


# -- the copy


@pytest.mark.parametrize("change", [{}, {"members": 2}])
@pytest.mark.parametrize("kind", SIX)
def test_a_copy_answers_as_the_model_and_leaves_no_trace(kind: Any, change: Any, elsewhere: None) -> None:
    X = records()
    model = fitted(kind, X, batch_size=5, **change)
    pickled, attributes = pickle.dumps(model), set(vars(model))
    told = answers(model, X)
    model.set_params(device="auto")
    assert same(answers(model, X), told)
    with model.model_.register_forward_pre_hook(refuse):
        assert same(answers(model, X), told)
        with pytest.raises(AssertionError, match="the model itself"):
            answers(model.set_params(device="cpu"), X)
    assert set(vars(model)) == attributes
    assert not any(module.training for module in model.model_.modules())
    assert pickle.dumps(model) == pickled


def test_a_copy_is_made_once_and_goes_with_its_model(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    copy = devices.deepcopy
    monkeypatch.setattr(devices, "deepcopy", lambda model: made.append(copy(model)) or made[-1])
    X = records()
    model = fitted(LFormerClassifier, X).set_params(device="auto")
    for _ in range(3):
        model.predict(X)
    assert len(made) == 1
    kept = ref(made.pop())
    assert kept() is not None
    del model
    gc.collect()
    assert kept() is None


def test_a_copy_has_the_weights_that_the_model_has_now(elsewhere: None) -> None:
    X = records()
    y = targets(LFormerRegressor, X)
    model = fitted(LFormerRegressor, X, warm_start=True)

    def told(device: str) -> Any:
        return model.set_params(device=device).predict(X)

    before = told("auto")
    next(model.model_.parameters()).data.mul_(1.5)  # nothing counts such a change
    assert not np.allclose(told("auto"), before)
    assert np.array_equal(told("auto"), told("cpu"))
    kept = model.fit(X, y).model_
    assert np.array_equal(told("auto"), told("cpu"))
    kept.first_interval.fill_(3.0)
    assert np.array_equal(told("auto"), told("cpu"))


def test_a_copy_made_in_inference_mode_serves_outside_of_it(elsewhere: None) -> None:
    X = records()
    model = fitted(LFormerClassifier, X)
    told = model.predict_proba(X)
    model.set_params(device="auto")
    with torch.inference_mode():
        assert np.array_equal(model.predict_proba(X), told)
    assert np.array_equal(model.predict_proba(X), told)


def test_a_stream_takes_no_notice_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(LFormerClassifier, streaming=True)
    told = model.stream({"age": 40, "site": "north"}).update(0.5, [1.0, 2.0])
    for module in (base, devices):
        monkeypatch.setattr(module, "choose", refuse)
        monkeypatch.setattr(module, "placed", refuse)
    stream = model.set_params(device="gpu").stream({"age": 40, "site": "north"})
    assert np.array_equal(stream.update(0.5, [1.0, 2.0]), told)


# -- on a GPU

FUSED = {"width": 32, "heads": 2, "device": "gpu"}  # of a size that has kernels


def unit(model: Any) -> float:
    """What a difference is small against: the deviation of the targets, of the channels, or a probability of 1."""
    if type(model) in (LFormerRegressor, LFormerPointRegressor):
        return float(max(model.task_.scale))
    return 1.0 if hasattr(model, "classes_") else float(max(model.task_.scale))


def largest_difference(one: list[Any], two: list[Any]) -> float:
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if np.asarray(a).dtype.kind == "f"]
    assert pairs
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


@pytest.fixture
def any_order() -> None:
    """The running sums of plain PyTorch have no deterministic form on a GPU."""
    torch.use_deterministic_algorithms(False)


def on_gpu(test: Any) -> Any:
    """Marks a test that trains and predicts on CUDA."""
    missing = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    return pytest.mark.gpu(missing(pytest.mark.usefixtures("any_order")(test)))


@on_gpu
@pytest.mark.parametrize("change", [{}, {"members": 2}])
@pytest.mark.parametrize("kind", SIX)
def test_what_a_gpu_trained_it_predicts_as_the_cpu_does(kind: Any, change: Any, seen: list[tuple[str, str]]) -> None:
    X = records()
    model = fitted(kind, X, batch_size=5, **FUSED, **change)
    told = answers(model, X)
    assert set(seen) == {("cuda", "high")}
    assert torch.get_float32_matmul_precision() == "highest"
    assert on_cpu(model)
    seen.clear()
    exact = answers(model.set_params(device="cpu"), X)
    assert set(seen) == {("cpu", "highest")}
    assert [np.asarray(a).dtype for a in told] == [np.asarray(a).dtype for a in exact]
    assert largest_difference(told, exact) <= TF32 * unit(model)


@on_gpu
@pytest.mark.parametrize("kind", SIX)
def test_pickles_and_folders_are_of_the_cpu_and_predict_on_the_gpu(
    kind: Any, tmp_path: Path, seen: list[tuple[str, str]]
) -> None:
    X = records()
    model = fitted(kind, X, **FUSED)
    told, weights = answers(model, X), model.model_.state_dict()
    model.save(tmp_path / "m")
    for again in (pickle.loads(pickle.dumps(model)), load(tmp_path / "m")):
        seen.clear()
        assert largest_difference(answers(again, X), told) <= TF32 * unit(model)
        assert set(seen) == {("cuda", "high")}
        assert on_cpu(again)
        assert all(torch.equal(tensor, weights[name]) for name, tensor in again.model_.state_dict().items())


@on_gpu
def test_a_machine_without_one_reads_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = records()
    model = fitted(LFormerClassifier, X, **FUSED)
    model.predict(X)
    pickled = pickle.dumps(model)
    model.save(tmp_path / "m")
    told = answers(model.set_params(device="cpu"), X)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for again in (pickle.loads(pickled), load(tmp_path / "m")):
        assert again.device == "gpu"
        assert same(answers(again, X), told)


@on_gpu
@pytest.mark.parametrize("kind", SERIES + POINTS)
def test_a_stream_stays_on_the_cpu_beside_it(kind: Any) -> None:
    X = records()
    assert X.static is not None
    model = fitted(kind, X, streaming=True, **FUSED)
    told = model.predict_proba(X[:1])[0] if hasattr(model, "predict_proba") else model.predict(X[:1])[0]
    stream = model.stream(X.static.iloc[0].to_dict())
    for time, values in zip(*X[0], strict=True):
        last = stream.update(time, values)
    told = told[-1] if kind in POINTS else told
    assert np.abs(np.asarray(last) - told).max() <= TF32 * unit(model)


@on_gpu
def test_one_batch_is_there_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lformer.estimators.devices.MOST_NUMBERS", 0)  # batches of four, as in training
    rng = np.random.default_rng(0)
    times = [np.cumsum(rng.exponential(1.0, int(n))) for n in rng.integers(1500, 2000, 64)]
    X = Panel.from_list([(t, rng.normal(size=(len(t), 2))) for t in times])
    y = [rng.normal(size=len(t)) for t in times]
    model = LFormerPointRegressor(batch_size=4, max_epochs=1, random_state=0, **FUSED).fit(X[:8], y[:8])

    def peak(n: int) -> int:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model.predict(X[:n])
        return torch.cuda.max_memory_allocated() - before

    peak(4)  # the copy, and what the kernels keep
    assert peak(64) < 3 * peak(4)
