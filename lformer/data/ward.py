"""A simulated hospital ward: vital signs and laboratory values as they come, and who deteriorates.

There is nothing to download. Every patient stays one to four days and has three spells of a fast heart and three of
raised lactate. A fast heart alone is pain, raised lactate alone exertion or a drug: both are harmless. Lactate that
follows the heart within hours is failing circulation, and such patients tend to deteriorate. The spells have the same
number and height in all patients, so what tells them apart is what happened together, not how high a channel rose. Age
and inflammation (CRP) add a little risk, and chance adds the rest: nobody can be right about everyone.

Nurses come more often while a patient looks ill. They take the heart rate on most visits and the temperature on some;
blood is drawn then, minutes later or not at all, and not always for the same tests. Some results are lost (NaN). As
visits crowd where spells meet, the means of a channel give away a part of the answer, as they would on a real ward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]


class Ward(NamedTuple):
    """What was observed, who deteriorated, and what was known on admission."""

    table: pd.DataFrame  # patient, time, lab, value: one result per row
    labels: pd.Series[int]  # 0 or 1 by patient
    static: pd.DataFrame  # age, sex, unit by patient


class Lab(NamedTuple):
    """One channel: where it lies in health, and how often it is measured."""

    level: float
    between: float  # deviation between patients
    within: float  # deviation between results of one patient
    share: float  # of visits that measure it


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

SPELLS = 3  # of a fast heart, and as many of raised lactate
SPREAD = 3.0  # hours: deviation of the bell that a spell follows
LAG = 1.0  # hours by which lactate follows a failing heart
HEIGHT = (0.6, 1.4)  # of a spell, in usual rises
HEART_RISE, LACTATE_RISE = 35.0, 2.4

QUIET, BUSY = 0.25, 0.6  # visits per hour in health, and further ones at the height of each spell
TOGETHER = 0.6  # share of visits at which blood is drawn with the bedside signs, not minutes later
LOST = 0.03  # share of results
FAILING = 0.4  # share of patients


def toy_ward(patients: int = 600, seed: int = 0) -> Ward:
    """Irregular, asynchronous results of patients, some of whom deteriorate.

    Args:
        patients: how many, at least 1.
        seed: the same one gives the same ward.

    Returns:
        `table` with columns patient, time, lab and value, sorted by patient and time; `labels`, 1 for who deteriorates;
        `static` with age (some unknown), sex and unit. Labels and static are indexed by patient, in the same order.

    Example:
        >>> ward = toy_ward(patients=3)
        >>> ward.table.columns.tolist(), ward.labels.index.tolist()
        (['patient', 'time', 'lab', 'value'], ['p0000', 'p0001', 'p0002'])
    """
    import pandas as pd

    if patients < 1:
        raise ValueError(f"patients must be at least 1; got {patients}.")
    rng = np.random.RandomState(seed)
    width = max(4, len(str(patients - 1)))  # so that names sort as they were drawn
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
    """How fast the heart is and how high lactate, in usual rises, at every step: (P,), (P,) -> (P, T), (P, T).

    A stay has a part of equal length for each spell. If the heart fails, lactate follows it; if not, one of the two
    comes early in the part and the other late.
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
    """The sum of a patient's bells at every step: (P, S), (P, S) -> (P, T)."""
    bells = np.exp(-0.5 * ((CLOCK - centres[:, :, None]) / SPREAD) ** 2)
    return np.asarray((heights[:, :, None] * bells).sum(axis=1))


def _results(rng: np.random.RandomState, stay: Array, level: Array, fast: Array, acid: Array) -> pd.DataFrame:
    """One result per row: number of the patient, time, lab and value, sorted by patient and time."""
    import pandas as pd

    visited = rng.rand(*fast.shape) < STEP * (QUIET + BUSY * (fast + acid))
    number, step = np.nonzero(visited & (stay[:, None] > CLOCK))  # (V,) whose visit, and when
    shape = len(number), len(LABS)

    values = level[number] + WITHIN * rng.randn(*shape)
    values[:, HEART] += HEART_RISE * fast[number, step]
    values[:, LACTATE] += LACTATE_RISE * acid[number, step]
    values[:, CRP] = np.exp(values[:, CRP])
    values = np.maximum(values, 0.1).round(2)
    values[rng.rand(*shape) < LOST] = np.nan

    # Bedside in the first half of the step and blood then or in the second: no lab has two results at one time.
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
