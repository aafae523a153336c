"""Saved estimators: the same answers to the last digit, and refused clearly when damaged or made up."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from estimators.every_estimator import SIX, SMALL, answers, close, fitted, records, same
from estimators.saved_models import changed, resealed, with_weights
from sklearn.exceptions import NotFittedError

from lformer import LFormerClassifier, LFormerForecaster, LFormerInterpolator, LFormerRegressor
from lformer.estimators import artefact, load
from lformer.nn.ensemble import Ensemble
from lformer.sealed import parse_json

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
    assert found["format"] == 6
    assert found["fitted"]["classes_"]["values"] == ["größer", "ill", "well"]
    assert [entry["name"] for entry in found["features"]["covariates"]] == ["age", "site"]
    assert found["versions"].keys() == {"lformer", "python", "torch", "numpy", "scikit-learn"}
    assert found["weights"]["bytes"] == (saved / "model.safetensors").stat().st_size
    assert found["columns"] is None


def test_the_columns_of_a_table_are_kept_in_the_same_file(saved: Path, classifier: LFormerClassifier) -> None:
    columns = {"id": "who", "channel": None, "value": ["k", "na"], "static": []}
    artefact.save(classifier, saved, columns)
    assert artefact.load_with_columns(saved)[1] == columns
    classifier.save(saved)
    assert artefact.load_with_columns(saved)[1] is None
    for wrong in ({"colour": "red"}, {"id": 3}, {"static": "age"}, {"value": [1]}, {"time": None}):
        with pytest.raises(ValueError, match=r"cannot be saved: (columns has an entry|\w+ must be)"):
            artefact.save(classifier, saved, wrong)


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


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    model = fitted(LFormerRegressor)
    model.set_params(batch_size=0)
    with pytest.raises(ValueError, match="cannot be saved: batch_size must be a whole number from 1; got 0"):
        model.save(tmp_path / "m")
    model.set_params(batch_size=np.int64(8), width=np.int32(8))
    model.task_ = replace(model.task_, scale=[1.0, np.inf])
    with pytest.raises(ValueError, match="cannot be saved: scale must be a finite number; got inf"):
        model.save(tmp_path / "m")
    model.task_ = replace(model.task_, scale=[1.0, 2.0])
    with torch.no_grad():
        model.model_.head[-1].bias[0] = torch.nan
    with pytest.raises(ValueError, match=r"cannot be saved: head\.0\.bias is not finite\. Fit it again"):
        model.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


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
    for keep in (0, 4, 200, -5):
        (any_saved / "model.safetensors").write_bytes(weights[:keep])
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged, or not .* where [\d,]+ were written"):
            load(any_saved)
        with_weights(any_saved, weights[:keep])
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
            load(any_saved)
    flipped = bytearray(weights)
    flipped[-7] ^= 64
    with_weights(any_saved, weights)
    load(any_saved)
    (any_saved / "model.safetensors").write_bytes(flipped)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged, or not the file .*SHA-256 differs"):
        load(any_saved)
    (any_saved / "model.safetensors").write_bytes(weights)
    text = (any_saved / "estimator.json").read_bytes()
    for key in ("format", "class", "parameters", "config", "features", "task", "fitted", "columns", "weights"):
        changed(any_saved, key, to=None)
        with pytest.raises(ValueError, match=rf"estimator\.json (has no format|holds a None|.* it has no '{key}')"):
            load(any_saved)
        (any_saved / "estimator.json").write_bytes(text)


@pytest.mark.parametrize("any_saved", SIX, indirect=True)
def test_the_files_of_another_model_do_not_fit(any_saved: Path, all_saved: Path) -> None:
    own = json.loads((any_saved / "estimator.json").read_text(encoding="utf-8"))["class"]
    for kind in SIX:
        if kind.__name__ == own:
            continue
        other = all_saved / kind.__name__ / "model.safetensors"
        shutil.copy(other, any_saved)
        with pytest.raises(ValueError, match=r"model\.safetensors (does not fit|is damaged, or not the file)"):
            load(any_saved)
        changed(any_saved, "class", to=kind.__name__)
        with pytest.raises(ValueError, match=r"estimator\.json does not describe|does not fit|not the file saved with"):
            load(any_saved)
        changed(any_saved, "class", to=own)


def test_every_flipped_byte_of_the_description_is_named_or_changes_nothing(saved: Path) -> None:
    path, draw = saved / "estimator.json", random.Random(0)
    whole = path.read_bytes()
    meaning, unchanged = parse_json(whole, "it"), 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        try:
            load(saved)
        except ValueError as error:
            assert "estimator.json" in str(error)  # noqa: PT017
        else:
            unchanged += 1
            assert parse_json(bytes(flipped), "it") == meaning
    assert unchanged < 50


def test_flipped_bytes_of_the_weights_are_named(saved: Path) -> None:
    path, draw = saved / "model.safetensors", random.Random(0)
    whole = path.read_bytes()
    for place in [*range(8), *draw.sample(range(8, len(whole)), 300)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"model\.safetensors (is damaged|does not fit)"):
            load(saved)
    path.write_bytes(whole)
    load(saved)


@pytest.mark.parametrize("text", ["", '{"format": 1, "cla', "\xff", "[" * 100_000, "[1]", "{}", '{"format": 6}'])
def test_damaged_json_is_named(saved: Path, text: str) -> None:
    (saved / "estimator.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"estimator\.json is damaged: .* Save the model again"):
        load(saved)


def test_newer_formats_and_unknown_classes_ask_for_an_update(saved: Path) -> None:
    changed(saved, "class", to="os.system")
    with pytest.raises(ValueError, match=r"holds a 'os\.system', but this version knows LFormerClassifier"):
        load(saved)
    for version in (1, 2, 3, 4, 5):
        changed(saved, "format", to=version)
        with pytest.raises(ValueError, match=rf"format {version}, which this version no longer reads: .*Fit and"):
            load(saved)
    (saved / "estimator.json").write_text('{"format": 2, "sha256": "of the weights"}')  # what came before had no seal
    with pytest.raises(ValueError, match="format 2, which this version no longer reads"):
        load(saved)
    resealed(saved, {"format": 7})
    with pytest.raises(ValueError, match=r"format 7, but this version reads up to 6: .*pip install -U lformer"):
        load(saved)
    for version in ("x", True, 0, None, [3]):
        resealed(saved, {"format": version})
        with pytest.raises(ValueError, match="has no format number"):
            load(saved)


NESTED: Any = 1
for _ in range(300):
    NESTED = [NESTED]

WRONG = [
    (("features",), None, "it has no 'features'"),
    (("more",), 1, "it has an entry 'more'"),
    (("parameters",), 3, "parameters must be an object"),
    (("parameters", "colour"), "red", "parameters has an entry 'colour'"),
    (("parameters", "lr"), None, "parameters has no 'lr'"),
    (("parameters", "lr"), float("nan"), "lr must be a finite number, text"),
    (("parameters", "lr"), NESTED, "lr must be a finite number, text"),
    (("parameters", "batch_size"), 0, "batch_size must be a whole number from 1"),
    (("parameters", "batch_size"), True, "batch_size must be a whole number from 1"),
    (("parameters", "batch_size"), 10**400, "batch_size must be a whole number from 1"),
    (("parameters", "device"), "cuda:7", "device must be"),
    (("parameters", "device"), ["cpu"], "device must be"),
    (("parameters", "class_weight"), {"pairs": [["a"]]}, "class_weight must hold pairs"),
    (("parameters", "class_weight"), {"pairs": [["a", 1], ["a", 2]]}, "the keys of class_weight must all be different"),
    (("parameters", "class_weight"), {"pairs": [[["a"], 1]]}, "class_weight must be a finite number, text"),
    (("config", "colour"), "red", "config has an entry 'colour'"),
    (("config", "mu"), "red", "mu must be one of"),
    (("config", "mu"), ["fixed"], "mu must be text"),
    (("config", "width"), "8", "width must be a whole number"),
    (("config", "width"), 8.0, "width must be a whole number"),
    (("config", "depth"), True, "depth must be a whole number"),
    (("config", "depth"), 0, "depth must be at least 1"),
    (("config", "head_layers"), -1, "head_layers must be a whole number from 0"),
    (("config", "hidden"), 0, "hidden must be a whole number from 1"),
    (("config", "dropout"), float("nan"), "dropout must be a finite number"),
    (("config", "causal"), 1, "causal must be true or false"),
    (("config", "answer"), "step", "place of the answers: step where the rest of the file needs series"),
    (("config", "inputs"), 5, "inputs of the model: 5 where the rest of the file needs 2"),
    (("config", "rows"), "observed", "neighbours must be at least 0, and 0 unless rows="),
    (("members",), True, "members must be a whole number from 0"),
    (("members",), -1, "members must be a whole number from 0"),
    (("members",), 1.0, "members must be a whole number from 0"),
    (("features", "clock"), [1.0], "clock must be two numbers, when it begins and how long it is"),
    (("features", "clock"), [0.0, 0.0], "the length of the clock must be greater than 0"),
    (("features", "clock"), ["a", 1.0], "clock must be a finite number"),
    (("features", "channels"), ["k"], "known: 2 where the rest of the file needs 1"),
    (("features", "channels"), ["k", "k"], "channels must all be different; 'k' occurs twice"),
    (("features", "channels"), ["k", 1], "channels must be text"),
    (("features", "channels"), "kn", "channels must be a list"),
    (("features", "known"), {"dtype": "|b1", "values": [1, 0]}, r"known must hold numbers of the type \|b1"),
    (("features", "known"), {"dtype": "<f8", "values": [1.0, 0.0]}, "known must be truth values"),
    (("features", "known"), {"dtype": "|b1", "values": [False, False]}, "known must be truth values, at least one"),
    (("features", "unit"), 3, "unit must be text"),
    (("features", "calendar"), 1, "calendar must be true or false"),
    (("features", "calendar"), True, "unit must be one of ns, us"),
    (("features", "periods"), ["fortnight"], "periods must be among hour, weekday, year; got 'fortnight'"),
    (("features", "periods"), "hour", "periods must be a list"),
    (("features", "periods"), ["hour"], "periods need dates as time stamps, but these are numbers"),
    (("features", "zone"), "Middle/Earth", "zone must be the name of a time zone"),
    (("features", "zone"), 3, "zone must be text"),
    (("parameters", "calendar"), {"tuple": ["fortnight"]}, "calendar must name periods among"),
    (("parameters", "calendar"), {"tuple": [["hour"]]}, "calendar must be a finite number, text"),
    (("parameters", "calendar"), True, 'calendar must be "auto", False or a tuple'),
    (("config", "marks"), 6, "marks of the model: 6 where the rest of the file needs 3"),
    (("config", "marks"), -1, "marks must be a whole number from 0"),
    (("config", "series_scale"), 1, "series_scale must be true or false"),
    (("config", "series_scale"), True, "series_scale=True scales predictions like the channels"),
    (("features", "covariates"), [], r"static covariates of the model: \d+ where the rest of the file needs 0"),
    (("features", "covariates", 0, "mean"), float("inf"), "the mean of a covariate must be a finite number"),
    (("features", "covariates", 0, "mean"), 10**400, "the mean of a covariate must be a finite number"),
    (("features", "covariates", 0, "mean"), "50", "the mean of a covariate must be a finite number"),
    (("features", "covariates", 0, "deviation"), 0, "the deviation of a covariate must be greater than 0"),
    (("features", "covariates", 0, "deviation"), -2.5, "the deviation of a covariate must be greater than 0"),
    (("features", "covariates", 0, "deviation"), True, "the deviation of a covariate must be a finite number"),
    (("features", "covariates", 0, "name"), "site", "the names of covariates must all be different"),
    (("features", "covariates", 1, "categories"), ["süd", "süd"], "categories must all be different"),
    (("features", "covariates", 1, "categories"), [["süd"], "x"], "categories must be text"),
    (("task", "shift"), [1.0], "shift and scale must have"),
    (("task", "scale"), [1.0], "classes have no scale"),
    (("fitted", "classes_"), None, "fitted has no 'classes_'"),
    (("fitted", "classes_", "values"), ["a", "b"], "classes_: 2 where the rest of the file needs 3"),
    (("fitted", "classes_", "values"), ["a"], "classes_ must be at least two"),
    (("fitted", "classes_", "values"), ["a", "b", "a"], "classes_ must all be different; 'a' occurs twice"),
    (("fitted", "classes_", "values"), ["a", "b", 3], "classes_ must be text"),
    (("fitted", "classes_", "dtype"), "<M8[s]", r"classes_ has the type '<M8\[s\]', which is not a valid array type"),
    (("fitted", "classes_", "dtype"), "i4,f8", "which is not a valid array type"),
    (("fitted", "classes_"), {"dtype": "|i1", "values": [1, 2, 300]}, r"classes_ must hold numbers of the type \|i1"),
    (("fitted", "classes_"), {"dtype": "|u1", "values": [1, 2, -3]}, r"classes_ must hold numbers of the type \|u1"),
    (("fitted", "classes_"), {"dtype": "<i8", "values": [1, 2, 10**400]}, "classes_ must hold numbers of the type <i8"),
    (("fitted", "classes_"), {"dtype": "<i8", "values": [1, 2, True]}, "classes_ must hold numbers of the type <i8"),
    (("fitted", "classes_"), {"dtype": "|O", "values": ["a", "b", ["c"]]}, "classes_ must be a finite number, text"),
    (("fitted", "n_features_in_"), True, "n_features_in_ must be a whole number from 1"),
    (("fitted", "_is_table"), 0, "_is_table must be true or false"),
    (("fitted", "n_iter_"), -1, "n_iter_ must be a whole number from 0"),
    (("columns",), [], "columns must be an object or null"),
    (("columns",), {"id": ["who"]}, "id must be text"),
    (("weights", "file"), "../model.safetensors", "weights must be in a file such as model.safetensors"),
    (("weights", "file"), "/etc/passwd", "weights must be in a file such as model.safetensors"),
    (("weights", "sha256"), "0" * 63, "sha256 must be 64 hexadecimal digits"),
    (("weights", "bytes"), -1, "bytes must be a whole number from 0"),
]


@pytest.mark.parametrize(("path", "to", "reason"), WRONG, ids=lambda value: str(value)[:40])
def test_a_description_that_makes_no_sense_is_named(saved: Path, path: Any, to: Any, reason: str) -> None:
    changed(saved, *path, to=to)
    with pytest.raises(ValueError, match=r"estimator\.json does not describe an estimator: .*" + reason):
        load(saved)


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ([1.0, 0.0], "scale must be greater than 0; got 0.0"),
        ([1.0, -2.0], "scale must be greater than 0; got -2.0"),
        ([1.0, float("nan")], "scale must be a finite number; got nan"),
        ([1.0, float("inf")], "scale must be a finite number; got inf"),
        ([1.0, 10**400], "scale must be a finite number; got 1000"),
        ([1.0, True], "scale must be a finite number; got True"),
        ([1.0, "2"], "scale must be a finite number; got '2'"),
        ([1.0], "shift and scale must have 2 numbers"),
        ([], "the scale of the predictions is missing"),
    ],
)
@pytest.mark.parametrize("any_saved", [LFormerRegressor, LFormerForecaster], indirect=True)
def test_scales_must_be_finite_and_greater_than_0(any_saved: Path, to: Any, reason: str) -> None:
    changed(any_saved, "task", "scale", to=to)
    with pytest.raises(ValueError, match=r"estimator\.json does not describe an estimator: .*" + reason):
        load(any_saved)


@pytest.mark.parametrize(
    ("any_saved", "path", "to", "reason"),
    [
        (LFormerForecaster, ("parameters", "horizon"), 0, "horizon must be greater than 0"),
        (LFormerForecaster, ("parameters", "horizon"), "soon", "horizon must be a number, or a duration with its unit"),
        (LFormerForecaster, ("parameters", "horizon"), "-2h", "horizon must be greater than 0"),
        (LFormerForecaster, ("parameters", "horizon"), True, "horizon must be a finite number"),
        (LFormerForecaster, ("features", "channels"), ["k"], "known: 2"),
        (LFormerInterpolator, ("parameters", "hidden"), 1, "hidden must lie between 0 and 1"),
        (LFormerRegressor, ("fitted", "_flat"), True, "outputs of the model: 2 where the rest of the file needs 1"),
        (LFormerRegressor, ("fitted", "_flat"), 0, "_flat must be true or false"),
    ],
    indirect=["any_saved"],
)
def test_what_only_some_have_is_checked_too(any_saved: Path, path: Any, to: Any, reason: str) -> None:
    changed(any_saved, *path, to=to)
    with pytest.raises(ValueError, match=r"estimator\.json does not describe an estimator: .*" + reason):
        load(any_saved)


def test_text_is_as_wide_as_its_longest_entry_and_no_wider(tmp_path: Path) -> None:
    wide = np.array(["well", "ill"] * 6, dtype="<U500")
    model = LFormerClassifier(**SMALL).fit(records(), wide)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.classes_.dtype == "<U4"
    assert np.array_equal(again.predict(records()), model.predict(records()))


def test_loading_draws_no_random_numbers(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it disturbs no other thread that does."""

    def seeded(*arguments: Any) -> None:
        raise AssertionError("the generator of the process was seeded")

    before = torch.get_rng_state()
    monkeypatch.setattr(torch, "manual_seed", seeded)
    monkeypatch.setattr(torch, "set_rng_state", seeded)
    load(saved)
    assert torch.equal(torch.get_rng_state(), before)
