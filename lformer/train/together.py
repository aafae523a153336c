"""A run by several processes that are started for it, on this machine: `TrainConfig(devices=2)`.

The processes do what `torchrun` would have them do. What they say comes back here: the bar, epochs, warnings, errors
and at last the weights.
"""

from __future__ import annotations

import builtins
import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from lformer.devices import choose
from lformer.train import checkpoint, errors, parcel, processes
from lformer.train.errors import History
from lformer.train.progress import NewBar

if TYPE_CHECKING:
    from lformer.train.config import TrainConfig

WEIGHTS = "weights.pt"  # what the first process leaves


def check_devices(devices: Any, device: str = "auto") -> None:
    """Whether so many processes, each with a device of its own, can be started from here; if not, a ValueError."""
    if isinstance(devices, bool) or not isinstance(devices, Integral) or int(devices) < 1:  # of numpy too
        raise ValueError(f"devices must be a whole number of at least 1; got {devices!r}.")
    if devices == 1:
        return
    if not dist.is_available():
        raise ValueError(f"devices={devices} needs torch.distributed, which this PyTorch was built without.")
    size = dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        raise ValueError(
            f"devices={devices} starts processes of its own, and this is one of {size} that were started together, by "
            "torchrun perhaps, and share the work as it is. Leave devices at 1."
        )
    chosen = choose(device)
    if chosen.type == "mps":
        raise ValueError(f'devices={devices} is for CPUs and CUDA; Apple\'s GPU is one. Set device="cpu" or devices=1.')
    if chosen.type != "cuda":
        return
    if torch.device("cuda" if device in ("auto", "gpu") else device).index is not None:
        raise ValueError(f'devices={devices} takes the first {devices} GPUs, and device="{device}" names one.')
    if int(devices) > (count := torch.cuda.device_count()):
        raise ValueError(
            f"devices={devices} needs a GPU for each, and PyTorch sees {count}. Set devices={count}, or "
            'device="cpu" for processes without one.'
        )


def fit_together(
    model: nn.Module,
    task: Any,
    splits: Any,
    config: TrainConfig,
    *,
    seed: int,
    folder: str | Path | None,
    bar: NewBar,
    report: Callable[[dict[str, float]], None] | None,
) -> dict[str, Any]:
    """As `fit` with `config.devices` processes of this machine; the fields of its `Result`."""
    check_devices(config.devices, config.device)
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="lformer-", ignore_cleanup_errors=True)))
        home = place / "run" if folder is None else Path(folder).absolute()
        work = {
            "model": model, "task": task, "splits": splits, "config": replace(config, devices=1), "seed": seed,
            "folder": str(home),
        }  # fmt: skip
        parcel.pack(work, place)
        ear = _Ear(stack, bar, report)
        if config.precision == "float64":
            model.double()
        try:
            processes.run(place, config.devices, ear.hear)
        except KeyboardInterrupt:
            if ear.history and (saved := checkpoint.newest(home)) is not None:
                model.load_state_dict(saved["best"])
            raise
        model.load_state_dict(torch.load(place / WEIGHTS, weights_only=True, map_location="cpu"))
        return ear.result


class _Ear:
    """Shows, reports and raises what the first process says."""

    def __init__(self, stack: ExitStack, bar: NewBar, report: Callable[[dict[str, float]], None] | None) -> None:
        self._stack, self._new_bar, self._report = stack, bar, report
        self.history: History = []
        self.result: dict[str, Any] = {}

    def hear(self, told: processes.Told) -> None:
        """One thing that it said."""
        match told:
            case {"begin": about}:
                self._bar = self._stack.enter_context(self._new_bar(about["name"], about["total"], about["done"]))
            case {"steps": steps, "loss": loss}:
                self._bar.step(loss, steps)
            case {"validated": [name, value]}:
                self._bar.validated(name, value)
            case {"epoch": row}:
                self.history.append(row)
                if self._report is not None:
                    self._report(row)
            case {"warning": about}:
                warnings.warn(about["words"], _named(about["kind"], UserWarning), stacklevel=6)
            case {"result": result}:
                self.result = result
            case {"error": about}:
                raise self._error(about)

    def _error(self, about: dict[str, str]) -> Exception:
        """What a process failed with, as it would have come from this one."""
        kind, words = about["kind"], about["words"]
        if kind in ("TimeLimitError", "DivergedError"):
            error: Exception = getattr(errors, kind)(words, self.history)
        elif "__main__" in words and kind == "AttributeError":
            error = ValueError(
                f"the model, task or data are of a class that is defined in the script or notebook itself ({words}), "
                "where other processes cannot find it. Move it into a module, and import it from there."
            )
        else:
            known = _named(kind, None)
            error = RuntimeError(f"{kind}: {words}") if known is None else known(words)
        error.add_note(f"In one of the processes that trained together:\n{about['trace']}")
        return error


def _named(name: str, other: Any) -> Any:
    """The exception or warning of Python that has this name and is made from words alone."""
    found = getattr(builtins, name, None)
    plain = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, UnicodeError)
    return found if plain else other
