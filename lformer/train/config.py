"""How a run is trained: its settings, and the learning rate that they give each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Precision = Literal["tf32", "float32", "bf16", "float64"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. The defaults are the paper's where it says anything.

    Attributes:
        epochs: at most so many.
        epoch_steps: least number of steps of an epoch. A small training part is gone through several times in one, so
            that schedule, patience and the number of validations do not depend on how many series there are.
        batch_size: series per step, of all processes together.
        lr: of Adam, betas 0.9 and 0.999. Parameters that a module names as `undecayed` learn at `undecayed_rate` times
            this rate, if it has such a number.
        weight_decay: of Adam (decoupled if not 0); the paper has none. Parameters that a module names as `undecayed`
            are left out.
        mu_penalty: λ, by which the mean over layers and heads of (mu - 1/2)² is added to the loss, so that mu stays
            near the trapezoidal rule where the data do not say otherwise; 0, the paper's, adds nothing. `weight_decay`
            also pulls mu there, but all other weights with it.
        schedule: "constant" (paper) or "cosine" down to 0 over all epochs.
        warmup: share of all steps over which the rate first rises to `lr`.
        average: share of all steps over which weights are averaged (an exponential mean); the averaged weights are
            validated and kept. 0, the paper's, keeps those of single steps.
        clip: largest gradient norm; None does not clip.
        patience: epochs without a better validation metric before stopping; None never stops early.
        earliest: the first epoch that may be chosen; few validation series may take a lucky early one for the best.
        time_limit: seconds after which the run stops with `TimeLimitError`, those before an interruption included; None
            has no limit.
        drop_fraction: in training, about this share of observations, rows and channels is dropped, others in every
            epoch. Rows that are asked for an answer stay, with nothing observed.
        piece_rows: causal models that answer per row or series are trained on pieces of so many rows, the state carried
            from one to the next and gradients cut off between them: memory then does not grow with the series. None
            goes back through whole series.
        clock: "fitted" tells the model how long a typical interval and a typical series of the training part are;
            "kept" leaves what it knows, for a model that was trained before.
        device: "auto" is CUDA where there is one, else the CPU; "cpu"; "gpu" insists on one, CUDA or else Apple's; or a
            device as PyTorch writes it, such as "cuda:1".
        devices: processes that train together on this machine, started for the run and ended with it: one for each GPU,
            or without one. Each takes its share of every batch. 1 is the calling process alone.
        precision: "tf32" is float32 whose products on a GPU round their operands to TF32, as the fused kernels want it
            (on a CPU nothing is rounded); "float32" never rounds; "bf16" trains and validates under autocast, and takes
            the final figures as "float32"; "float64" makes model and values float64, and leaves the model so.
        replay: on CUDA in a single process, record the steps and validations of a model that allows it (`LFormer`
            does), and replay them: one launch instead of one for every kernel. Batches are padded a little more, to few
            shapes, which changes no answer.
        log: "none", "csv" or "tensorboard", in the folder of the run.
    """

    epochs: int = 100
    epoch_steps: int = 1
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.0
    mu_penalty: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    warmup: float = 0.0
    average: float = 0.0
    clip: float | None = None
    patience: int | None = 20
    earliest: int = 0
    time_limit: float | None = None
    drop_fraction: float = 0.0
    piece_rows: int | None = None
    clock: Literal["fitted", "kept"] = "fitted"
    device: str = "auto"
    devices: int = 1
    precision: Precision = "tf32"
    replay: bool = True
    log: Literal["none", "csv", "tensorboard"] = "none"


def rate_share(step: int, total: int, config: TrainConfig) -> float:
    """The learning rate of a step as a share of `config.lr`: rising in the warm-up, then level or a falling cosine."""
    warm = config.warmup * total
    if step < warm:
        return (step + 1) / (warm + 1)
    if config.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, total - warm)))
