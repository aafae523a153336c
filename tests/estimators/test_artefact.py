"""Saved estimators: the same answers to the last digit, written whole or not at all, refused clearly when damaged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError

from lformer import LFormerClassifier, LFormerRegressor, Panel
from lformer.estimators import artefact, load

SMALL: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "max_epochs": 1, "random_state": 3, "device": "cpu"}
N = 12


def records(seed: int = 0) -> Panel:
    """Two asynchronous channels with gaps, and statics: a number with a hole, a text with one."""
    rng = np.random.default_rng(seed)
    series = []
    for _ in range(N):
        values = rng.normal(3.1, 0.7, (6, 2))
        values[rng.random((6, 2)) < 0.3] = np.nan
        series.append((np.sort(rng.random(6)) * 7.3, values))
    static = pd.DataFrame({"age": rng.normal(50, 9, N), "site": ["north", "süd", None] * 4})
    static.loc[2, "age"] = np.nan
    return Panel.from_list(series, channels=["k", "na"], static=static)


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
    fresh = records(1)
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
    predicted = again.predict(records(1))
    assert predicted.shape == y.shape
    assert np.array_equal(predicted, model.predict(records(1)))


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
    assert found["format"] == 1
    assert found["fitted"]["classes_"]["values"] == ["größer", "ill", "well"]
    assert [entry["name"] for entry in found["features"]["statics"]] == ["age", "site"]
    assert found["task"] == {"name": "classify", "outputs": 3}


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

    with pytest.raises(ValueError, match="only LFormerClassifier, LFormerRegressor can be saved"):
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


@pytest.mark.parametrize("text", ["", '{"format": 1, "cla', "\xff", "[" * 100_000, "[1]"])
def test_damaged_json_is_named(saved: Path, text: str) -> None:
    (saved / "estimator.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"estimator\.json (is damaged|must hold a JSON object)"):
        load(saved)


@pytest.mark.parametrize("keep", [0, 4, 200, -5])
def test_cut_off_weights_are_named(saved: Path, keep: int) -> None:
    weights = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(weights[:keep])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
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
    changed(saved, "format", to=2)
    with pytest.raises(ValueError, match=r"format 2, but this version reads up to 1: .*pip install -U lformer"):
        load(saved)
    changed(saved, "format", to="x")
    with pytest.raises(ValueError, match="has no format number"):
        load(saved)


@pytest.mark.parametrize(
    ("path", "to", "reason"),
    [
        (("features",), None, "no 'features'"),
        (("fitted", "classes_"), None, "no 'classes_'"),
        (("fitted", "classes_", "values"), ["a"], "answers: 1 where the rest of the file needs 3"),
        (("fitted", "classes_", "dtype"), "<M8[s]", "no array can have the type"),
        (("features", "channels"), ["k"], "shift: 2 where the rest of the file needs 1"),
        (("features", "statics"), [], "inputs of the model: 10 where the rest of the file needs 6"),
        (("parameters", "colour"), "red", "unexpected keyword argument 'colour'"),
        (("config", "colour"), "red", "unexpected keyword argument 'colour'"),
        (("config", "mu"), "red", "mu must be one of"),
        (("config", "width"), "8", "not supported between"),
        (("task", "name"), "sing", "no 'sing'"),
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
    for wrong in (double, fewer):
        save_file(wrong, saved / "model.safetensors")
        with pytest.raises(ValueError, match=r"model\.safetensors does not fit estimator\.json beside it"):
            load(saved)
    save_file(weights, saved / "model.safetensors")
    load(saved)
    changed(saved, "config", "width", to=10**6)  # noticed before terabytes are taken
    with pytest.raises(ValueError, match="does not fit"):
        load(saved)
    for width in (10**9, 7):  # too large for any memory; not a multiple of the heads
        changed(saved, "config", "width", to=width)
        with pytest.raises(ValueError, match=r"estimator\.json has a config of no possible model"):
            load(saved)
