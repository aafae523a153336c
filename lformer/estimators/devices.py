"""Where an estimator answers: on the device of its training, by a copy of the model that stays there.

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

MOST_SERIES, MOST_NUMBERS = 1024, 2**24  # of a batch that a GPU answers: series; rows times channels, of at least 64

# A copy goes when its model goes; kept apart from the estimator, whose attributes are those of `fit`.
_COPIES: WeakKeyDictionary[LFormer | Ensemble, LFormer | Ensemble] = WeakKeyDictionary()


def choose(device: str) -> torch.device:
    """The device of an estimator that answers, as the trainer has it, but "gpu" does not insist.

    What a GPU trained must answer on a machine without one.
    """
    if device not in ("auto", "cpu", "gpu"):
        raise ValueError(f'device must be "auto", "cpu" or "gpu"; got {device!r}.')
    return devices.choose("auto" if device == "gpu" else device)


@torch.inference_mode(False)  # tensors made in inference mode could not be written to outside of it
def placed(model: LFormer | Ensemble, device: torch.device) -> LFormer | Ensemble:
    """The model if it is on the device, else its copy there, with the weights that the model has now."""
    if devices.device_of(model) == device:
        return model
    copy = _COPIES.get(model)
    if copy is None:
        copy = _COPIES[model] = deepcopy(model)
    copy.to(device).load_state_dict(model.state_dict())  # every time: a fused optimiser changes weights without a trace
    return copy


def series_at_once(part: PanelPart, device: torch.device, least: int) -> int:
    """How many series are answered at a time: on CUDA more than a step of training has, which would not fill it."""
    if device.type != "cuda" or not len(part):
        return least
    asked = 0 if part.targets.lengths is None else int(part.targets.lengths.max(initial=0))
    longest = max(1, int(part.panel.lengths.max()) + asked)
    return max(least, min(MOST_SERIES, MOST_NUMBERS // (longest * max(64, len(part.panel.channels)))))
