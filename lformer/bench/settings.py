"""What each baseline sets for itself, by data set: the published settings where there are any.

`SETTINGS[model]` is by data set, or data set and task; "" is for all of them. Where nothing is said, a baseline has the
defaults of its configuration, embedder and head of the task if it has no encoder of its own, and Adam at a constant
rate of 1e-3 with the batch size and at most the epochs that LFormer has on that data set: sensible, and not published.
Selection is always on the validation part, also where the publication took the last epoch or the test part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SPIRALS = ("spiral-2", "spiral-0.2", "spiral-0.02")
WITH_GAPS = ("activity", "ushcn", "physionet")  # rows lack values of some channels


@dataclass(frozen=True)
class Changes:
    """Fields of a model, of `TrainConfig`, and options of `data.load`."""

    model: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)

    def then(self, later: Changes) -> Changes:
        """Both; the later ones win."""
        return Changes(
            {**self.model, **later.model}, {**self.train, **later.train}, {**self.data, **later.data}
        )  # fmt: skip


def settings(model: str, dataset: str, task: str) -> Changes:
    """Of a baseline on a data set: what it sets everywhere, then there, then for the task.

    Example:
        >>> settings("rformer", "scp1", "classify").model["windows"]
        100
    """
    found, own = Changes(train={"lr": 1e-3}), SETTINGS.get(model, {})
    for key in ("", dataset, f"{dataset} {task}"):
        found = found.then(own.get(key, Changes()))
    return found


# --- what several have in common ---

# A value that is missing is shown as such: [x, mask] as input.
SHOW_GAPS = dict.fromkeys(WITH_GAPS, Changes({"rows": "observed"}))

# Chen et al. 2023, ContiFormer, on the spirals, for all models; the neural ODE saw all spirals at once.
CHEN = {"lr": 1e-2, "batch_size": 64}

# Walker et al. 2024 on the UEA sets: up to 100,000 steps of batch 32 at a constant rate, validated every 1,000, stopped
# at the 11th validation without a gain. Linear map in, mean over time, linear map out.
WALKER = {"batch_size": 32, "epoch_steps": 1000, "epochs": 100, "patience": 11}
LINEAR_ENDS = {"embedder": "linear", "head_layers": 0, "dropout": 0.1}


def _walker(lr: float, depth: int, width: int, state: int, time: bool, **own: Any) -> Changes:
    sizes = {"depth": depth, "width": width, "state": state, "time_channel": time}
    return Changes({**LINEAR_ENDS, **sizes, **own}, {**WALKER, "lr": lr})


# --- by model ---


# Walker et al. 2024, Log Neural CDEs: rate, blocks, width, state, whether time is a channel.
LRU = SHOW_GAPS | {
    "ethanol": _walker(1e-5, 6, 64, 16, True, norm="batch"),
    "eigenworms": _walker(1e-3, 4, 64, 64, False, norm="batch"),
    "heartbeat": _walker(1e-4, 2, 128, 256, True, norm="batch"),
    "motor-imagery": _walker(1e-3, 6, 16, 256, False, norm="batch"),
    "scp1": _walker(1e-3, 2, 64, 16, False, norm="batch"),
    "scp2": _walker(1e-3, 2, 64, 16, True, norm="batch"),
}
# The same, and blocks J of the state. On the pendulum, Smith et al. 2023: 3e-3 for the state space.
S5 = SHOW_GAPS | {
    "ethanol": _walker(1e-5, 2, 128, 16, True, norm="batch", hippo_blocks=8),
    "eigenworms": _walker(1e-4, 2, 64, 16, True, norm="batch", hippo_blocks=8),
    "heartbeat": _walker(1e-3, 4, 128, 16, False, norm="batch", hippo_blocks=4),
    "motor-imagery": _walker(1e-3, 6, 16, 64, False, norm="batch", hippo_blocks=4),
    "scp1": _walker(1e-3, 6, 128, 16, False, norm="batch", hippo_blocks=8),
    "scp2": _walker(1e-4, 2, 16, 64, True, norm="batch", hippo_blocks=2),
    "pendulum": Changes(
        {"depth": 4, "width": 30, "state": 16, "hippo_blocks": 8, "step_min": 1e-2, "state_rate": 0.25},
        {"lr": 1.2e-2, "batch_size": 32, "schedule": "cosine"},
    ),
}
# Rusch and Rus 2025, LinOSS: rate, blocks, width, state, time; the discretisation that was selected.
LINOSS = SHOW_GAPS | {
    "ethanol": _walker(1e-5, 4, 16, 16, False, norm="batch", dropout=0.05, discretisation="im"),
    "eigenworms": _walker(1e-3, 2, 128, 64, True, norm="batch", dropout=0.05, discretisation="im").then(
        Changes(train={"batch_size": 4})
    ),
    "heartbeat": _walker(1e-3, 6, 16, 16, True, norm="batch", dropout=0.05, discretisation="im"),
    "motor-imagery": _walker(1e-5, 2, 128, 16, False, norm="batch", dropout=0.05, discretisation="im"),
    "scp1": _walker(1e-4, 6, 128, 256, True, norm="batch", dropout=0.05, discretisation="im"),
    "scp2": _walker(1e-5, 6, 64, 256, True, norm="batch", dropout=0.05, discretisation="imex"),
}
S6 = SHOW_GAPS | {
    "ethanol": _walker(1e-5, 4, 16, 16, True),
    "eigenworms": _walker(1e-3, 4, 16, 64, False),
    "heartbeat": _walker(1e-3, 4, 16, 16, True),
    "motor-imagery": _walker(1e-3, 4, 16, 256, True),
    "scp1": _walker(1e-4, 2, 64, 16, False),
    "scp2": _walker(1e-3, 2, 16, 256, False),
}
MAMBA = SHOW_GAPS | {
    "ethanol": _walker(1e-3, 4, 64, 256, True, conv=4, expand=4, block="gated"),
    "eigenworms": _walker(1e-3, 6, 16, 64, True, conv=2, expand=1, block="gated"),
    "heartbeat": _walker(1e-4, 4, 64, 256, False, conv=2, expand=4, block="gated"),
    "motor-imagery": _walker(1e-5, 2, 128, 64, False, conv=3, expand=1, block="gated"),
    "scp1": _walker(1e-5, 2, 128, 16, False, conv=4, expand=1, block="gated"),
    "scp2": _walker(1e-4, 6, 64, 64, True, conv=2, expand=2, block="gated"),
}


def _controlled(lr: float, width: int, depth: int, inner: int, time: bool, **own: Any) -> Changes:
    sizes = {"width": width, "depth": depth, "inner": inner, "time_in_path": time, "solver": "heun"}
    return Changes({**sizes, **own}, {**WALKER, "epoch_steps": 100, "lr": lr})


# Walker et al. 2024: rate, state, layers of the field and their width, whether time is in the path. These models were
# validated every 100 steps. Published are steps of a length on [0, 1], mostly a row or window; where they are shorter,
# `steps` is the next whole number, so that none of ours is longer.
NCDE = SHOW_GAPS | {
    **dict.fromkeys(SPIRALS, Changes(train=CHEN)),
    "ethanol": _controlled(1e-3, 128, 4, 128, True),
    "eigenworms": _controlled(1e-3, 128, 3, 128, True),
    "heartbeat": _controlled(1e-3, 128, 4, 128, True, steps=2),
    "motor-imagery": _controlled(1e-3, 16, 4, 128, True),
    "scp1": _controlled(1e-4, 128, 4, 128, False),
    "scp2": _controlled(1e-3, 128, 4, 128, False),
}
NRDE = SHOW_GAPS | {
    "ethanol": _controlled(1e-3, 64, 4, 128, True, level=1, window=1),
    "eigenworms": _controlled(1e-3, 64, 3, 64, False, level=2, window=4),
    "heartbeat": _controlled(1e-3, 64, 3, 128, False, level=2, window=2, steps=3),
    "motor-imagery": _controlled(1e-4, 128, 4, 128, False, level=1, window=1),
    "scp1": _controlled(1e-3, 64, 4, 128, True, level=1, window=1),
    "scp2": _controlled(1e-4, 128, 4, 128, True, level=1, window=1),
}
LOGNCDE = SHOW_GAPS | {
    "ethanol": _controlled(1e-4, 64, 3, 64, True, level=1, window=1, penalty=1e-6),
    "eigenworms": _controlled(1e-3, 128, 2, 32, True, level=2, window=12, penalty=1e-3),
    "heartbeat": _controlled(1e-3, 16, 3, 128, True, level=2, window=2, steps=3, penalty=1e-6),
    "motor-imagery": _controlled(1e-3, 16, 3, 64, False, level=2, window=16, steps=3, penalty=1e-3),
    "scp1": _controlled(1e-4, 64, 3, 128, False, level=2, window=16, steps=9, penalty=0.0),
    "scp2": _controlled(1e-4, 128, 2, 32, False, level=2, window=4, steps=2, penalty=1e-3),
}


def _rough(
    windows: int, level: int, lr: float, epochs: int, heads: int = 3, patches: str = "global", univariate: bool = True
) -> Changes:
    sizes = {"windows": windows, "level": level, "heads": heads, "patches": patches, "univariate": univariate}
    published = {"depth": 2, "mapped": False, "basepoint": False, "shared": True}
    return Changes({**sizes, **published}, {"lr": lr, "epochs": epochs, "batch_size": 20, "patience": None})


# Moreno-Pino et al. 2024. For Heartbeat and SCP2 heads, patches and, for SCP2, the rate are those of SCP1; for heart
# rate only the batch size is known.
RFORMER = SHOW_GAPS | {
    "ethanol": _rough(400, 1, 1e-3, 20, heads=1, univariate=False),
    "eigenworms": _rough(10, 2, 3e-4, 125, heads=1, patches="local", univariate=False),
    "heartbeat": _rough(30, 2, 1e-3, 15),
    "motor-imagery": _rough(200, 2, 1e-4, 60, patches="local"),
    "scp1": _rough(100, 2, 1e-4, 20),
    "scp2": _rough(50, 3, 1e-4, 30),
    **dict.fromkeys(("bidmc-hr", "bidmc-rr", "bidmc-spo2"), Changes({"windows": 100}, {"batch_size": 64})),
}

# Shukla and Marlin 2021. The sizes of PhysioNet are the defaults of the model; a hidden layer before an answer.
MTAND = {
    "": Changes({"head_layers": 1}, {"batch_size": 32}),
    "physionet classify": Changes({"head_layers": 2}),
    "activity": Changes({"width": 512, "points": "encoder", "head_layers": 0}, {"batch_size": 256}),
    "pendulum": Changes({"rows": "values"}, {"batch_size": 50}),
}

# RKN-dt and CRU, Becker et al. 2019 and Schirmer et al. 2022: the state is twice a latent observation; K transitions,
# and their bands.
RKN = SHOW_GAPS | {
    "": Changes({"width": 50, "depth": 1}, {"clip": 1.0, "batch_size": 50}),
    "pendulum": Changes({"state": 30, "transitions": 15, "band": 3}),
    "ushcn": Changes({"rows": "observed", "state": 10, "transitions": 20, "band": 10}),
    "physionet": Changes({"rows": "observed", "state": 20, "transitions": 20, "band": 10}),
}
# Park et al. 2025: AdamW at 1e-3. Rows attend to earlier ones where the rest is predicted.
HISTORY = Changes({"causal": True})
ACSSM = SHOW_GAPS | {
    "pendulum": Changes({"width": 20, "bases": 15, "depth": 4}, {"batch_size": 50, "weight_decay": 1e-2}),
    "activity": Changes(
        {"rows": "observed", "width": 288, "bases": 256, "depth": 1, "initial_variance": 1.0, "dropout": 0.2},
        {"batch_size": 256, "weight_decay": 1e-2, "clip": 1.0},
    ),
    "ushcn": Changes({"rows": "observed", "width": 20, "bases": 20, "depth": 4}, {"batch_size": 50}),
    "physionet": Changes({"rows": "observed", "width": 24, "bases": 20, "depth": 4}, {"batch_size": 100}),
    "ushcn extrapolate": HISTORY,
    "physionet extrapolate": HISTORY,
}

# Che et al. 2018 and Hasani et al. 2022: one layer. GRU-D reads what was observed by itself.
ONE_LAYER = {"": Changes({"depth": 1})}

# Chen et al. 2018, as in Chen et al. 2023 on the spirals, with the tolerances of Rubanova et al. 2019.
NODE = SHOW_GAPS | dict.fromkeys(
    SPIRALS,
    Changes(
        {"width": 16, "latent": 8, "units": 16, "activation": "elu", "head_layers": 1, "method": "dopri5"},
        {**CHEN, "batch_size": 200},
    ),
)

# Rubanova et al. 2019, a linear decoder. Published is 1e-2, by Adamax at a falling rate; with Adam O-ODE then ends in
# the mean of all curves, and R-ODE on PhysioNet in an explosion. 3e-3 and the clipping are ours, chosen on validation
# curves.
LATENT_ODE = SHOW_GAPS | {
    "": Changes({"method": "dopri5", "head_layers": 0}, {"lr": 3e-3, "clip": 1.0}),
    **dict.fromkeys(SPIRALS, Changes(train={"batch_size": CHEN["batch_size"]})),
    "physionet": Changes({"rows": "observed", "width": 40, "latent": 20, "units": 50, "depth": 3}),
    "activity": Changes({"rows": "observed", "width": 100, "latent": 15, "units": 500, "depth": 2}),
}

# De Brouwer et al. 2019. The batch size is that of USHCN.
GRU_ODE_BAYES = SHOW_GAPS | {
    "": Changes({"width": 50, "dropout": 0.2}, {"weight_decay": 1e-4}),
    "ushcn": Changes({"rows": "observed"}, {"batch_size": 500}),
}

# The continuous time embedding of the spirals (Chen et al. 2023) takes the place of the index.
TRANSFORMER = SHOW_GAPS | dict.fromkeys(
    SPIRALS,
    Changes({"width": 32, "depth": 1, "positions": "time", "time_embedding": "none"}, CHEN),
)

# Chen et al. 2023. On the UEA sets only the sizes are known; of the rest, batch size and rate are those of all models.
UEA = ("ethanol", "eigenworms", "heartbeat", "motor-imagery", "scp1", "scp2")
CONTIFORMER = {
    **SHOW_GAPS,
    # A step is some hundred thousand kernels, 5,000 for every reader: too many to record.
    "physionet": Changes({"rows": "observed"}, {"replay": False}),
    **dict.fromkeys(UEA, Changes({"width": 32, "feed_forward": 128, "dynamics": "sigmoid"})),
    **dict.fromkeys(
        SPIRALS,
        Changes({"width": 16, "feed_forward": 64, "time_embedding": "none"}, CHEN),
    ),
}

# Zeng et al. 2023. The published rate falls along a cosine again and again, every 30 of 990 epochs; here once.
FALLING = {"batch_size": 64, "schedule": "cosine", "patience": None}
LSDE = {
    "pendulum": Changes({"rows": "values", "width": 32, "degree": 6}, FALLING),
    "activity": Changes({"width": 128, "degree": 4, "start_weight": 1e-4, "path_weight": 1e-4}, FALLING),
}

SETTINGS: dict[str, dict[str, Changes]] = {
    "gru": SHOW_GAPS,
    "gru-dt": SHOW_GAPS,
    "transformer": TRANSFORMER,
    "lru": LRU,
    "linoss": LINOSS,
    "s5": S5,
    "s6": S6,
    "mamba": MAMBA,
    "gru-d": ONE_LAYER,
    "cfc": ONE_LAYER | SHOW_GAPS,
    "rkn-dt": RKN,
    "cru": RKN,
    "acssm": ACSSM,
    "node": NODE,
    "r-ode": LATENT_ODE,
    "o-ode": LATENT_ODE,
    "gru-ode-b": GRU_ODE_BAYES,
    "mtand": MTAND,
    "rformer": RFORMER,
    "ncde": NCDE,
    "nrde": NRDE,
    "logncde": LOGNCDE,
    "lsde": LSDE,
    "contiformer": CONTIFORMER,
}
