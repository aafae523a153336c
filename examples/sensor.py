"""What somebody is doing, from two sensors that never report together.

A strap on the wrist and one on the ankle each send how much they moved, at their own moments, and some messages are
lost. For each message we want to know: resting, walking or cycling? A cyclist's wrist is still while the ankle is
not, so one sensor does not tell. And every strap sits differently: what is much for one person is little for another.

Run it from top to bottom.
"""

# %%
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from lformer import LFormerPointClassifier, Panel

PEOPLE, TRAIN, MESSAGES = 90, 60, 60
SENSORS = ["wrist", "ankle"]
USUAL = {"rest": (0.2, 0.2), "walk": (1.0, 1.6), "cycle": (0.3, 1.6)}  # motion of wrist and ankle
rng = np.random.default_rng(0)

# %% [markdown]
# ## Messages
#
# Somebody changes what they do every half minute or so. Each message is a row of a table: who, when, which sensor,
# how much, and what somebody with a camera wrote down. Motion is given as its logarithm, which turns a strap's factor
# into a shift.


# %%
def messages(who: str) -> pd.DataFrame:
    """Five minutes of one person."""
    changes = np.cumsum(rng.exponential(30.0, 30))
    doing = rng.choice(list(USUAL), 31)
    parts = []
    for column, sensor in enumerate(SENSORS):
        seconds = np.sort(rng.uniform(0, 300, MESSAGES))
        label = doing[np.searchsorted(changes, seconds)]
        usual = np.array([USUAL[what][column] for what in label])
        motion = rng.uniform(0.5, 2.0) * usual * rng.lognormal(0, 0.25, MESSAGES)
        motion[rng.random(MESSAGES) < 0.1] = np.nan  # lost
        parts.append(
            pd.DataFrame({"who": who, "time": seconds, "sensor": sensor, "motion": np.log(motion), "label": label})
        )
    return pd.concat(parts)


table = pd.concat([messages(f"w{i:02d}") for i in range(PEOPLE)])
X = Panel.from_long(table, id="who", time="time", channel="sensor", value="motion", channels=SENSORS, unit="s")
print(X)

# %% [markdown]
# Less than half of the panel is observed, because each row holds one sensor. Labels go by id and stamp, so that no
# sorting can mix them up.

# %%
said = table.set_index(["who", "time"])["label"]
y = {who: said[who][seconds].to_numpy() for who, (seconds, _) in zip(X.ids, X, strict=True)}


# %% [markdown]
# ## A model of rows in their series
#
# To label a message of the wrist one must know what the ankle last said. The estimators see to that: in every row the
# model reads the latest value of each channel, whether it came just now, and how old it is. This is no imputation of
# the record; it says what was known at that moment, and nothing that came later. (Few epochs, for a quick look.)

# %%
model = LFormerPointClassifier(lr=5e-3, batch_size=8, max_epochs=20, random_state=0).fit(X[:TRAIN], y)
ours = model.score(X[TRAIN:], y)
print(f"lformer ≈ {ours:.2f}")

# %% [markdown]
# ## Is the sequence worth anything, then?
#
# Gradient boosting on the rows as they come sees one sensor at a time. With the last message carried forward by hand
# it sees both as well, but only the row: it cannot know how this person's straps sit.


# %%
def boosted(rows: list[np.ndarray]) -> float:
    """The accuracy of gradient boosting on single rows."""
    labels = [y[who] for who in X.ids]
    trees = HistGradientBoostingClassifier(random_state=0)
    trees.fit(np.concatenate(rows[:TRAIN]), np.concatenate(labels[:TRAIN]))
    return float(trees.score(np.concatenate(rows[TRAIN:]), np.concatenate(labels[TRAIN:])))


as_they_come = boosted([values for _, values in X])
carried = boosted([pd.DataFrame(values).ffill().to_numpy() for _, values in X])
print(f"gradient boosting, rows as they come ≈ {as_they_come:.2f}, carried forward ≈ {carried:.2f}")
assert ours > carried + 0.03
assert carried > as_they_come

# %% [markdown]
# What happened a moment ago is written into the row, what this person is like comes from the memory. Labels of rows
# mostly need both.
