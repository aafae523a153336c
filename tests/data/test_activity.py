"""Human Activity: its text file, the windows of the protocol, and both readings of the misspelt label."""

import hashlib
import zipfile
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real import raw, real

from lformer.data.activity import CLASS_OF, CLASSES, DATASET, FILE, pack, prepare
from lformer.data.dataset import Request
from lformer.data.files import DataError, Files
from lformer.parts import Prepared

Array = np.ndarray[Any, Any]

NPZ = "human_activity/human_activity.npz"
with_data = pytest.mark.skipif(not real(NPZ), reason="raw file not at hand: set LFORMER_DATA")

LINES = """\
A01,010-000-024-033,633790226051280329,27.05.2009 14:03:25:127,4.062931060791016,1.8924342393875122,0.5074254274368286,walking
A01,020-000-033-111,633790226051820913,27.05.2009 14:03:25:183,4.291953563690186,1.7811404466629028,1.344495296478271,walking
A01,020-000-032-221,633790226052091205,27.05.2009 14:03:25:210,4.359101295471191,1.8264556884765625,8.372031152248383E-5,falling
B02,010-000-030-096,633790226052361498,27.05.2009 14:03:25:237,-4.0,1.879998,0.4669834,standing up from sitting on the ground
"""  # noqa: E501


def request(**changes: Any) -> Request:
    asked: dict[str, Any] = {"task": "classify-points", "seed": 0, "split": "published", "scaling": "published"}
    return Request(**{**asked, **changes})


def toy(
    bins: list[int], tags: list[int], activities: list[str], xyz: list[list[float]] | None = None, start: int = 10**9
) -> dict[str, Array]:
    """Raw arrays of one recording with lines at some bins."""
    n = len(bins)
    return {
        "sequence": np.zeros(n, np.uint8),
        "sequence_names": np.array(["A01"]),
        "tag": np.array(tags, np.uint8),
        "ticks": np.array([start + 100_000 * b for b in bins], np.int64),
        "xyz": np.array(xyz if xyz is not None else np.arange(3 * n).reshape(n, 3), np.float32),
        "activity": np.array([list(CLASS_OF).index(name) for name in activities], np.uint8),
        "activity_names": np.array(list(CLASS_OF)),
    }


def joined(recordings: list[dict[str, Array]]) -> dict[str, Array]:
    """Several recordings in one, called A01, A02, ..."""
    both = {key: np.concatenate([r[key] for r in recordings]) for key in ("tag", "ticks", "xyz", "activity")}
    lengths = [len(r["tag"]) for r in recordings]
    return both | {
        "sequence": np.repeat(np.arange(len(recordings)), lengths).astype(np.uint8),
        "sequence_names": np.array([f"A{k + 1:02d}" for k in range(len(recordings))]),
        "activity_names": recordings[0]["activity_names"],
    }


# -- the text file


def check_lines(arrays: dict[str, Array]) -> None:
    assert arrays["sequence"].tolist() == [0, 0, 0, 1]
    assert arrays["sequence_names"].tolist() == ["A01", "B02"]
    assert arrays["tag"].tolist() == [0, 2, 3, 1]
    assert arrays["ticks"].tolist() == [
        633790226051280329, 633790226051820913, 633790226052091205, 633790226052361498,
    ]  # fmt: skip
    assert arrays["date_ms"].tolist() == [50605127, 50605183, 50605210, 50605237]
    assert arrays["xyz"][2].tolist() == [
        np.float32(4.359101295471191),
        np.float32(1.8264556884765625),
        8.372031152248383e-05,
    ]
    assert arrays["activity"].tolist() == [0, 0, 1, 10]
    dtypes = {"sequence": "u1", "tag": "u1", "ticks": "i8", "date_ms": "i4", "xyz": "f4", "activity": "u1"}
    assert {name: arrays[name].dtype.str[1:] for name in dtypes} == dtypes


def test_lines_of_the_original_are_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(LINES)
    check_lines(pack(Files(tmp_path)))
    check_lines(pack(Files(tmp_path / FILE)))


def test_a_zip_windows_line_ends_blank_lines_and_comments_change_nothing(tmp_path: Path) -> None:
    text = "# from the UCI repository\n\n" + LINES.replace("\n", "\r\n") + "\r\n  \r\n"
    with zipfile.ZipFile(tmp_path / "activity.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"data/{FILE}", text)
    check_lines(pack(Files(tmp_path / "activity.zip")))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("1.344495296478271,walking", "1.34", "expected 8 fields .*, got 7"),
        ("020-000-033-111", "020-000-033-112", "expected a tag, one of 010-000-024-033.*got '020-000-033-112'"),
        ("633790226051820913", "63379022605182091x", "expected a time stamp.*got '63379022605182091x'"),
        ("633790226051820913", "-633790226051820913", "expected a time stamp"),
        ("633790226051820913", "6337902260518209130000", "expected a time stamp"),
        ("14:03:25:183", "14:03:25", "expected a date of May 2009 .*got '27.05.2009 14:03:25'"),
        ("27.05.2009 14:03:25:183", "31.02.2009 14:03:25:183", "expected a date of May 2009"),
        ("27.05.2009 14:03:25:183", "27.05.1999 14:03:25:183", "expected a date of May 2009"),
        ("14:03:25:183", "14:73:25:183", "expected a date of May 2009"),
        ("4.291953563690186", "4,29", "expected 8 fields .*, got 9"),
        ("4.291953563690186", "", "expected a position in metres, got ''"),
        ("4.291953563690186", "nan", "expected a position in metres, got 'nan'"),
        ("1.344495296478271,walking", "1.344495296478271,walk", "expected an activity, .*got 'walk'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in LINES.splitlines()[1]
    lines = LINES.splitlines()
    (tmp_path / FILE).write_text("\n".join([lines[0], lines[1].replace(old, new), *lines[2:]]))
    with pytest.raises(DataError, match=rf"{FILE}, line 2: {says}"):
        pack(Files(tmp_path))


def test_a_file_cut_short_or_absent_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"expected exactly one {FILE}"):
        pack(Files(tmp_path))
    (tmp_path / FILE).write_text(LINES[:-60])
    with pytest.raises(DataError, match="line 4: expected 8 fields"):
        pack(Files(tmp_path))
    (tmp_path / FILE).write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        pack(Files(tmp_path))


def test_a_few_lines_are_not_the_complete_set(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(LINES)
    assert DATASET.missing(pack(Files(tmp_path))) == "4 of 164,860 lines, 2 of 25 recordings"


# -- rows


def test_lines_of_one_bin_become_one_row() -> None:
    """Two tags side by side, one of them twice; the others unseen."""
    bins = [0, 3, 3, 3, *range(4, 60)]
    xyz = np.ones((len(bins), 3))
    xyz[1:4] = [[1, 2, 3], [5, 5, 5], [2, 4, 6]]
    arrays = toy(bins, [0, 1, 3, 1] + [2] * 56, ["walking"] * 60, xyz.tolist())
    panel = prepare(arrays, request()).panel
    assert panel.times[:3].tolist() == [0, 3 / 211, 4 / 211]
    assert panel.observed is not None
    assert panel.values[1].tolist() == [0, 0, 0, 1.5, 3, 4.5, 0, 0, 0, 5, 5, 5]
    assert panel.observed[1].tolist() == [False] * 3 + [True] * 3 + [False] * 3 + [True] * 3
    assert panel.channels[:4] == ("ANKLE_LEFT_x", "ANKLE_LEFT_y", "ANKLE_LEFT_z", "ANKLE_RIGHT_x")


def test_times_round_to_the_nearest_bin_from_the_first_line() -> None:
    arrays = toy(list(range(60)), [0] * 60, ["walking"] * 60)
    arrays["ticks"] = arrays["ticks"] + np.where(np.arange(60) > 0, 30_000, 0)
    assert (prepare(arrays, request()).panel.times * 211).round(9).tolist() == list(range(60))
    arrays["ticks"] = arrays["ticks"] + np.where(np.arange(60) > 0, 30_000, 0)  # 0.6 bins later: the next bin
    assert (prepare(arrays, request()).panel.times * 211).round(9).tolist() == [0, *range(2, 61)]


def test_a_step_back_in_time_is_sorted() -> None:
    arrays = toy([0, 2, 1, *range(3, 60)], [0, 1, 2] + [3] * 57, ["walking", "falling", "sitting"] + ["lying"] * 57)
    prepared = prepare(arrays, request())
    assert (prepared.panel.times * 211).round(9).tolist() == list(range(60))
    assert prepared.targets.values[:4].tolist() == [0, 3, 1, 2]
    assert prepared.panel.values[1, 6:9].tolist() == [6, 7, 8]  # the third line, tag CHEST


def test_the_lowest_class_of_a_bin_wins() -> None:
    arrays = toy([0, 1, 1, *range(2, 60)], [0, 1, 2] + [3] * 58, ["lying", "on all fours", "falling"] + ["lying"] * 58)
    assert prepare(arrays, request()).targets.values[:3].tolist() == [2, 1, 2]


@pytest.mark.parametrize(("rule", "last"), [("published", 0), ("corrected", 4)])
def test_eleven_activities_are_seven_classes(rule: str, last: int) -> None:
    names = list(CLASS_OF)
    arrays = toy(list(range(55)), [0] * 55, names * 5)
    labels = prepare(arrays, request(options={"labels": rule})).targets.values
    assert labels.dtype == np.int64
    assert labels[:11].tolist() == [0, 1, 2, 2, 3, 3, 4, 5, 6, 4, last]
    assert len(CLASSES) == 7


def test_names_of_activities_decide_and_not_their_order() -> None:
    arrays = toy(list(range(55)), [0] * 55, ["walking", "lying", "falling", "sitting", "on all fours"] * 11)
    turned = {**arrays, "activity": 10 - arrays["activity"], "activity_names": arrays["activity_names"][::-1]}
    assert np.array_equal(prepare(arrays, request()).targets.values, prepare(turned, request()).targets.values)


# -- windows


@pytest.mark.parametrize(("rows", "windows"), [(49, 0), (50, 0), (51, 1), (75, 1), (76, 2), (100, 2), (101, 3)])
def test_there_is_always_a_row_beyond_a_window(rows: int, windows: int) -> None:
    panel = prepare(toy(list(range(rows)), [0] * rows, ["walking"] * rows), request()).panel
    assert panel.first.tolist() == [25 * k for k in range(windows)]
    assert panel.lengths.tolist() == [50] * windows


def test_windows_stay_within_a_recording_and_know_it() -> None:
    lengths = [80, 30, 60]
    raws = [toy(list(range(n)), [0] * n, ["walking"] * n, start=10**9 * (k + 1)) for k, n in enumerate(lengths)]
    panel = prepare(joined(raws), request()).panel
    assert panel.ids.tolist() == ["A01/000", "A01/001", "A03/000"]
    assert panel.first.tolist() == [0, 25, 110]
    assert panel.times[[0, 80, 110]].tolist() == [0, 0, 0]  # every recording has its own clock
    assert panel.static is None  # a model must not read whose windows they are
    assert panel.batch().times[:, 0].tolist() == [0, 0, 0]
    assert (panel.batch().times[1] * 211).round(decimals=9).tolist() == list(range(50))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_split_is_the_same_for_all_seeds(seed: int) -> None:
    rows = 50 + 25 * 24 + 1
    prepared = prepare(toy(list(range(rows)), [0] * rows, ["walking"] * rows), request(seed=seed))
    assert prepared.validation.tolist() == [22, 2, 20, 12]
    assert prepared.test.tolist() == [8, 16, 0, 23, 11]
    everything = np.concatenate([prepared.train, prepared.validation, prepared.test])
    assert np.array_equal(np.sort(everything), np.arange(25))


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
def test_scaling_knows_the_training_part_alone(scaling: str) -> None:
    rng = np.random.default_rng(0)
    lengths = [51] * 25  # one window each
    raws = [
        toy(list(range(n)), rng.integers(0, 4, n).tolist(), ["walking"] * n, rng.normal(3, 2, (n, 3)).tolist())
        for n in lengths
    ]
    arrays = joined(raws)
    before = prepare(arrays, request(scaling=scaling))
    test_rows = before.panel[before.test].rows()
    line_rows = np.repeat(np.arange(25), 51) * 51 + np.tile(np.arange(51), 25)  # one line per row here
    changed = {**arrays, "xyz": np.where(np.isin(line_rows, test_rows)[:, None], 100, arrays["xyz"]).astype(np.float32)}
    after = prepare(changed, request(scaling=scaling))
    train_rows = before.panel[before.train].rows()
    assert np.array_equal(before.panel.values[train_rows], after.panel.values[train_rows])
    assert not np.array_equal(before.panel.values[test_rows], after.panel.values[test_rows])
    seen = before.panel.observed
    assert seen is not None
    assert (before.panel.values[~seen] == 0).all()
    columns = [before.panel.values[train_rows, k][seen[train_rows, k]] for k in range(12)]
    if scaling == "standard":
        np.testing.assert_allclose([c.mean() for c in columns], 0, atol=1e-6)
        np.testing.assert_allclose([c.std() for c in columns], 1, atol=1e-6)
    else:
        assert [c.min() for c in columns] == [0] * 12
        assert [c.max() for c in columns] == [1] * 12


def test_published_and_none_leave_metres() -> None:
    arrays = toy(list(range(60)), [0] * 60, ["walking"] * 60)
    for scaling in ("published", "none"):
        assert np.array_equal(prepare(arrays, request(scaling=scaling)).panel.values[:, :3], arrays["xyz"])


# -- the real set


@cache
def real_set(labels: str = "published", seed: int = 0) -> Prepared:
    return prepare(raw(NPZ), request(seed=seed, options={"labels": labels}))


@with_data
def test_the_set_has_the_published_counts() -> None:
    prepared = real_set()
    assert DATASET.missing(raw(NPZ)) == ""
    assert prepared.panel.shape == (6554, 50, 12)
    assert [len(part) for part in (prepared.train, prepared.validation, prepared.test)] == [4194, 1049, 1311]
    everything = np.concatenate([prepared.train, prepared.validation, prepared.test])
    assert np.array_equal(np.sort(everything), np.arange(6554))
    assert len(prepared.panel.times) == 164_830
    clock = np.rint(prepared.panel.batch().times.numpy() * 211).astype(int)
    assert len(np.unique(clock)) == 221  # as counted in the published code
    assert clock.max() == 227
    assert (np.diff(clock, axis=1) > 0).all()


@with_data
def test_the_split_is_frozen() -> None:
    prepared = real_set(seed=3)
    digest = hashlib.sha256()
    for part in (prepared.train, prepared.validation, prepared.test):
        digest.update(part.astype("<i8").tobytes())
    assert digest.hexdigest() == "c67624319e6a1be927f160a15ac921c00f91a9c6a99610ecf440a55a45806d81"


@with_data
def test_the_labels_are_the_published_ones_or_corrected() -> None:
    published, corrected = (np.bincount(real_set(labels).targets.values) for labels in ("published", "corrected"))
    assert published.tolist() == [35548, 2973, 60641, 28945, 19739, 5210, 11774]
    assert (corrected - published).tolist() == [-2848, 0, 0, 0, 2848, 0, 0]


@with_data
def test_every_row_has_a_reading_and_people_stay_within_the_room() -> None:
    panel = real_set().panel
    assert panel.observed is not None
    assert panel.observed.any(axis=1).all()
    assert float(panel.observed.mean()) == pytest.approx(164_860 * 3 / (164_830 * 12))
    assert np.abs(panel.values).max() < 10  # metres


@with_data
def test_rows_are_those_of_a_plain_reading_line_by_line() -> None:
    """The published way on one recording: a new row whenever the bin differs from that of the line above."""
    arrays = raw(NPZ)
    ours = arrays["sequence"] == 10  # C01, without steps back
    start = float(arrays["ticks"][ours][0])
    rows: list[tuple[int, Array]] = []
    for tick, tag, xyz in zip(arrays["ticks"][ours], arrays["tag"][ours], arrays["xyz"][ours], strict=True):
        at = round((float(tick) - start) / 1e5)
        if not rows or rows[-1][0] != at:
            rows.append((at, np.full((4, 3), np.nan, np.float32)))
        rows[-1][1][tag] = xyz
    panel = real_set().panel
    first = int(panel.first[panel.ids.tolist().index("C01/000")])
    run = slice(first, first + len(rows))
    assert np.rint(panel.times[run] * 211).tolist() == [at for at, _ in rows]
    expected = np.stack([values.reshape(12) for _, values in rows])
    assert panel.observed is not None
    assert np.array_equal(panel.observed[run], ~np.isnan(expected))
    assert np.array_equal(panel.values[run], np.nan_to_num(expected))


def as_java_prints(value: float) -> str:
    """A number as in the original file: scientific below 1e-3."""
    if value == 0 or abs(value) >= 1e-3:
        return repr(value)
    number = Decimal(repr(value))
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


def as_text(arrays: dict[str, Array]) -> str:
    """The original file, written again."""
    names = {key: arrays[key].tolist() for key in ("sequence_names", "tag_ids", "activity_names")}
    columns = (arrays[key].tolist() for key in ("sequence", "tag", "ticks", "date_ms", "activity"))
    lines = []
    for (s, tag, ticks, ms, act), xyz in zip(zip(*columns, strict=True), arrays["xyz"].tolist(), strict=True):
        clock = f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}:{ms % 1000:03d}"
        place = ",".join(map(as_java_prints, xyz))
        lines.append(
            f"{names['sequence_names'][s]},{names['tag_ids'][tag]},{ticks},27.05.2009 {clock},{place},"
            f"{names['activity_names'][act]}\n"
        )
    return "".join(lines)


@with_data
def test_the_original_written_again_has_the_published_hash_and_packs_to_the_same_arrays(tmp_path: Path) -> None:
    arrays = raw(NPZ)
    text = as_text(arrays)
    assert hashlib.md5(text.encode()).hexdigest() == DATASET.card.remotes[0].md5
    lines = int((arrays["sequence"] < 5).sum())  # the first person; all would take seconds
    (tmp_path / FILE).write_text("".join(text.splitlines(keepends=True)[:lines]))
    packed = pack(Files(tmp_path))
    assert packed.keys() == arrays.keys()
    shown = {"sequence_names": 5} | dict.fromkeys(("sequence", "tag", "ticks", "date_ms", "xyz", "activity"), lines)
    for name, array in arrays.items():
        assert np.array_equal(packed[name], array[: shown.get(name)]), name
        assert packed[name].dtype.kind == array.dtype.kind
    assert DATASET.missing(packed) == "27,473 of 164,860 lines, 5 of 25 recordings"
