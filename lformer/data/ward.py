"""A simulated hospital ward: vital signs and laboratory values at irregular times, and which patients deteriorate.

There is nothing to download. Every patient stays one to four days and has three episodes of a fast heart rate and three
of raised lactate. A fast heart rate alone is due to pain, raised lactate alone to exertion or a drug: both are
harmless. Lactate that rises within hours after the heart rate is a sign of failing circulation, and such patients tend
to deteriorate. All patients have the same number and height of episodes, so only events that coincide tell them apart,
not how high a channel rises. Age and inflammation (CRP) add a little risk, and chance adds the rest: no model can be
right about every patient.

Nurses come more often while a patient looks ill. They take the heart rate on most visits and the temperature on some;
blood is drawn then, minutes later or not at all, and not always for the same tests. Some results are lost (NaN).
Because visits are most frequent where episodes coincide, the mean of a channel reveals part of the outcome, as it would
on a real ward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]


class Ward(NamedTuple):
    """The observations, the outcomes, and what was known on admission."""

    table: pd.DataFrame  # patient, time, lab, value: one result per row
    labels: pd.Series[int]  # 0 or 1 per patient
    static: pd.DataFrame  # age, sex, unit per patient


class Lab(NamedTuple):
    """One channel: its normal level, and how often it is measured."""

    level: float
    between: float  # standard deviation between patients
    within: float  # standard deviation between results of one patient
    share: float  # share of visits that measure it


LABS = {
    "heart rate": Lab(78.0, 8.0, 5.0, 0.85),  # per minute
    "temperature": Lab(36.9, 0.2, 0.3, 0.30),  # °C
    "lactate": Lab(1.2, 0.2, 0.2, 0.60),  # mmol/l
    "potassium": Lab(4.1, 0.25, 0.2, 0.15),  # mmol/l
    "sodium": Lab(139.0, 2.5, 1.5, 0.12),  # mmol/l
    "haemoglobin": Lab(12.0, 1.6, 0.4, 0.10),  # g/dl
    "creatinine": Lab(0.95, 0.2, 0.06, 0.08),  # mg/dl
    "crp": Lab(3.2, 0.9, 0.2, 0.06),  # logarithm of mg/l
}
NAMES = list(LABS)
LEVEL, BETWEEN, WITHIN, SHARE = (np.array(column) for column in zip(*LABS.values(), strict=True))
HEART, LACTATE, CRP = (NAMES.index(name) for name in ("heart rate", "lactate", "crp"))
BEDSIDE = np.isin(NAMES, ["heart rate", "temperature"])  # the others need blood

SHORTEST, LONGEST = 24.0, 96.0  # hours
STEP = 0.25  # hours; at most one visit in each
CLOCK = np.arange(0.0, LONGEST, STEP)

SPELLS = 3  # episodes of a fast heart rate, and as many of raised lactate
SPREAD = 3.0  # hours: width of the bell curve of an episode
LAG = 1.0  # hours by which lactate follows a failing heart
HEIGHT = (0.6, 1.4)  # height of an episode, relative to the usual rise
HEART_RISE, LACTATE_RISE = 35.0, 2.4

QUIET, BUSY = 0.25, 0.6  # visits per hour in health, and further ones at the peak of each episode
TOGETHER = 0.6  # share of visits at which blood is drawn together with the bedside signs, not minutes later
LOST = 0.03  # share of results
FAILING = 0.4  # share of patients


def toy_ward(patients: int = 600, seed: int = 0) -> Ward:
    """Simulate irregular, asynchronous results of patients, some of whom deteriorate.

    Args:
        patients: number of patients, at least 1.
        seed: random seed; the same seed gives the same ward.

    Returns:
        `table` with columns patient, time, lab and value, sorted by patient and time; `labels`, 1 for patients who
        deteriorate; `static` with age (sometimes missing), sex and unit. Labels and static are indexed by patient, in
        the same order.

    Example:
        >>> ward = toy_ward(patients=3)
        >>> ward.table.columns.tolist(), ward.labels.index.tolist()
        (['patient', 'time', 'lab', 'value'], ['p0000', 'p0001', 'p0002'])
    """
    import pandas as pd

    if patients < 1:
        raise ValueError(f"patients must be at least 1; got {patients}.")
    rng = np.random.RandomState(seed)
    width = max(4, len(str(patients - 1)))  # so that names sort in the order in which they were drawn
    names = pd.Index([f"p{i:0{width}d}" for i in range(patients)], name="patient")

    failing = rng.rand(patients) < FAILING
    age = np.clip(rng.normal(64.0, 15.0, patients), 18.0, 98.0).round()
    level = LEVEL + BETWEEN * rng.randn(patients, len(LABS))
    stay = rng.uniform(SHORTEST, LONGEST, patients)
    fast, acid = _spells(rng, stay, failing)

    inflamed = (level[:, CRP] - LEVEL[CRP]) / BETWEEN[CRP]
    odds = np.where(failing, 2.2, -3.0) + 0.5 * (age - 64.0) / 15.0 + 0.5 * inflamed
    worse = rng.rand(patients) < 1 / (1 + np.exp(-odds))
    static = {
        "age": np.where(rng.rand(patients) < 0.1, np.nan, age),
        "sex": rng.choice(["f", "m"], patients),
        "unit": rng.choice(["medical", "surgical", "cardiac"], patients, p=[0.5, 0.35, 0.15]),
    }
    table = _results(rng, stay, level, fast, acid)
    table.insert(0, "patient", names.to_numpy()[table.pop("number")])
    return Ward(
        table=table,
        labels=pd.Series(worse.astype(np.int64), index=names, name="deteriorates"),
        static=pd.DataFrame(static, index=names),
    )


def _spells(rng: np.random.RandomState, stay: Array, failing: Array) -> tuple[Array, Array]:
    """Rise of heart rate and lactate, relative to the usual one, at every step: (P,), (P,) -> (P, T), (P, T).

    A stay is divided into one part per episode, of equal length. If the heart fails, lactate follows it; if not, one of
    the two rises early in the part and the other late.
    """
    shape = len(stay), SPELLS
    early, late = (middle + rng.uniform(-0.1, 0.1, shape) for middle in (0.25, 0.75))
    heart_first = rng.rand(*shape) < 0.5
    part = stay[:, None] / SPELLS
    heart = part * (np.arange(SPELLS) + np.where(heart_first, early, late))
    alone = part * (np.arange(SPELLS) + np.where(heart_first, late, early))
    lactate = np.where(failing[:, None], heart + LAG, alone)
    return _bells(heart, rng.uniform(*HEIGHT, shape)), _bells(lactate, rng.uniform(*HEIGHT, shape))


def _bells(centres: Array, heights: Array) -> Array:
    """The sum of a patient's bell curves at every step: (P, S), (P, S) -> (P, T)."""
    bells = np.exp(-0.5 * ((CLOCK - centres[:, :, None]) / SPREAD) ** 2)
    return np.asarray((heights[:, :, None] * bells).sum(axis=1))


def _results(rng: np.random.RandomState, stay: Array, level: Array, fast: Array, acid: Array) -> pd.DataFrame:
    """A table with one result per row: number of the patient, time, lab and value, sorted by patient and time."""
    import pandas as pd

    visited = rng.rand(*fast.shape) < STEP * (QUIET + BUSY * (fast + acid))
    number, step = np.nonzero(visited & (stay[:, None] > CLOCK))  # (V,) patient and time of each visit
    shape = len(number), len(LABS)

    values = level[number] + WITHIN * rng.randn(*shape)
    values[:, HEART] += HEART_RISE * fast[number, step]
    values[:, LACTATE] += LACTATE_RISE * acid[number, step]
    values[:, CRP] = np.exp(values[:, CRP])
    values = np.maximum(values, 0.1).round(2)
    values[rng.rand(*shape) < LOST] = np.nan

    # Bedside signs in the first half of the step, blood then or in the second: no lab has two results at one time.
    bedside, later = step + rng.rand(2, len(number)) / 2
    blood = np.where(rng.rand(len(number)) < TOGETHER, bedside, later + 0.5)
    minutes = rng.randint(0, 365 * 24 * 60, len(stay))
    admitted = np.datetime64("2024-01-01", "s") + 60 * minutes.astype("timedelta64[s]")
    visit, lab = np.nonzero(rng.rand(*shape) < SHARE)
    when = 3600 * STEP * np.where(BEDSIDE[lab], bedside[visit], blood[visit])
    table = {
        "number": number[visit],
        "time": admitted[number[visit]] + when.astype("timedelta64[s]"),
        "lab": np.array(NAMES)[lab],
        "value": values[visit, lab],
    }
    return pd.DataFrame(table).sort_values(["number", "time"], kind="stable", ignore_index=True)
