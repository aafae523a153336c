"""Where the series of a data set are stored during training: on the GPU, if they fit, or in CPU memory."""

from __future__ import annotations

from threading import Lock

import torch

from lformer.parts import DealingPart, PanelPart, Part
from lformer.resident import ResidentPart, resident_bytes
from lformer.thinned import ThinnedPart, can_be_thinned

_one_by_one = Lock()  # runs in other threads must not plan with the same free memory
SHARE = 0.25  # share of free GPU memory that one data set may take; while it is copied, it takes twice as much


def placed(part: Part, device: torch.device, drop_fraction: float = 0.0) -> Part | DealingPart:
    """The data set on the device, where its batches are then gathered, or else unchanged.

    It is left where it is on devices other than CUDA, if it is too large, and if it is not a plain `PanelPart`: if
    observations are hidden differently in every epoch, series are no longer the rows stored on the device. If
    observations are dropped, rows are stored twice: as they are, and as in the current epoch.
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
    """Free bytes on a CUDA device; 0 on others, which share the memory that holds the data set anyway."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
