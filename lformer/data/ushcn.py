"""United States Historical Climatology Network, daily: rain, snow and temperature at about 1,200 stations.

There are two forms, which are different benchmarks; `prepare` recognises them by their keys.

Daily form (`ushcn/ushcn_1990_2000.npz`), S stations in ascending COOP id, T = 4,018 days from 1990-01-01, and V = 5
variables PRCP (tenths of mm), SNOW (mm), SNWD (mm), TMAX, TMIN (tenths of a degree C), the units of GHCN-Daily:

    values                          (S, T, V) int16   -9999 where missing
    qflag                           (S, T, V) uint8   character code: 32 passed, 0 no value, a letter: failed a check
    first_day                       () int32          day 0, counted from 1970-01-01
    variables                       (V,) str
    station, coop_id, state, name   (S,) str          GHCN id, COOP id, "" where unknown
    lat, lon, elev                  (S,) float32      degrees, degrees, metres, NaN where unknown
    first_year, last_year           (S, V) int16      with a value that passed, in the whole record, -1 if none
    n_1950_2000                     (S, V) int32      number of values that passed in these years
    mean_1950_2000, std_1950_2000   (S, V) float32    their mean and standard deviation, NaN if there are none
    source                          (S,) uint8        0 and 1 GHCN-Daily, 2 USHCN state file, converted

Protocol (CRU and ACSSM). Values that failed a check are dropped. Stations whose record begins by 1990 and lasts until
1994 or longer are split, a fifth for test (seed 42), then a quarter of the rest for validation (seed 43), always the
same. In the years 1990 to 1993, values further than 4 standard deviations from the mean of their variable are dropped
and the others are scaled, with separate statistics for each part. A row is a day with at least one value. Stations with
fewer than 730 rows are dropped; from the others, 730 rows are drawn with the seed 0 for each station. Then each of the
730 x 5 entries is dropped with probability 0.2, the same ones for every station, and is neither input nor target. Which
of the published stations are in which part cannot be known; 1,192 remain of the complete set, 1,186 of the 1,211
stations that are publicly mirrored. Times are days since 1950-01-01.

Scalings of the daily form. "published": to [0, 1] by the extremes of each variable, separately in the training,
validation and test set, before rows are drawn. "minmax" and "standard": by the training set, after rows are drawn.
"none": GHCN units. Outliers are always dropped as published.

Chunked form (`ushcn/ushcn_chunked.npz`), the preprocessed `small_chunked_sporadic.csv` of GRU-ODE-Bayes:

    chunk_id     (R,) int32       station, ascending
    chunk_time   (R,) float64     0 to 200, ascending within a station; 2,500 are the 51 years from 1950
    chunk_value  (R, 5) float32   standardised per variable, 0 where nothing was observed
    chunk_mask   (R, 5) bool      True where observed

It contains 5 % of the values of each station, drawn at random, from about four years starting in December 1996, as
R = 350,665 rows of 1,114 stations. The values are standardised over all stations, so "published" does not change them.
We split 60 / 20 / 20 by the same rule as above; GRU-ODE-Bayes has its own five folds.

Tasks. "extrapolate": the first 365 rows of a station are given (chunked: those until time 150), and all rows are to be
predicted. "reconstruct": all rows are given and to be predicted, which published tables call interpolation.
"interpolate": half of the rows of each station, drawn by the seed, are hidden. With the option `unobserved`, hidden
rows either remain as empty rows, as published ("rows"), or become queries, of which only the time is known ("query").
"""

from __future__ import annotations

from datetime import date

import numpy as np

from lformer import scaling
from lformer.data.dataset import Array, Card, Dataset, Raw, Remote, Request
from lformer.data.files import DataError
from lformer.data.ushcn_files import EPOCH, MISSING, PASSED, VARIABLES, pack
from lformer.hiding import hide, random_rows, reconstruct
from lformer.panel import Panel
from lformer.parts import Prepared, Targets
from lformer.splitting import hold_out_twice

STATIONS, CHUNK_ROWS = 1218, 350_665
ROWS, GIVEN_ROWS, GIVEN_CHUNK_TIME = 730, 365, 150.0
DROPPED = 0.2  # share of the entries that are dropped
DEVIATIONS = 4.0  # a value further from the mean than this is an outlier
FRAME = date(1950, 1, 1)
DAILY = tuple((day - EPOCH).days for day in (date(1990, 1, 1), date(1994, 1, 1)))  # days of the benchmark

Parts = tuple[Array, Array, Array]


def prepare(raw: Raw, request: Request) -> Prepared:
    """The stations as a panel, with the targets of a task; only "interpolate" depends on the seed."""
    chunked = "chunk_time" in raw
    panel, parts = _chunked(raw) if chunked else _daily(raw, request.scaling == "published")
    panel = scaling.scaled(panel, parts[0], request.scaling)
    panel, targets = _task(panel, request, chunked)
    return Prepared(panel=panel, targets=targets, train=parts[0], validation=parts[1], test=parts[2])


def missing(raw: Raw) -> str:
    """What is missing from the raw arrays; "" if they are complete."""
    if "chunk_time" in raw:
        rows = len(raw["chunk_time"])
        return "" if rows == CHUNK_ROWS else f"{rows:,} of {CHUNK_ROWS:,} rows"
    stations = len(raw["station"])
    near = " (near enough to compare, not equal)" if stations >= 1200 else ""
    return "" if stations == STATIONS else f"{stations:,} of {STATIONS:,} stations{near}"


def name_raw(raw: Raw) -> str:
    """The name of the raw file for packed arrays."""
    return DATASET.card.raw[1 if "chunk_time" in raw else 0]


def _task(panel: Panel, request: Request, chunked: bool) -> tuple[Panel, Targets]:
    if request.task == "reconstruct":
        return panel, reconstruct(panel)
    if request.task == "interpolate":
        hidden = random_rows(panel, 0.5, request.seed)
    elif chunked:
        hidden = panel.times > GIVEN_CHUNK_TIME
    else:
        hidden = np.arange(len(panel.times)) % ROWS >= GIVEN_ROWS
    return hide(panel, hidden, request.options["unobserved"])


def _daily(raw: Raw, scaled: bool) -> tuple[Panel, Parts]:
    """Stations with 730 rows each, and their parts."""
    first_year, last_year = raw["first_year"], raw["last_year"]
    began = np.where(first_year < 0, 9999, first_year).min(axis=1) <= 1990
    stations = np.flatnonzero(began & (last_year.max(axis=1) >= 1994))
    parts = hold_out_twice(len(stations), 0.2, 0.25, seeds=(42, 43))

    first_day = int(raw["first_day"])
    start, stop = (day - first_day for day in DAILY)
    if start < 0 or stop > raw["values"].shape[1]:
        raise DataError("expected raw arrays that hold 1990 to 1993. Pack the original files again.")
    values = raw["values"][stations, start:stop]  # (S, T, V) int16
    seen = (raw["qflag"][stations, start:stop] == PASSED) & (values != MISSING)
    shift, scale = np.zeros((len(stations), len(VARIABLES))), np.ones((len(stations), len(VARIABLES)))
    for part in parts:
        seen[part], low, high = _clean(values[part], seen[part])
        if scaled:
            shift[part], scale[part] = low, np.where(high > low, high - low, 1.0)

    enough = np.flatnonzero(seen.any(axis=2).sum(axis=1) >= ROWS)
    days = _draw_days(seen[enough].any(axis=2))  # (S', 730)
    entries = np.random.RandomState(0).random_sample((ROWS, len(VARIABLES))) >= DROPPED
    observed = seen[enough[:, None], days] & entries
    drawn = (values[enough[:, None], days] - shift[enough, None]) / scale[enough, None]
    panel = Panel.build(
        (days + DAILY[0] + (EPOCH - FRAME).days).reshape(-1),
        drawn.astype(np.float32).reshape(-1, len(VARIABLES)),
        np.full(len(enough), ROWS),
        observed=observed.reshape(-1, len(VARIABLES)),
        ids=raw["station"][stations[enough]],
        channels=VARIABLES,
        unit="D",
    )
    return panel, _renumbered(parts, enough)


def _clean(values: Array, seen: Array) -> tuple[Array, Array, Array]:
    """Remove the outliers from the values of some stations, and find the extremes of the others.

    Args:
        values: (S, T, V).
        seen: (S, T, V) bool.

    Returns:
        seen (S, T, V), low (V,) and high (V,).
    """
    seen, low, high = seen.copy(), np.zeros(len(VARIABLES)), np.ones(len(VARIABLES))
    for v in range(len(VARIABLES)):
        sample = values[..., v][seen[..., v]].astype(np.float64)
        if not len(sample):
            continue
        seen[..., v] &= np.abs(values[..., v] - sample.mean()) <= DEVIATIONS * sample.std()
        kept = values[..., v][seen[..., v]]
        low[v], high[v] = kept.min(), kept.max()
    return seen, low, high


def _draw_days(rows: Array) -> Array:
    """(S, 730) days in order, drawn from those with a row (S, T); stations with equally many rows get the same draw."""
    drawn = np.empty((len(rows), ROWS), np.int64)
    picks: dict[int, Array] = {}
    for station, row in enumerate(rows):
        days = np.flatnonzero(row)
        if len(days) not in picks:
            picks[len(days)] = np.sort(np.random.RandomState(0).permutation(len(days))[:ROWS])
        drawn[station] = days[picks[len(days)]]
    return drawn


def _renumbered(parts: Parts, kept: Array) -> Parts:
    """The parts if only some of the stations are kept, as their new positions."""
    new = np.full(sum(map(len, parts)), -1)
    new[kept] = np.arange(len(kept))
    train, validation, test = (new[part][new[part] >= 0] for part in parts)
    return train, validation, test


def _chunked(raw: Raw) -> tuple[Panel, Parts]:
    """Stations of the preprocessed table, and their parts."""
    stations, lengths = np.unique(raw["chunk_id"], return_counts=True)
    panel = Panel.build(
        raw["chunk_time"],
        raw["chunk_value"],
        lengths,
        observed=raw["chunk_mask"],
        ids=stations,
        channels=[f"Value_{v}" for v in range(len(VARIABLES))],
    )
    return panel, hold_out_twice(len(stations), 0.2, 0.25, seeds=(42, 43))


DATASET = Dataset(
    card=Card(
        name="ushcn",
        title="United States Historical Climatology Network, daily",
        page="https://www.ncei.noaa.gov/products/land-based-station/us-historical-climatology-network",
        licence="public domain (NOAA)",
        citation=(
            "Menne, Williams, Vose: United States Historical Climatology Network Daily Temperature, Precipitation, and "
            "Snow Data. Carbon Dioxide Information Analysis Center, Oak Ridge National Laboratory, 2015."
        ),
        series=1192,
        length="730 of the days from 1990 to 1993",
        channels="5: rain, snowfall, snow depth, highest and lowest temperature",
        tasks=("extrapolate", "reconstruct", "interpolate"),
        scalings=("published", "minmax", "standard", "robust", "none"),
        options={"unobserved": ("rows", "query")},
        raw=("ushcn/ushcn_1990_2000.npz", "ushcn/ushcn_chunked.npz"),
        remotes=(
            Remote(url="https://www.ncei.noaa.gov/pub/data/ghcn/daily/ghcnd_hcn.tar.gz"),
            Remote(url="https://www.ncei.noaa.gov/pub/data/ghcn/daily/ghcnd-stations.txt"),
            Remote(url="https://www.ncei.noaa.gov/pub/data/ushcn/v2.5/ushcn-v2.5-stations.txt"),
        ),
        by_hand=(
            "Download ghcnd_hcn.tar.gz, ghcnd-stations.txt (NOAA, GHCN-Daily) and ushcn-v2.5-stations.txt into one "
            "folder, or the state files of USHCN daily with ushcn-stations.txt; small_chunked_sporadic.csv of "
            "GRU-ODE-Bayes is a benchmark of its own. Then: lformer data pack ushcn PATH"
        ),
    ),
    prepare=prepare,
    pack=pack,
    missing=missing,
    name_raw=name_raw,
)
