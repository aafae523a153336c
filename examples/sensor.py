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


def accuracy(panel: Panel) -> float:
    """Of a point classifier trained on the first people and asked about the others; few epochs, for a quick look."""
    model = LFormerPointClassifier(lr=5e-3, batch_size=8, max_epochs=20, random_state=0)
    return model.fit(panel[:TRAIN], y).score(panel[TRAIN:], y)


as_they_come = accuracy(X)
print(f"rows as they come ≈ {as_they_come:.2f}")

# %% [markdown]
# ## What is missing
#
# That is better than chance and worse than it could be. To label a message of the wrist the model needs to know what
# the ankle last said. It is in the memory, but so is everything else that the ankle said in five minutes: a liquid
# memory is a blend, and over a whole series the default gate fades it only by a factor of e.
#
# So we carry the last message of each sensor forward into the row. This is no imputation of the record: it says what
# was known at that moment, and nothing that came later.

# %%
carried = Panel.from_list(
    [(seconds, pd.DataFrame(values).ffill().to_numpy()) for seconds, values in X], ids=X.ids, channels=SENSORS, unit="s"
)
with_last = accuracy(carried)
print(f"last value carried forward ≈ {with_last:.2f}")
assert with_last > as_they_come + 0.05

# %% [markdown]
# ## Is the sequence worth anything, then?
#
# Gradient boosting on the same rows sees both sensors as well, but only the row. It cannot know how this person's
# straps sit.

# %%
rows, labels = [values for _, values in carried], [y[who] for who in carried.ids]
boosting = HistGradientBoostingClassifier(random_state=0)
boosting.fit(np.concatenate(rows[:TRAIN]), np.concatenate(labels[:TRAIN]))
alone = boosting.score(np.concatenate(rows[TRAIN:]), np.concatenate(labels[TRAIN:]))
print(f"gradient boosting, row by row ≈ {alone:.2f}")
assert with_last > alone

# %% [markdown]
# The two work together: what happened a moment ago is written into the row by hand, what this person is like comes
# from the memory. Whenever labels of rows depend on their neighbours, try this first.
