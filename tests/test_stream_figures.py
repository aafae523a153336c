"""The page on streams prints the figures of its records."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = " ".join((ROOT / "docs" / "guides" / "stream.md").read_text().split())


def test_what_streams_cost_is_what_was_measured() -> None:
    found = json.loads((ROOT / "results" / "streams.json").read_text())
    spent, many = found["microseconds per series"], found["many"]
    for one, several in (("stream.update, one series", "streams.update, 1,000 series"),
                         ("model.step, 1 series", "model.step, 1,000 series"),
                         ("compiled step, 1 series", "compiled step, 1,000 series")):  # fmt: skip
        assert f"| {spent[one]:,.0f} | {spent[several]:.1f} |" in PAGE
    assert f"{many['series']:,} series with {many['updates of each']:,} updates each" in PAGE
    assert f"took {many['microseconds per update']:.1f} µs an update" in PAGE
    _, early, *_, late = many["resident MB"].values()
    assert f"{early:,.0f} MB after the second update of all series and {late:,.0f} MB after the last" in PAGE
    assert late < 1.05 * early
    assert many["largest difference from predict_proba"] < 1e-5


def test_mortality_by_hour_is_that_of_its_record() -> None:
    found = json.loads((ROOT / "results" / "mortality_by_hour.json").read_text())
    live, offline = ([row["auroc"] for row in found[name]["by hour"]] for name in ("streaming", "offline"))
    said = f"{live[-1]:.3f} against {offline[-1]:.3f} after two days, {live[0]:.3f} against {offline[0]:.3f} after six"
    assert said in PAGE
    assert f"{found['judged by']:,} stays" in PAGE
    assert found["streaming"]["stream"]["largest difference from predict"] < 1e-5
