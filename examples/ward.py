"""From a table of laboratory results to a risk, and what the gates do with time.

The ward is simulated and built in. Every patient has three spells of a fast heart and three of raised lactate. A fast
heart alone is pain; raised lactate alone, exertion. Lactate that rises with the heart is failing circulation, and
such patients tend to deteriorate. How high a value rises says little: what happened together says much.

Run it from top to bottom; the picture goes to runs/examples, or to the folder in LFORMER_OUT.
"""

# %%
import os
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # a file is drawn, no window
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from lformer import LFormerClassifier, Panel, load, ops
from lformer.data import toy_ward

OUT = Path(os.environ.get("LFORMER_OUT", "runs/examples"))
TRAIN = 240

# %% [markdown]
# ## The table
#
# One result per row, as a laboratory would export it. Some results were lost, and no two labs are drawn equally
# often.

# %%
ward = toy_ward(patients=360)
print(ward.table.head(5).to_string(index=False))
print(ward.table.groupby("lab").value.agg(["count", "mean"]).round(1).to_string())

# %% [markdown]
# It becomes a panel as it stands. Nothing is resampled and nothing filled in; four of five cells are simply not
# there. What does not change (age, sex, unit) goes in beside it, and the outcome is looked up by patient, never by
# position.

# %%
X = Panel.from_long(ward.table, id="patient", time="time", channel="lab", value="value", unit="h", static=ward.static)
y = X.align(ward.labels)
print(X)

# %% [markdown]
# ## A risk
#
# The default classifier, for 15 of its 40 epochs to keep this short. It holds out some of the training patients by
# itself to choose the best epoch; the last 120 patients are ours alone.

# %%
clf = LFormerClassifier(max_epochs=15, device="cpu", random_state=0)  # where layers can be watched at work, see below
clf.fit(X[:TRAIN], y[:TRAIN])
risk = clf.predict_proba(X[TRAIN:])[:, 1]
area = roc_auc_score(y[TRAIN:], risk)
print(f"area under the ROC curve ≈ {area:.2f}")
assert area > 0.75

# %% [markdown]
# ## Does time matter?
#
# A cheap way to find out: give the same values in the same order, but at evenly spaced times. If the answer is as
# good, the model did not need the clock. (Here much of the story is in the order of the rows, and rows crowd where a
# patient looks ill, so part of it survives.)

# %%
test = X[TRAIN:].compact()
even = np.concatenate([np.linspace(0, clock[-1], len(clock)) for clock in np.split(test.times, test.first[1:])])
blind = roc_auc_score(y[TRAIN:], clf.predict_proba(replace(test, times=even))[:, 1])
print(f"with evenly spaced times ≈ {blind:.2f}")

# %% [markdown]
# ## What the gates do
#
# In every layer each head turns a row into a rate between 0 and 1. Interval × rate is the decay over that interval,
# and the decays of a record are divided by their sum: each head has a budget of 1 for the whole stay. Where it spends
# much, older rows fade and the next one is written strongly.
#
# We look at the first layer by catching what goes into it.

# %%
layer = clf.model_.mixers[0].liquid
caught = {}
handle = layer.register_forward_pre_hook(
    lambda module, given, named: caught.update(x=given[0], deltas=given[1]), with_kwargs=True
)
chosen = TRAIN + int(risk.argmax())
clf.predict_proba(X[chosen : chosen + 1])
handle.remove()

with torch.no_grad():
    rate = torch.sigmoid(layer.gate(caught["x"]))  # (1, L, H)
    decay = ops.normalise_decay(ops.liquid_decay(rate, caught["deltas"], layer.mu()), "sequence")[0].numpy()
np.testing.assert_allclose(decay.sum(axis=0), 1.0, rtol=1e-5)

share = caught["deltas"][0].numpy() / caught["deltas"].sum().item()  # what the clock alone would spend
for head, spent in enumerate(decay.T):
    print(f"head {head}: {np.abs(spent - share).sum() / 2:.0%} of its budget is not where the clock alone would put it")

# %% [markdown]
# By the clock alone the budget would be spent evenly over the hours. The rest is what the head has learned from the
# values. This shows where a memory fades; it does not show why a patient got their risk.

# %%
stamps, values = X[chosen]
hours = (stamps - stamps[0]) / np.timedelta64(1, "h")
figure, axes = plt.subplots(3, sharex=True, figsize=(9, 5), layout="constrained")
for axis, lab in zip(axes, ("heart rate", "lactate"), strict=False):
    column = values[:, X.channels.index(lab)]
    axis.plot(hours, column, "o", markersize=4)
    axis.set_ylabel(lab)
for head, spent in enumerate(decay.T):
    axes[2].step(hours, np.cumsum(spent), where="post", label=f"head {head}")
axes[2].step(hours, np.cumsum(share), where="post", color="0.6", linestyle="--", label="clock alone")
axes[2].set(xlabel="hours since admission", ylabel="decay spent")
axes[2].legend(ncols=5, fontsize="small", frameon=False)
OUT.mkdir(parents=True, exist_ok=True)
figure.savefig(OUT / "ward.png", dpi=110)
plt.close(figure)
print("look at", OUT / "ward.png")

# %% [markdown]
# ## Keep it
#
# A folder with the weights and a description in JSON: classes, channels, scales. Loading runs no code of the folder.

# %%
clf.save(OUT / "ward-model")
again = load(OUT / "ward-model")
assert (again.predict_proba(X[TRAIN:])[:, 1] == risk).all()
print("the loaded model tells the same risks")
