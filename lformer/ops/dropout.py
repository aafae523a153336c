"""Which numbers dropout drops inside the fused mixers, by definition: the naive form of `fused/dropout.py`.

Whether a number stays is a function of the seed of a call, of the place in the model (layer and branch), of the row and
of the channel. So the backward pass asks again instead of keeping an answer, and any kernel may ask for any row. A hash
of 32 bits answers for two neighbouring channels, 16 bits each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LEVELS = 2**16  # shares are rounded to one of so many
TIME, CHANNEL = 0, 1  # the branches of a layer
EMBEDDER = -1  # the place of embedded rows, before those of the first layer

# Of a hash in two rounds whose bits all depend on all bits of its input (Ettinger, github.com/skeeto/hash-prospector).
FIRST, SECOND = 0x21F0AAAD, 0xD35A2D97
GOLDEN = 0x9E3779B9
WORD = 0xFFFFFFFF


class Dropping(NamedTuple):
    """What a call drops in training."""

    seed: Tensor  # () int64, on the device of the rows
    branches: float  # share of what each branch of each mixer adds
    rows: float = 0.0  # share of the embedded rows, where the call embeds them


def levels(p: float) -> int:
    """A share as a number of LEVELS, never all of them."""
    return min(LEVELS - 1, round(p * LEVELS))


def place(layer: int, branch: int) -> int:
    """Of all that is dropped in a model: the branches of the layers one after the other."""
    return 2 * layer + branch


def kept_factors(seed: int, place: int, rows: int, width: int, p: float, device: torch.device | str = "cpu") -> Tensor:
    """What dropout multiplies the rows of a batch with, counted through all of its series: 0 or 1 / (1 - p).

    Args:
        seed: of the call, 64 bits.
        place: in the model.
        rows: B L of them.
        width: D.
        p: share that is dropped.
        device: of the result.

    Returns:
        (rows, width) float64.
    """
    low, high = (torch.tensor(part & WORD, device=device) for part in (seed, seed >> 32))
    first_key = mixed(low ^ mixed(torch.tensor((place * GOLDEN + 1) & WORD, device=device)))
    second_key = mixed(high ^ first_key)
    row = mixed((torch.arange(rows, device=device) + first_key) & WORD)[:, None]
    pair = torch.arange(-(-width // 2), device=device)
    word = mixed(row ^ pair, (row * GOLDEN + second_key) & WORD)
    draws = torch.stack([word & (LEVELS - 1), word >> 16], dim=-1).flatten(1)[:, :width]
    dropped = levels(p)
    return (draws >= dropped).double() * (LEVELS / (LEVELS - dropped))


def mixed(x: Tensor, between: Tensor | int = 0) -> Tensor:
    """Numbers of 32 bits, in int64 -> others that look drawn; `between` enters between the rounds."""
    x = ((x ^ (x >> 16)) * FIRST) & WORD
    x = ((x ^ (x >> 15) ^ between) * SECOND) & WORD
    return x ^ (x >> 15)
