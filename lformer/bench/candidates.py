"""Variants to be measured: the paper's three named limits as options, and training of our own.

None is a recipe we recommend. Those that win on the validation part of a cell go into `BEST` of `recipes.py`, by name.
"""

from __future__ import annotations

from lformer.bench.settings import SPIRALS, Changes

# --- the limits that the paper names (VI) ---


def causal(dataset: str, task: str) -> Changes:
    """A row reads nothing later; gates are still normalised over the whole series. What `prefix` is to be held against.

    `prefix` alone changes two things of the paper's recipe; beside this one it changes the normaliser only.
    """
    return Changes({"causal": True})


def prefix(dataset: str, task: str) -> Changes:
    """Gates normalised by what came before, so that the model can stream.

    Causal as well: a model that reads ahead knows the whole series, and kernels and states of the prefix norm are for
    causal models alone.
    """
    return Changes({"causal": True, "gate_norm": "prefix"})


def trapezoid(dataset: str, task: str) -> Changes:
    """mu held near 1/2. The ablation `fixed_mu` holds it there for good."""
    return Changes(train={"mu_penalty": 0.1})


def trapezoid_light(dataset: str, task: str) -> Changes:
    """The same with a tenth of the weight, for errors as small as those of the pendulum."""
    return Changes(train={"mu_penalty": 0.01})


QUERIED = ("trajectory", "interpolate", "extrapolate")  # tasks whose data can ask at times without a row


def queries(dataset: str, task: str) -> Changes:
    """Times without a row are query times, not empty rows. What `read-out` is to be held against.

    The spirals' recipe has them already.
    """
    if task not in QUERIED:
        raise ValueError(f"{task} of {dataset} asks for nothing at query times; {', '.join(QUERIED)} do.")
    return Changes(data={"unobserved": "query"})


def read_out(dataset: str, task: str) -> Changes:
    """Queries read the rows by their distance in time, see `lformer.nn.read_out`."""
    return queries(dataset, task).then(Changes({"read_out": "time"}))


# --- training ---

COSINE = {
    "lr": 2e-3, "schedule": "cosine", "warmup": 0.05, "weight_decay": 0.05, "clip": 1.0, "patience": None,
}  # fmt: skip
# A rate that falls to 0 needs all of its epochs; elsewhere as many as the recipe has at most.
COSINE_EPOCHS = {("activity", "classify-points"): 150, ("physionet", "reconstruct"): 250}

DROPPED_EPOCHS = {"pendulum": 100}  # of recipes that train long

# Three times those of the recipes whose rate falls already.
LONG = {"bidmc-hr": 180, "bidmc-rr": 180, "bidmc-spo2": 180, "pendulum": 900, **dict.fromkeys(SPIRALS, 300)}


def cosine(dataset: str, task: str) -> Changes:
    """A rate that rises to 2e-3 and falls to 0, clipped gradients, weight decay and dropout."""
    epochs = COSINE_EPOCHS.get((dataset, task))
    return Changes({"dropout": 0.1}, COSINE if epochs is None else {**COSINE, "epochs": epochs})


def row_trees(dataset: str, task: str) -> Changes:
    """Predictions at rows averaged with those of boosted trees on the values around each row, as estimators do."""
    if not task.endswith("-points"):
        raise ValueError(f"row_trees are for predictions at rows, classify-points and regress-points; got {task}.")
    return Changes({"trees": 60})


def dropped(dataset: str, task: str, share: float = 0.1) -> Changes:
    """Training on less than there is: about this share of rows, and of observations and channels, is not shown."""
    epochs = DROPPED_EPOCHS.get(dataset)
    return Changes(train={"drop_fraction": share} if epochs is None else {"drop_fraction": share, "epochs": epochs})


def longer(dataset: str, task: str) -> Changes:
    """Three times the epochs, and nothing else."""
    if dataset not in LONG:
        raise ValueError(
            f"longer is for recipes whose rate falls to 0 over all epochs: {', '.join(LONG)}; that of {dataset} stops "
            "when it no longer gains."
        )
    return Changes(train={"epochs": LONG[dataset]})
