"""`lformer data`, as a person at a terminal meets it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy
from test_cli import call

from lformer import data
from lformer.data import DATASETS, download, store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(data.DATASETS, "toy", toy.dataset())
    return tmp_path


def flat(text: str) -> str:
    return " ".join(text.split())


def test_list_shows_every_set_and_whether_it_is_here(home: Path) -> None:
    store.write_raw(home / "data/toy/toy_half.npz", {"id": np.arange(9)})
    result = call("data", "list")
    assert result.exit_code == 0, result.output
    for name in DATASETS:
        assert name in result.output
    assert "generated" in result.output
    assert "partial" in result.output
    assert "toy: 9 of 20 series" in result.output
    assert "scp1: A fault of the archive" in flat(result.output)


def test_info_shows_the_card(home: Path) -> None:
    result = call("data", "info", "toy")
    text = flat(result.output)
    assert result.exit_code == 0
    for part in ("CC0", "nobody", "classify, regress", "published, subject", "factor", "absent", "variant double"):
        assert part in text
    assert 'lformer.data.load("toy", task="classify", seed=42)' in text


def test_unknown_names_are_one_line_with_the_known_ones(home: Path) -> None:
    for command in ("info", "fetch", "verify"):
        result = call("data", command, "iris")
        assert result.exit_code == 2
        assert "unknown data set 'iris'; there are ethanol" in flat(result.output)


def test_pack_verify_and_fetch(home: Path) -> None:
    (home / "toy-1.txt").write_text(toy.original(range(20)))
    packed = call("data", "pack", "toy", str(home / "toy-1.txt"))
    assert packed.exit_code == 0, packed.output
    assert "toy.npz" in packed.output
    assert "sha256 as recorded" in flat(call("data", "verify", "toy").output)
    assert "toy is already here" in flat(call("data", "fetch", "toy").output)
    store.write_raw(home / "data/toy/toy.npz", {**dict(np.load(home / "data/toy/toy.npz")), "x": np.zeros(1)})
    changed = call("data", "verify", "toy")
    assert changed.exit_code == 1
    assert "has changed since" in flat(changed.output)


def test_fetch_again_downloads_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "toy-1.txt").write_text(toy.original(range(20)))
    call("data", "pack", "toy", str(home / "toy-1.txt"))
    remote = toy.dataset().card.remotes[0]
    store.record(remote.url, "0" * 64)
    left = home / "cache/downloads/toy/toy.zip.part"
    left.parent.mkdir(parents=True)
    left.touch()
    monkeypatch.setattr(download, "TRIES", 1)
    result = call("data", "fetch", "toy", "--again")  # nobody listens at that address
    assert result.exit_code == 2
    assert "could not be downloaded in 1 tries" in flat(result.output)
    assert store.recorded(remote.url) is None
    assert not left.exists()
    assert "sha256 as recorded" in flat(call("data", "verify", "toy").output)  # the raw file stays till another is here


def test_a_damaged_record_of_hashes_says_what_to_do(home: Path) -> None:
    (home / "toy-1.txt").write_text(toy.original(range(20)))
    call("data", "pack", "toy", str(home / "toy-1.txt"))
    (home / "cache/hashes.json").write_text("[]")
    for command in (("verify", "toy"), ("fetch", "toy", "--again"), ("pack", "toy", str(home / "toy-1.txt"))):
        result = call("data", *command)
        assert result.exit_code == 2
        assert "hashes.json is damaged" in flat(result.output)
        assert "Delete it" in flat(result.output)


def test_what_cannot_be_done_says_so(home: Path) -> None:
    (home / "toy-1.txt").write_text("1,2\n")
    bad = call("data", "pack", "toy", str(home / "toy-1.txt"))
    assert bad.exit_code == 2
    assert "toy-1.txt, line 1: expected id,time,value,label" in flat(bad.output)
    absent = call("data", "verify", "toy")
    assert absent.exit_code == 2
    assert "lformer data fetch toy" in flat(absent.output)
    assert "there is nothing to fetch" in flat(call("data", "fetch", "pendulum").output)
    assert "there is nothing to pack" in flat(call("data", "pack", "spiral-2", str(home)).output)


def labs(path: Path, copies: int) -> Path:
    """Asynchronous labs of eight patients, all of them `copies` times."""
    rng = np.random.default_rng(0)
    rows = [
        {"who": f"p{i}", "t": float(t), "lab": lab, "x": x if rng.random() > 0.2 else np.nan}
        for i in range(8)
        for t in np.sort(rng.exponential(3.0, 2 + i)).round(3)
        for lab, x in (("na", 140 + rng.standard_normal()), ("k", 4 + 0.3 * rng.standard_normal()))
    ]
    pd.DataFrame(rows * copies).to_csv(path, index=False)
    return path


def test_the_doctor_tells_by_exit_code_whether_training_would_work(home: Path) -> None:
    options = ("--id", "who", "--time", "t", "--channel", "lab", "--value", "x", "--out", str(home / "report.html"))
    good = call("data", "doctor", str(labs(home / "good.csv", copies=1)), *options)
    assert good.exit_code == 0, good.output
    assert (home / "report.html").read_text().lstrip().lower().startswith("<!doctype html")
    bad = call("data", "doctor", str(labs(home / "bad.csv", copies=2)), *options)
    assert bad.exit_code == 1
    assert "choose with --on-duplicate mean or --on-duplicate last" in flat(bad.output)
    merged = call("data", "doctor", str(home / "bad.csv"), *options, "--on-duplicate", "last")
    assert merged.exit_code == 0
    assert "Nothing to do: --on-duplicate last resolves them." in flat(merged.output)
    missing = call("data", "doctor", str(home / "nowhere.csv"), *options)
    assert missing.exit_code == 2
