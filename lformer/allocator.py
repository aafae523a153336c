"""Keep freed memory in the process, for programs of our own that train on a CPU.

The C library hands every block over 32 MiB back to the system when it is freed, and the next tensor of that size pays
for fresh pages again: half of the time of a training step on long series. A library must not change this behind a
user's back; our commands do it for themselves, and any script may.
"""

import ctypes
import sys

import torch

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # parameters of mallopt, from malloc.h


def keep_freed_pages() -> bool:
    """Stop returning freed blocks to the system. Linux with glibc only; False where nothing was changed."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(MMAP_MAX, 0)) and bool(libc.mallopt(TRIM_THRESHOLD, -1))
    except (OSError, AttributeError):
        return False


def keep_blocks_of_steps() -> None:
    """Let the C library learn at once what it learns from the first large tensor that is freed: to keep such blocks.

    glibc raises its threshold to the size of a block that is given back, up to 32 MiB. Streams free temporary tensors
    of some MiB in every step, and until a larger one was freed they would pay for fresh pages again and again, which
    takes as long as the step itself. Pages that are never touched cost nothing.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)
