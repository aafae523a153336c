"""Where an estimator predicts: on its device, with a copy of the model that is kept there.

`model_` itself stays on the CPU, where streams, pickles and saved models read it.
"""

from __future__ import annotations

from copy import deepcopy
from weakref import WeakKeyDictionary

import torch

from lformer import devices
from lformer.nn import LFormer
from lformer.nn.ensemble import Ensemble
from lformer.parts import PanelPart
from lformer.train.together import check_devices

__all__ = ["check_devices", "choose", "placed", "series_at_once"]

MOST_SERIES, MOST_NUMBERS = 1024, 2**24  # largest batch predicted on a GPU: series; rows × max(channels, 64)

# A copy is freed with its model. Not stored on the estimator, whose attributes are those set by `fit`.
_COPIES: WeakKeyDictionary[LFormer | Ensemble, LFormer | Ensemble] = WeakKeyDictionary()


def choose(device: str) -> torch.device:
    """The device for predictions, as in training, except that "gpu" falls back to the CPU.

    A model trained on a GPU must be able to predict on a machine without one.
    """
    if device not in ("auto", "cpu", "gpu"):
        raise ValueError(f'device must be "auto", "cpu" or "gpu"; got {device!r}.')
    return devices.choose("auto" if device == "gpu" else device)


@torch.inference_mode(False)  # tensors created in inference mode cannot be modified outside of it
def placed(model: LFormer | Ensemble, device: torch.device) -> LFormer | Ensemble:
    """The model if it is on the device, else its copy there, with the current weights of the model."""
    if devices.device_of(model) == device:
        return model
    copy = _COPIES.get(model)
    if copy is None:
        copy = _COPIES[model] = deepcopy(model)
    copy.to(device).load_state_dict(model.state_dict())  # every time: fused optimisers change weights undetectably
    return copy


def series_at_once(part: PanelPart, device: torch.device, least: int) -> int:
    """Batch size for predictions; on CUDA larger than in training, where a batch would not fill the GPU."""
    if device.type != "cuda" or not len(part):
        return least
    asked = 0 if part.targets.lengths is None else int(part.targets.lengths.max(initial=0))
    longest = max(1, int(part.panel.lengths.max()) + asked)
    return max(least, min(MOST_SERIES, MOST_NUMBERS // (longest * max(64, len(part.panel.channels)))))
