"""What can be exported: the interface of a fitted estimator, and checks of what a graph cannot represent."""

from __future__ import annotations

from typing import Any, Protocol

from lformer.nn.attention import LiquidGatedAttention
from lformer.nn.ensemble import Ensemble
from lformer.nn.lformer import LFormer
from lformer.nn.mixer import LiquidMixer, SwiGLU
from lformer.panel import MissingValues
from lformer.tasks import Task

KINDS = {  # estimators that can be exported, and their tasks
    "LFormerClassifier": "classify",
    "LFormerRegressor": "regress",
    "LFormerPointClassifier": "classify-points",
    "LFormerPointRegressor": "regress-points",
    "LFormerInterpolator": "interpolate",
    "LFormerForecaster": "extrapolate",
}
STEP: dict[str, tuple[str, ...]] = {  # settings that a lean step supports
    "rows": ("carried",), "embedder": ("mlp",), "time_embedding": ("none", "relative"), "gate_norm": ("prefix",),
    "persistence": ("none", "latest"), "read_out": ("row",),
}  # fmt: skip


class Subject(Protocol):
    """A fitted estimator of `lformer.estimators`."""

    model_: LFormer | Ensemble
    task_: Task
    missing_values: MissingValues

    @property
    def features_(self) -> Any: ...


def members_of(subject: Subject) -> list[LFormer]:
    """The members of an ensemble, or a list with the single model."""
    return subject.model_.models if isinstance(subject.model_, Ensemble) else [subject.model_]


def classes_of(subject: Subject) -> list[Any] | None:
    """The classes in the order of their probabilities; None for regression."""
    classes = getattr(subject, "classes_", None)
    return None if classes is None else classes.tolist()


def calibration_of(subject: Subject) -> Any:
    """The calibration; None if there is none."""
    return getattr(subject, "calibration_", None)


def streams(subject: Subject) -> bool:
    """Whether there is a step graph: the model is causal."""
    return subject.model_.config.causal


def asks(subject: Subject) -> bool:
    """Whether it predicts at query times, so that streaming models have an ask graph."""
    return subject.model_.config.answer == "query"


def require_exportable(subject: Subject) -> None:
    """Raise a clear error for what a graph cannot represent."""
    name, config, task = type(subject).__name__, subject.model_.config, subject.task_
    if KINDS.get(name) != task.name:
        raise ValueError(
            f"a {name} that was trained to {task.name} cannot be exported. Those that can are {', '.join(KINDS)}."
        )
    classes = classes_of(subject)
    told = len(task.shift) if classes is None else len(classes)
    if told != config.outputs:
        raise ValueError(
            f"the model has {config.outputs} outputs where {name} needs {told}: exported graphs do not support its "
            "head. Export a model with the usual head."
        )
    for member in members_of(subject):
        for mixer in member.mixers:
            _require_usual(mixer)
    changed = {key: getattr(config, key) for key, usual in STEP.items() if getattr(config, key) not in usual}
    if streams(subject) and changed:
        raise ValueError(
            f"a step graph is for streaming models as estimators build them; this one has {changed}. Fit it with "
            f"{name}(streaming=True), or build its model with {STEP}."
        )


def _require_usual(mixer: object) -> None:
    usual = (
        type(mixer) is LiquidMixer
        and type(mixer.time_mixer) is LiquidGatedAttention
        and type(mixer.channel_mixer) is SwiGLU
        and mixer.time_mixer.gate is not None
        and mixer.time_mixer.output_gate is not None
    )
    if not usual:
        raise ValueError(
            f"a layer of the model is not the usual mixer of liquid gated attention and SwiGLU, but {mixer}. Only "
            "those can be exported."
        )
