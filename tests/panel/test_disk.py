"""Panels on disk: what is written comes back as it was, mapped and not read; what is damaged is refused."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lformer import LFormerClassifier, Panel
from lformer.panel import big, disk, sample, sampling
from lformer.parts import PanelPart, Targets, sampled
from lformer.sealed import DamagedError

FIELDS = ("times", "values", "observed", "first", "lengths", "ids", "origin")


def assert_same(found: Panel, wanted: Panel) -> None:
    for name in FIELDS:
        one, two = getattr(found, name), getattr(wanted, name)
        assert (one is None) == (two is None), name
        if two is not None:
            assert one.dtype == two.dtype, name
            np.testing.assert_array_equal(one, two, name)
    assert (found.channels, found.unit, found.zone) == (wanted.channels, wanted.unit, wanted.zone)
    assert (found.scale, found.pad_to) == (wanted.scale, wanted.pad_to)
    if wanted.static is None:
        assert found.static is None
    else:
        pd.testing.assert_frame_equal(found.static, wanted.static, check_names=False)


def long_table(seed: int = 0, rows: int = 700) -> pd.DataFrame:
    """Uneven stamps, three channels that are seldom observed together, values that are missing; in no order."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "who": rng.integers(0, 23, rows) ** 2,
            "when": rng.integers(0, 40, rows) * 0.37,
            "lab": rng.choice(["k", "na", "cl"], rows),
            "x": rng.normal(140, 3, rows),
        }
    ).drop_duplicates(["who", "when", "lab"])
    table["x"] = table["x"].mask(rng.random(len(table)) < 0.1)
    return table.reset_index(drop=True)


def as_files(table: pd.DataFrame, folder: Path, count: int = 3) -> Path:
    folder.mkdir()
    for n, part in enumerate(np.array_split(np.arange(len(table)), count)):
        table.iloc[part].to_parquet(folder / f"{n}.parquet", index=False)
    return folder


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the table were larger than memory."""
    for name, size in {"READ": 100, "FEWEST": 8, "MOST": 64}.items():
        monkeypatch.setattr(big, name, size)


def in_berlin(table: pd.DataFrame) -> pd.DataFrame:
    stamps = pd.Timestamp("2024-03-30 20:00", tz="Europe/Berlin") + pd.to_timedelta(table["when"], unit="h")
    return table.assign(when=stamps.dt.floor("min"))


TABLES: dict[str, Any] = {
    "unsorted": lambda table: table,
    "sorted": lambda table: table.sort_values(["who", "when"]),
    "text": lambda table: table.assign(who="p" + table["who"].astype(str)),
    "dates": lambda table: table.assign(when=pd.Timestamp("2024-02-28") + pd.to_timedelta(table["when"], unit="h")),
    "zone": in_berlin,
    "durations": lambda table: table.assign(when=pd.to_timedelta(table["when"], unit="min")),
    "whole": lambda table: table.assign(when=(100 * table["when"]).round().astype("int64")),
    "categories": lambda table: table.assign(lab=table["lab"].astype("category")),
}


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("kind", TABLES)
def test_files_make_the_panel_of_their_table(kind: str, tmp_path: Path) -> None:
    table = TABLES[kind](long_table())
    columns = {"id": "who", "time": "when", "channel": "lab", "value": "x", "on_duplicate": "last"}
    found = Panel.from_parquet(as_files(table, tmp_path / "files"), tmp_path / "panel", **columns)
    wanted = Panel.from_long(table, **columns)
    assert_same(found, wanted)
    assert_same(Panel.open(tmp_path / "panel"), wanted)
    assert len(list((tmp_path / "panel").iterdir())) <= 8  # and nothing of what was written on the way


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("on_duplicate", ["mean", "last", "keep"])
def test_duplicates_and_marks_are_treated_as_in_memory(on_duplicate: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = long_table().assign(x=lambda t: t["x"].mask(rng.random(len(t)) < 0.2, -9999.0))
    table = pd.concat([table, table.sample(60, random_state=0).assign(x=lambda t: t["x"] + 1)])
    options: dict[str, Any] = {
        "id": "who", "time": "when", "channel": "lab", "value": "x", "on_duplicate": on_duplicate, "unit": "h",
        "missing_values": {"na": -9999}, "channels": ["na", "mg", "cl", "k"], "dtype": np.float64,
        "static": pd.DataFrame({"age": rng.random(500), "site": pd.Categorical(rng.choice(["n", "s"], 500))}),
    }  # fmt: skip
    with pytest.warns(UserWarning, match="kept as rows") if on_duplicate == "keep" else nullcontext():
        wanted = Panel.from_long(table, **options)
        found = Panel.from_parquet(as_files(table, tmp_path / "files"), tmp_path / "panel", **options)
    assert_same(found, wanted)
    assert_same(Panel.open(tmp_path / "panel"), wanted)


@pytest.mark.usefixtures("small_pieces")
def test_a_column_for_each_channel(tmp_path: Path) -> None:
    wide = long_table().pivot(index=["who", "when"], columns="lab", values="x").reset_index().sample(frac=1.0)
    folder = as_files(wide, tmp_path / "files")
    for n, options in enumerate([{}, {"value": ["na", "k"]}, {"value": "k"}]):
        found = Panel.from_parquet([folder], tmp_path / str(n), id="who", time="when", **options)
        assert_same(found, Panel.from_long(wide, id="who", time="when", **options))
    whole = wide.fillna(0.5)
    found = Panel.from_parquet(as_files(whole, tmp_path / "more"), tmp_path / "whole", id="who", time="when")
    assert found.observed is None


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"who": None}, "2.parquet: 'who' must name a series in every row; row 4 has none"),
        ({"when": None}, "2.parquet: every observation needs a time; series"),
        ({"lab": None}, "'lab' must name a channel in every row"),
        ({"x": np.inf}, "an observed value must be finite"),
        ({"who": 0, "when": 0.0, "lab": "k"}, r"must not occur twice; .* id 0, time 0.0, channel 'k' \(2 times\)"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_left(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    table = long_table()
    row = table.assign(who=0, when=0.0, lab="k", x=1.0).iloc[:1]
    table = pd.concat([table.query("who != 0 or when != 0 or lab != 'k'"), row])
    folder = as_files(table, tmp_path / "files")
    last = pd.read_parquet(folder / "2.parquet")
    for name, entry in change.items():
        last[name] = [*last[name][:4], entry, *last[name][5:]]
    last.to_parquet(folder / "2.parquet")
    with pytest.raises(ValueError, match=words):
        Panel.from_parquet(folder, tmp_path / "panel", id="who", time="when", channel="lab", value="x")
    assert [path.name for path in tmp_path.iterdir()] == ["files"]


def test_wrong_requests(tmp_path: Path) -> None:
    folder = as_files(long_table(), tmp_path / "files")
    with pytest.raises(ValueError, match="no column 'patient'; the table has 'who'"):
        Panel.from_parquet(folder, tmp_path / "panel", id="patient", time="when")
    with pytest.raises(FileNotFoundError, match=r"no Parquet file is called .*none\*"):
        Panel.from_parquet(tmp_path / "none*", tmp_path / "panel", id="who", time="when")
    (folder / "9.parquet").write_bytes(b"no Parquet")
    with pytest.raises(ValueError, match=r"9.parquet cannot be read as Parquet"):
        Panel.from_parquet(folder, tmp_path / "panel", id="who", time="when", channel="lab", value="x")
    dated = long_table().assign(when=pd.Timestamp("2024-02-28"))
    dated.to_parquet(folder / "9.parquet")
    with pytest.raises(ValueError, match=r"9.parquet: stamps of all files must be of one type"):
        Panel.from_parquet(folder, tmp_path / "panel", id="who", time="when", channel="lab", value="x")
    with pytest.raises(FileExistsError, match="already exists"):
        Panel.from_parquet(folder, folder, id="who", time="when", channel="lab", value="x")


# -- a folder that was written


def a_panel() -> Panel:
    rng = np.random.default_rng(3)
    lengths = [5, 0, 17, 1, 9]
    series = [(np.sort(rng.random(n)), np.where(rng.random((n, 2)) < 0.3, np.nan, rng.random((n, 2)))) for n in lengths]
    static = pd.DataFrame({"age": [1, 2, 3, 4, 5], "site": ["a", None, "b", "a", "c"]}, index=list("vwxyz"))
    return Panel.from_list(series, ids=list("vwxyz"), static=static)


def test_what_is_saved_is_opened_without_being_read(tmp_path: Path) -> None:
    panel = a_panel()
    for name, one in {"whole": panel, "some": panel[[3, 1]], "windows": panel.cut(4)}.items():
        one.save(tmp_path / name)
        found = Panel.open(tmp_path / name)
        assert_same(found, one.compact() if name == "some" else one)
        assert isinstance(found.values.base, np.memmap) or isinstance(found.values.base.base, np.memmap)
        assert not found.values.flags.writeable
    for ours, theirs in zip(
        Panel.open(tmp_path / "whole").batch([2, 0]).__dict__.values(),
        panel.batch([2, 0]).__dict__.values(),
        strict=True,
    ):
        assert (ours is None and theirs is None) or bool((ours == theirs).all())
    with pytest.raises(FileExistsError, match="already exists"):
        panel.save(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["flip", "cut", "lost", "edited", "foreign", "pickle", "half"])
def test_a_damaged_folder_is_refused(damage: str, tmp_path: Path) -> None:
    a_panel().save(tmp_path / "panel")
    file, description = tmp_path / "panel" / "values.npy", tmp_path / "panel" / disk.DESCRIPTION
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(content[:-4])
    elif damage == "lost":
        file.unlink()
    elif damage == "edited":
        description.write_text(description.read_text().replace('"0"', '"1"'))
    elif damage == "foreign":
        shutil.copy(tmp_path / "panel" / "times.npy", file)
    elif damage == "pickle":
        np.save(file, np.array([print], dtype=object), allow_pickle=True)
        about = json.loads(description.read_text())
        about["files"]["values.npy"] = [file.stat().st_size, disk._digest(file)]
        del about["sha256"]
        disk.sealed.write_json(description, about)
    else:
        description.unlink()
        with pytest.raises(ValueError, match=r"not a panel, or not a complete one: it has no panel.json"):
            Panel.open(tmp_path / "panel")
        return
    with pytest.raises(DamagedError, match="is damaged"):
        Panel.open(tmp_path / "panel")
    if damage not in ("flip",):  # which only reading to the end can find
        with pytest.raises(DamagedError, match="is damaged"):
            Panel.open(tmp_path / "panel", verify=False)


# -- training on it


def test_a_large_panel_is_sampled_and_thinned_by_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    level = np.arange(60) % 2
    sizes = rng.integers(3, 30, 60)
    series = [(np.sort(rng.random(n)), rng.normal(3 * y, 1, (n, 2))) for y, n in zip(level, sizes, strict=True)]
    Panel.from_list(series).save(tmp_path / "panel")
    panel = Panel.open(tmp_path / "panel")
    part = PanelPart(panel, Targets(values=level, at="series"), np.arange(60), seed=1)
    assert len(sampled(part)) == 60
    monkeypatch.setattr(sampling, "LARGE", 200)
    assert len(sampled(part)) < 20
    np.testing.assert_array_equal(sampled(part).panel.ids, sample(panel))

    def no_copy(self: Panel) -> Panel:
        assert self.lengths.sum() < 500, "a copy of all rows"
        return compact(self)

    compact = Panel.compact
    monkeypatch.setattr(Panel, "compact", no_copy)
    once, again, next_epoch = (list(part.training_batches(8, epoch, 0.1)) for epoch in (0, 0, 1))
    assert sorted(torch.cat([batch.index for batch in once]).tolist()) == list(range(60))
    rows = sum(int(batch.lengths.sum()) for batch in once)
    assert 0.5 * panel.lengths.sum() < rows < 0.95 * panel.lengths.sum()
    assert rows == sum(int(batch.lengths.sum()) for batch in again)
    assert rows != sum(int(batch.lengths.sum()) for batch in next_epoch)
    for batch in once:
        assert batch.targets is not None
        np.testing.assert_array_equal(batch.targets, level[batch.index])
        np.testing.assert_array_equal(batch.start, panel.first_times(batch.index.numpy()))

    model = LFormerClassifier(max_epochs=2, width=16, depth=1, heads=2, random_state=0).fit(panel, level)
    assert model.score(panel, level) > 0.8


def test_training_on_disk_is_training_in_memory(tmp_path: Path) -> None:
    panel = a_panel().cut(3)
    panel.save(tmp_path / "panel")
    models = [
        LFormerClassifier(max_epochs=1, width=8, depth=1, heads=1, random_state=0).fit(one, np.arange(len(panel)) % 2)
        for one in (panel, Panel.open(tmp_path / "panel"))
    ]
    np.testing.assert_array_equal(*(model.predict_proba(panel) for model in models))
