"""Embedders from observations to rows of width D, as in the paper's experiments (supplement, implementation)."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

Embedding = Literal["linear", "relu", "relu_norm", "mlp", "frames"]
TimeEmbedding = Literal["none", "sinusoidal", "relative"]


def require_shape(values: Tensor, shape: tuple[int, ...]) -> None:
    """Raise if rows (B, L, *C) have another shape than the model was built for."""
    if tuple(values.shape[2:]) != shape:
        raise ValueError(f"the model was built for rows of shape {shape}; got {tuple(values.shape[2:])}.")


def mlp(inputs: int, width: int, layers: int) -> nn.Sequential:
    """`layers` times [Linear, ReLU, LayerNorm], then Linear."""
    blocks: list[nn.Module] = []
    for n in range(layers):
        blocks += [nn.Linear(inputs if n == 0 else width, width), nn.ReLU(), nn.LayerNorm(width)]
    return nn.Sequential(*blocks, nn.Linear(width, width))


class FrameEncoder(nn.Module):
    """Convolutions over one 24 x 24 frame per row (pendulum).

    Note: the paper prints 24 input channels for the first convolution; a frame has one, and 24 → 12 → 6 → 3 leaves
    the 12 · 9 = 108 numbers that its last layer takes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frame = nn.Sequential(
            nn.Conv2d(1, 12, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 12, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(108, width),
            nn.ReLU(),
        )

    def forward(self, values: Tensor) -> Tensor:
        """(B, L, 24, 24) -> (B, L, D)"""
        return self.frame(values.flatten(0, 1)[:, None]).unflatten(0, values.shape[:2])


class SinusoidalTime(nn.Module):
    """Sine and cosine of the time since the start, at geometric frequencies: positional encoding for real times."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(
                f"the sinusoidal time embedding pairs sines with cosines; width must be even, got {width}."
            )
        frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        self.register_buffer("frequency", frequency, persistent=False)
        self.frequency: Tensor

    def forward(self, times: Tensor) -> Tensor:
        """(B, L) -> (B, L, D), entries alternating sine and cosine"""
        angle = times.to(self.frequency.dtype)[..., None] * self.frequency
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


class Embedder(nn.Module):
    """Embed the observations, and add an embedding of their times.

    Args:
        inputs: C, observed channels; ignored by "frames".
        width: D.
        kind: "linear"; "relu" = Linear, ReLU; "relu_norm" = Linear, ReLU, LayerNorm; "mlp" = `layers` times [Linear,
            ReLU, LayerNorm], then Linear; "frames" = convolutions over 24 x 24 frames.
        layers: hidden layers of "mlp".
        time: "none"; "sinusoidal" encoding of the time, added to the row (paper); or "relative", the same of the time
            in typical intervals, by which the caller divides, so that the unit of time does not matter.
    """

    def __init__(
        self, inputs: int, width: int, kind: Embedding = "linear", layers: int = 1, time: TimeEmbedding = "none"
    ) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = (24, 24) if kind == "frames" else (inputs,)
        kinds: dict[str, Callable[[], nn.Module]] = {
            "linear": lambda: nn.Linear(inputs, width),
            "relu": lambda: nn.Sequential(nn.Linear(inputs, width), nn.ReLU()),
            "relu_norm": lambda: nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.LayerNorm(width)),
            "mlp": lambda: mlp(inputs, width, layers),
            "frames": lambda: FrameEncoder(width),
        }
        self.value = kinds[kind]()
        self.time = SinusoidalTime(width) if time != "none" else None

    def forward(self, values: Tensor, times: Tensor) -> Tensor:
        """(B, L, *C) with 0 where nothing was observed, (B, L) -> (B, L, D)"""
        require_shape(values, self.shape)
        x = self.value(values)
        return x if self.time is None else x + self.time(times)
