"""Filling the gaps of weather stations, at any minute.

A station reports the temperature of the air and of the soil at uneven hours. Batteries fail, so every record has one
gap of a day or more in the air, and single values are lost all the time. What was the temperature in the gap, and at
14:07?

Run it from top to bottom; the picture goes to runs/examples, or to the folder in LFORMER_OUT.
"""

# %%
import os
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # a file is drawn, no window
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from lformer import LFormerInterpolator, Panel

OUT = Path(os.environ.get("LFORMER_OUT", "runs/examples"))
STATIONS, TRAIN, DAYS = 100, 75, 5
rng = np.random.default_rng(0)

# %% [markdown]
# ## Weather
#
# There is nothing to download, so we make the weather ourselves. The air has a level, a daily swing and a slow drift
# of its own at every station; the soil follows the air with half of its swing, three hours late. Soil sensors rarely
# fail. That is what a model can use in the gap: the soil says what the air did.


# %%
def air(hours: np.ndarray, level: float, swing: float, drift: float) -> np.ndarray:
    """Temperature in °C at hours since the first midnight."""
    day = np.sin(2 * np.pi * (hours - 9) / 24)
    return level + swing * day + 4 * np.sin(2 * np.pi * (hours / 24 + drift) / (2 * DAYS))


def readings(climate: tuple[float, float, float]) -> pd.DataFrame:
    """One record: stamps, air and soil, with a long gap in the air and some losses in both."""
    hours = np.sort(rng.uniform(0, 24 * DAYS, 40))
    level, swing, drift = climate
    table = pd.DataFrame(
        {
            "air": air(hours, level, swing, drift) + rng.normal(0, 0.4, len(hours)),
            "soil": air(hours - 3, level, swing / 2, drift) + rng.normal(0, 0.2, len(hours)),
        },
        index=pd.Timestamp("2024-06-01") + pd.to_timedelta(hours, unit="h"),
    )
    table = table.mask(rng.random(table.shape) < 0.1)
    begin = rng.uniform(24, 24 * DAYS - 60)
    table.loc[(hours > begin) & (hours < begin + 30), "air"] = np.nan
    return table


climates = [(rng.normal(14, 4), rng.uniform(3, 7), rng.uniform(0, 10)) for _ in range(STATIONS)]
X = Panel.from_list([readings(climate) for climate in climates], unit="h")
print(X)

# %% [markdown]
# DataFrames with the time as index go in as they are. Nobody laid them on a grid: two stations never share a stamp.
#
# ## Learning
#
# There is no target. The interpolator hides half of the rows of copies of each record and learns to predict them from
# the rest. A row in which the air is missing is still a row, since the soil was read. Twenty epochs are few; more
# are better.

# %%
model = LFormerInterpolator(lr=5e-3, max_epochs=20, random_state=0).fit(X[:TRAIN])
score, simple = model.score(X[TRAIN:]), model.baseline_score(X[TRAIN:])
print(f"score ≈ {score:.2f}; the best simple rule has {simple:.2f}")

# %% [markdown]
# ## Asking
#
# Any stamp will do. We ask for every ten minutes, which no station ever reported, and look at the hours of the gap
# alone: the rest is easy.

# %%
clock = pd.date_range("2024-06-01", periods=6 * 24 * DAYS, freq="10min")
hours = np.asarray((clock - clock[0]) / pd.Timedelta("1h"))
predicted = model.predict(X[TRAIN:], query_times=clock)

ours, line = [], []
for (stamps, values), climate, answer in zip(X[TRAIN:], climates[TRAIN:], predicted, strict=True):
    seen = ~np.isnan(values[:, 0])
    at = (stamps[seen] - np.datetime64("2024-06-01")) / np.timedelta64(1, "h")
    widest = np.diff(at).argmax()
    gap = (hours > at[widest]) & (hours < at[widest + 1])
    truth = air(hours, *climate)
    ours.append(np.abs(answer[gap, 0] - truth[gap]).mean())
    line.append(np.abs(np.interp(hours, at, values[seen, 0])[gap] - truth[gap]).mean())
print(f"mean error within the gaps ≈ {np.mean(ours):.1f} °C; a straight line across ≈ {np.mean(line):.1f} °C")
assert np.mean(ours) < 0.75 * np.mean(line)

# %% [markdown]
# A straight line misses every day and night within the gap. A spline through five points per day would overshoot.
#
# ## Looking
#
# The answer does not pass through every reading: readings are noisy. After so few epochs it is also too careful with
# peaks.

# %%
stamps, values = X[TRAIN]
figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
axis.plot(clock, air(hours, *climates[TRAIN]), color="0.82", linewidth=5, label="truth")
axis.plot(clock, predicted[0][:, 0], label="predicted, every ten minutes")
axis.plot(stamps, values[:, 0], "o", color="black", markersize=4, label="air, observed")
axis.plot(stamps, values[:, 1], "x", color="tab:brown", markersize=4, label="soil, observed")
axis.set(ylabel="°C")
axis.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.2), frameon=False)
OUT.mkdir(parents=True, exist_ok=True)
figure.savefig(OUT / "station.png", dpi=110)
plt.close(figure)
print("look at", OUT / "station.png")
