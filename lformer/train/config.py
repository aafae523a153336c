"""Settings of the trainer, and the learning rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Precision = Literal["tf32", "float32", "bf16", "float64"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of the trainer; the defaults are the paper's where it specifies them.

    Attributes:
        epochs: maximum number of epochs.
        epoch_steps: minimum number of steps per epoch. A small training set is passed through several times per epoch,
            so that schedule, patience and the number of validations do not depend on the number of series.
        batch_size: series per step, over all processes together.
        lr: learning rate of Adam, with betas 0.9 and 0.999. Parameters that a module lists as `undecayed` use
            `undecayed_rate` times this learning rate, if the module defines it.
        weight_decay: weight decay of Adam (decoupled if not 0); the paper has none. It is not applied to parameters
            that a module lists as `undecayed`.
        mu_penalty: λ, the factor with which the mean over layers and heads of (mu - 1/2)² is added to the loss, so that
            mu stays near the trapezoidal rule unless the data suggest otherwise; 0, as in the paper, adds nothing.
            `weight_decay` also pulls mu there, but along with all other weights.
        schedule: "constant" (paper) or "cosine", which decays to 0 over all epochs.
        warmup: share of all steps over which the learning rate first rises to `lr`.
        average: share of all steps over which weights are averaged exponentially; the averaged weights are validated
            and kept. 0, as in the paper, keeps the weights of single steps.
        clip: maximum gradient norm; None does not clip.
        patience: number of epochs without a better validation metric after which training stops; None never stops
            early.
        earliest: the first epoch that may be selected; with few validation series, an early epoch may be best by
            chance.
        time_limit: number of seconds after which the run stops with a `TimeLimitError`, including those before an
            interruption; None is no limit.
        drop_fraction: share of the observations, rows and channels that is dropped in training, differently in every
            epoch. Rows for which there is a prediction are kept, without observations.
        piece_rows: train causal models that predict per row or series on pieces of this many rows; the state is carried
            from one piece to the next, but gradients are not, so memory does not grow with the length of the series.
            None back-propagates through whole series.
        clock: "fitted" sets the typical interval and the typical span of a series in the model from the training set;
            "kept" leaves them unchanged, for a pre-trained model.
        device: "auto" is CUDA if available, else the CPU; "cpu"; "gpu" requires a GPU, CUDA or else Apple's; or a
            PyTorch device such as "cuda:1".
        devices: number of processes that train together on this machine, started for the run and stopped after it, each
            with a GPU of its own, or without. Each takes its share of every batch. 1 is the calling process alone.
        precision: "tf32" is float32 with products on a GPU in TF32, as the fused kernels require (nothing is rounded on
            a CPU); "float32" never rounds; "bf16" trains and validates under autocast, and computes the final metrics
            in "float32"; "float64" converts model and values to float64, and leaves the model so.
        replay: on CUDA in a single process, record training and validation steps of a model that allows it (as
            `LFormer` does) as CUDA graphs, and replay them: one launch instead of one per kernel. Batches are padded to
            a few shapes, which does not change any prediction.
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
    """The learning rate of a step as a share of `config.lr`: warm-up, then constant or a decaying cosine."""
    warm = config.warmup * total
    if step < warm:
        return (step + 1) / (warm + 1)
    if config.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, total - warm)))
