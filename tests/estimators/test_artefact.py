"""Saved estimators: the same answers to the last digit, written whole or not at all, refused clearly when damaged."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from estimators.every_estimator import SIX, SMALL, answers, close, fitted, records, same
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError

from lformer import LFormerClassifier, LFormerForecaster, LFormerRegressor
from lformer.estimators import artefact, load
from lformer.nn.ensemble import Ensemble

N = 12


CLASSES = {
    "text": np.array(["well", "ill", "größer"] * 4),
    "objects": np.array(["well", "ill"] * 6, dtype=object),
    "int": np.arange(N, dtype=np.int32) % 3 * 10,
    "bool": np.arange(N) % 2 == 0,
    "float": np.arange(N) % 2 * 2.0,
}


@pytest.fixture(scope="module")
def classifier() -> LFormerClassifier:
    return LFormerClassifier(**SMALL).fit(records(), CLASSES["text"])


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("kind", SIX)
def test_every_estimator_answers_the_same_to_the_last_digit(kind: Any, dated: bool, tmp_path: Path) -> None:
    model, fresh = fitted(kind, records(dated=dated)), records(seed=1, dated=dated)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert type(again) is kind
    assert again.get_params() == model.get_params()
    assert again.model_.config == model.model_.config
    assert (again.features_.unit, again.features_.calendar) == (("h", True) if dated else ("", False))
    assert again.features_.covariates == model.features_.covariates
    assert again.features_.covariates.columns.keys() == {"age", "site"}
    assert same(answers(again, fresh), answers(model, fresh))
    assert close_in_minutes(again, fresh) if dated else True


def close_in_minutes(model: Any, X: Any) -> bool:
    """Stamps of a panel that counts in another unit are the same stamps."""
    table, static = X.to_long(), X.static
    long = {"id": "id", "time": "time", "channel": "channel", "value": "value", "static": static}
    hours, minutes = (type(X).from_long(table, unit=unit, **long) for unit in ("h", "min"))
    assert np.allclose(60 * hours.times, minutes.times)
    return close(answers(model, hours), answers(model, minutes))


def test_an_ensemble_is_kept_whole_and_streams(tmp_path: Path) -> None:
    X = records()
    model, other = (fitted(LFormerClassifier, X, streaming=True, random_state=seed) for seed in (0, 1))
    single = answers(model, X)
    model.model_ = Ensemble([model.model_, other.model_])
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert same(answers(again, X), answers(model, X))
    assert not close(answers(again, X), single)
    stream = again.stream({"age": 50.0, "site": "north"})
    for time, values in zip(*X[0], strict=True):
        told = stream.update(time, values)
    alone = replace(X[[0]], static=pd.DataFrame({"age": [50.0], "site": ["north"]}))
    assert np.allclose(told, model.predict_proba(alone)[0], atol=1e-5)


def test_what_a_forecaster_was_told_is_kept(tmp_path: Path) -> None:
    fitted(LFormerForecaster, horizon=2.5, n_copies=3).save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.horizon, again.n_copies) == (2.5, 3)
    assert np.isfinite(again.fit(records()).score(records(seed=1)))


@pytest.fixture
def saved(classifier: LFormerClassifier, tmp_path: Path) -> Path:
    classifier.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("kind", CLASSES)
def test_a_classifier_answers_the_same_to_the_last_digit(kind: str, tmp_path: Path) -> None:
    y = CLASSES[kind]
    weight = {label: 1.0 + i for i, label in enumerate(np.unique(y).tolist())}
    model = LFormerClassifier(**SMALL, class_weight=weight).fit(records(), y)
    model.save(tmp_path / "m")
    before = torch.get_rng_state()
    again = load(tmp_path / "m")
    assert torch.equal(torch.get_rng_state(), before)
    assert type(again) is LFormerClassifier
    assert again.classes_.dtype == y.dtype
    assert again.get_params() == model.get_params()
    assert again.model_.config == model.model_.config
    assert not again.model_.training
    fresh = records(seed=1)
    assert np.array_equal(again.predict_proba(fresh), model.predict_proba(fresh))
    assert np.array_equal(again.predict(fresh), model.predict(fresh))
    assert (again.n_iter_, again.n_features_in_) == (model.n_iter_, 2)


@pytest.mark.parametrize("outputs", [None, 1, 2])
def test_a_regressor_answers_the_same_to_the_last_digit(outputs: int | None, tmp_path: Path) -> None:
    y = np.random.default_rng(5).normal(100, 9, N if outputs is None else (N, outputs))
    model = LFormerRegressor(**{**SMALL, "streaming": True}).fit(records(), y)
    model.save(tmp_path / "m")
    again = load(str(tmp_path / "m"))
    assert type(again) is LFormerRegressor
    assert again.model_.first_interval == model.model_.first_interval != 1
    predicted = again.predict(records(seed=1))
    assert predicted.shape == y.shape
    assert np.array_equal(predicted, model.predict(records(seed=1)))


def test_a_loaded_estimator_is_as_strict_as_the_saved_one_and_trains_on(tmp_path: Path) -> None:
    table = np.random.default_rng(0).random((N, 5))
    model = LFormerClassifier(**SMALL, warm_start=True).fit(table, np.arange(N) % 2)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    with pytest.raises(ValueError, match="expecting 5 features"):
        again.predict(table[:, :4])
    again.fit(table, np.arange(N) % 2)
    model.fit(table, np.arange(N) % 2)
    assert np.array_equal(again.predict_proba(table), model.predict_proba(table))


def test_the_files_are_plain_and_as_readable_as_any_other(saved: Path) -> None:
    assert {entry.name for entry in saved.iterdir()} == {"model.safetensors", "estimator.json"}
    (saved.parent / "usual").touch()
    usual = (saved.parent / "usual").stat().st_mode
    assert all(entry.stat().st_mode == usual for entry in saved.iterdir())
    found = json.loads((saved / "estimator.json").read_text(encoding="utf-8"))
    assert found["format"] == 2
    assert found["fitted"]["classes_"]["values"] == ["größer", "ill", "well"]
    assert [entry["name"] for entry in found["features"]["covariates"]] == ["age", "site"]
    assert found["versions"].keys() == {"lformer", "python", "torch", "numpy", "scikit-learn"}


def test_saving_again_replaces_and_leaves_nothing_beside(saved: Path, classifier: LFormerClassifier) -> None:
    other = LFormerClassifier(**{**SMALL, "random_state": 4}).fit(records(), CLASSES["text"])
    artefact.save(other, saved, {"id": "who"})
    assert artefact.read_json(saved, "columns.json") == {"id": "who"}
    other.save(saved)
    assert not (saved / "columns.json").exists()
    assert load(saved).random_state == 4
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("step", ["as_bytes", "rename"])
def test_a_failed_save_leaves_the_old_model_and_no_rest(
    saved: Path, classifier: LFormerClassifier, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError("no space left on device")

    if step == "as_bytes":
        monkeypatch.setattr(artefact, "as_bytes", full)
    else:  # the last of two renames fails
        rename = Path.rename
        monkeypatch.setattr(Path, "rename", lambda a, b: full() if a.suffix == ".part" else rename(a, b))
    with pytest.raises(OSError, match="no space"):
        classifier.save(saved)
    monkeypatch.undo()
    assert [entry.name for entry in saved.parent.iterdir()] == ["model"]
    assert np.array_equal(load(saved).predict_proba(records()), classifier.predict_proba(records()))


def test_other_files_are_never_deleted(classifier: LFormerClassifier, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other things than a model \(notes.txt\)"):
        classifier.save(tmp_path)
    with pytest.raises(ValueError, match=r"notes.txt is a file"):
        classifier.save(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    classifier.save(tmp_path / "empty")
    assert load(tmp_path / "empty").width == 8


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        LFormerClassifier().save(tmp_path / "m")
    drawn = LFormerClassifier(**{**SMALL, "random_state": np.random.RandomState(0)}).fit(records(), CLASSES["int"])
    with pytest.raises(ValueError, match=r"random_state cannot be saved.*set_params\(random_state=None\)"):
        drawn.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    drawn.set_params(random_state=np.int64(7)).save(tmp_path / "m")
    assert load(tmp_path / "m").random_state == 7

    class Mine(LFormerClassifier):
        pass

    with pytest.raises(ValueError, match=r"only LFormerClassifier, LFormerRegressor, .* can be saved; got .*Mine"):
        Mine(**SMALL).fit(records(), CLASSES["int"]).save(tmp_path / "n")


def test_missing_folders_and_files_are_named(saved: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        load(saved.parent / "nowhere")
    with pytest.raises(ValueError, match=r"estimator\.json is not a folder"):
        load(saved / "estimator.json")
    for name in ("model.safetensors", "estimator.json"):
        aside = (saved / name).rename(saved / "aside")
        with pytest.raises(FileNotFoundError, match=f"{name} is missing"):
            load(saved)
        aside.rename(saved / name)


@pytest.fixture(scope="module")
def all_saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("six")
    for kind in SIX:
        fitted(kind).save(home / kind.__name__)
    return home


@pytest.fixture
def any_saved(all_saved: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of one of the six, to be damaged."""
    return Path(shutil.copytree(all_saved / request.param.__name__, tmp_path / "model"))


@pytest.mark.parametrize("any_saved", SIX, indirect=True)
def test_damage_of_any_of_the_six_is_named(any_saved: Path) -> None:
    weights = (any_saved / "model.safetensors").read_bytes()
    text = (any_saved / "estimator.json").read_text(encoding="utf-8")
    for keep in (0, 4, 200, -5):
        (any_saved / "model.safetensors").write_bytes(weights[:keep])
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
            load(any_saved)
    flipped = bytearray(weights)
    flipped[-7] ^= 64
    (any_saved / "model.safetensors").write_bytes(flipped)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged, or not the file .*SHA-256 differs"):
        load(any_saved)
    (any_saved / "model.safetensors").write_bytes(weights)
    load(any_saved)
    for key in ("format", "class", "parameters", "config", "features", "fitted", "sha256"):
        changed(any_saved, key, to=None)
        with pytest.raises(ValueError, match=r"estimator\.json (has no format|holds a None|does not describe)"):
            load(any_saved)
        (any_saved / "estimator.json").write_text(text, encoding="utf-8")
    changed(any_saved, "format", to=99)
    with pytest.raises(ValueError, match=r"format 99, but this version reads up to 2: .*pip install -U lformer"):
        load(any_saved)


@pytest.mark.parametrize("any_saved", SIX, indirect=True)
def test_the_files_of_another_model_do_not_fit(any_saved: Path, all_saved: Path) -> None:
    own = json.loads((any_saved / "estimator.json").read_text(encoding="utf-8"))["class"]
    for kind in SIX:
        if kind.__name__ == own:
            continue
        shutil.copy(all_saved / kind.__name__ / "model.safetensors", any_saved)
        with pytest.raises(ValueError, match=r"does not fit estimator\.json beside it|SHA-256 differs"):
            load(any_saved)
        changed(any_saved, "class", to=kind.__name__)
        with pytest.raises(ValueError, match=r"estimator\.json does not describe|does not fit|SHA-256 differs"):
            load(any_saved)
        changed(any_saved, "class", to=own)


@pytest.mark.parametrize("text", ["", '{"format": 1, "cla', "\xff", "[" * 100_000, "[1]"])
def test_damaged_json_is_named(saved: Path, text: str) -> None:
    (saved / "estimator.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"estimator\.json (is damaged|must hold a JSON object)"):
        load(saved)


def changed(folder: Path, *path: str, to: Any) -> None:
    """Set one entry of estimator.json; None takes it out."""
    file = folder / "estimator.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    file.write_text(json.dumps(found), encoding="utf-8")


def test_newer_formats_and_unknown_classes_ask_for_an_update(saved: Path) -> None:
    changed(saved, "class", to="os.system")
    with pytest.raises(ValueError, match=r"holds a 'os\.system', but this version knows LFormerClassifier"):
        load(saved)
    changed(saved, "format", to=1)
    with pytest.raises(ValueError, match=r"format 1, which this version no longer reads: .*Fit and save it again"):
        load(saved)
    changed(saved, "format", to=3)
    with pytest.raises(ValueError, match=r"format 3, but this version reads up to 2: .*pip install -U lformer"):
        load(saved)
    changed(saved, "format", to="x")
    with pytest.raises(ValueError, match="has no format number"):
        load(saved)


@pytest.mark.parametrize(
    ("path", "to", "reason"),
    [
        (("features",), None, "no 'features'"),
        (("fitted", "classes_"), None, "no 'classes_'"),
        (("fitted", "classes_", "values"), ["a"], "classes_: 1 where the rest of the file needs 3"),
        (("fitted", "classes_", "dtype"), "<M8[s]", "no array can have the type"),
        (("features", "channels"), ["k"], "known: 2 where the rest of the file needs 1"),
        (("features", "covariates"), [], r"static covariates of the model: \d+ where the rest of the file needs 0"),
        (("config", "inputs"), 5, "inputs of the model: 5 where the rest of the file needs 2"),
        (("task", "shift"), [1.0], "shift and scale must have"),
        (("parameters", "colour"), "red", "unexpected keyword argument 'colour'"),
        (("config", "colour"), "red", "unexpected keyword argument 'colour'"),
        (("config", "mu"), "red", "mu must be one of"),
        (("config", "width"), "8", "not supported between"),
        (("config", "answer"), "step", "place of the answers: step where the rest of the file needs series"),
    ],
)
def test_a_description_that_makes_no_sense_is_named(saved: Path, path: Any, to: Any, reason: str) -> None:
    changed(saved, *path, to=to)
    with pytest.raises(ValueError, match=r"estimator\.json does not describe an estimator: .*" + reason):
        load(saved)


def test_weights_must_fit_in_name_shape_and_type(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    double = {name: tensor.double() for name, tensor in weights.items()}
    fewer = dict(list(weights.items())[1:])
    right = (saved / "model.safetensors").read_bytes()
    for wrong in (double, fewer):
        save_file(wrong, saved / "model.safetensors")
        with pytest.raises(ValueError, match=r"model\.safetensors does not fit estimator\.json beside it"):
            load(saved)
    (saved / "model.safetensors").write_bytes(right)
    load(saved)
    changed(saved, "config", "width", to=10**6)  # noticed before terabytes are taken
    with pytest.raises(ValueError, match="does not fit"):
        load(saved)
    for width in (10**9, 7):  # too large for any memory; not a multiple of the heads
        changed(saved, "config", "width", to=width)
        with pytest.raises(ValueError, match=r"estimator\.json has a config of no possible model"):
            load(saved)
