"""Where the series of a part lie during training: on the GPU, if they fit, or in the memory of the processor."""

from __future__ import annotations

from threading import Lock

import torch

from lformer.parts import DealingPart, PanelPart, Part
from lformer.resident import ResidentPart, resident_bytes
from lformer.thinned import ThinnedPart, can_be_thinned

_one_by_one = Lock()  # runs in other threads must not count on the same free memory
SHARE = 0.25  # of the free memory of a GPU that one part may take; on its way there it takes twice as much


def placed(part: Part, device: torch.device, drop_fraction: float = 0.0) -> Part | DealingPart:
    """The part on the device, where its batches are then gathered, or the part itself.

    It stays where it is on a device other than CUDA, if it is too large, and if its batches are not those of a plain
    `PanelPart`: where observations are hidden, other ones in every epoch, series are no longer the rows that lie on the
    device. Where they are dropped the rows lie there twice, as they are and as an epoch shows them.
    """
    if not isinstance(part, PanelPart) or type(part) is not PanelPart or not len(part):
        return part
    if drop_fraction and not can_be_thinned(part):
        return part
    with _one_by_one:
        times = 2 if drop_fraction else 1
        if times * resident_bytes(part) > SHARE * free_memory(device):
            return part
        return ThinnedPart(part, device) if drop_fraction else ResidentPart.of(part, device)


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a CUDA device; none on others, which share the memory that a part lies in anyway."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
