# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Which numbers dropout keeps, as a function of seed, stream, row and channel alone.

Nothing is stored: the backward pass asks again and gets the same answer. The seed lies on the device, drawn once per
call, so that a replayed CUDA graph drops other numbers every time.
"""

import triton
import triton.language as tl

GOLDEN = tl.constexpr(0x9E3779B9)  # 2^32 over the golden ratio: neighbouring channels land far apart


@triton.jit
def scrambled(x):
    """uint32 -> uint32, every bit of which depends on every bit of x: the end of MurmurHash3."""
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def kept(seed, stream, rows, channels, p):
    """Whether a number is kept, with probability 1 - p.

    seed: pointer to one int64. stream: int, another one for every place where numbers are dropped in a call.
    rows (T,), channels (C,) -> (T, C) bool
    """
    word = tl.load(seed)
    key = scrambled((word >> 32).to(tl.uint32) + stream)
    key = scrambled(key ^ word.to(tl.uint32))
    of_row = scrambled(key ^ rows.to(tl.uint32))
    bits = scrambled(of_row[:, None] + channels.to(tl.uint32)[None, :] * GOLDEN)
    return (bits >> 8).to(tl.float32) * 5.9604644775390625e-08 >= p  # the upper 24 bits as a number in [0, 1)
