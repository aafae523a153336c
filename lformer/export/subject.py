"""What is exported: a fitted estimator, of which only this much is asked, and what of it a graph cannot hold."""

from __future__ import annotations

from typing import Any, Protocol

from lformer.nn.attention import LiquidGatedAttention
from lformer.nn.ensemble import Ensemble
from lformer.nn.lformer import LFormer
from lformer.nn.mixer import LiquidMixer, SwiGLU
from lformer.panel import MissingValues
from lformer.tasks import Task

KINDS = {  # what each estimator answers, and the task it was trained on
    "LFormerClassifier": "classify",
    "LFormerRegressor": "regress",
    "LFormerPointClassifier": "classify-points",
    "LFormerPointRegressor": "regress-points",
    "LFormerInterpolator": "interpolate",
    "LFormerForecaster": "extrapolate",
}
STEP: dict[str, tuple[str, ...]] = {  # what a lean step knows of
    "rows": ("carried",), "embedder": ("mlp",), "time_embedding": ("none", "relative"), "gate_norm": ("prefix",),
    "persistence": ("none", "latest"), "read_out": ("row",),
}  # fmt: skip


class Subject(Protocol):
    """A fitted estimator, as `lformer.estimators` has them."""

    model_: LFormer | Ensemble
    task_: Task
    missing_values: MissingValues

    @property
    def features_(self) -> Any: ...


def members_of(subject: Subject) -> list[LFormer]:
    """The models that answer together."""
    return subject.model_.models if isinstance(subject.model_, Ensemble) else [subject.model_]


def classes_of(subject: Subject) -> list[Any] | None:
    """The classes that probabilities stand for, in their order; None if it answers with numbers."""
    classes = getattr(subject, "classes_", None)
    return None if classes is None else classes.tolist()


def calibration_of(subject: Subject) -> Any:
    """The thresholds, if it is calibrated; else None."""
    return getattr(subject, "calibration_", None)


def streams(subject: Subject) -> bool:
    """Whether there is a step graph: the model only looks back."""
    return subject.model_.config.causal


def asks(subject: Subject) -> bool:
    """Whether it answers at times that are asked for, for which its streams have an ask graph."""
    return subject.model_.config.answer == "query"


def require_exportable(subject: Subject) -> None:
    """Refuse in words what a graph cannot hold."""
    name, config, task = type(subject).__name__, subject.model_.config, subject.task_
    if KINDS.get(name) != task.name:
        raise ValueError(
            f"a {name} that was trained to {task.name} cannot be exported. Those that can are {', '.join(KINDS)}."
        )
    classes = classes_of(subject)
    told = len(task.shift) if classes is None else len(classes)
    if told != config.outputs:
        raise ValueError(
            f"the model puts out {config.outputs} numbers where {name} answers with {told}: its head is one that an "
            "exported graph does not know. Export a model with the usual head."
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
