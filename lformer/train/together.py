"""Train in several processes that are started for the run on this machine: `TrainConfig(devices=2)`.

The processes do the same as under `torchrun`. Everything they report comes back here: progress, epochs, warnings,
errors and finally the weights.
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

WEIGHTS = "weights.pt"  # written by the first process


def check_devices(devices: Any, device: str = "auto") -> None:
    """Raise a ValueError if this many processes, each with its own device, cannot be started from here."""
    if isinstance(devices, bool) or not isinstance(devices, Integral) or int(devices) < 1:  # also numpy integers
        raise ValueError(f"devices must be a whole number of at least 1; got {devices!r}.")
    if devices == 1:
        return
    if not dist.is_available():
        raise ValueError(f"devices={devices} needs torch.distributed, which this PyTorch was built without.")
    size = dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        raise ValueError(
            f"devices={devices} starts its own processes, but this is one of {size} that were already started "
            "together, for example by torchrun, and share the work. Leave devices at 1."
        )
    chosen = choose(device)
    if chosen.type == "mps":
        raise ValueError(f'devices={devices} is for CPUs and CUDA; Apple has one GPU. Set device="cpu" or devices=1.')
    if chosen.type != "cuda":
        return
    if torch.device("cuda" if device in ("auto", "gpu") else device).index is not None:
        raise ValueError(f'devices={devices} takes the first {devices} GPUs, but device="{device}" names a single one.')
    if int(devices) > (count := torch.cuda.device_count()):
        raise ValueError(
            f"devices={devices} needs a GPU for each, but PyTorch sees {count}. Set devices={count}, or "
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
    """Like `fit`, with `config.devices` processes on this machine; returns the fields of its `Result`."""
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
    """Shows, passes on and raises what the first process reports."""

    def __init__(self, stack: ExitStack, bar: NewBar, report: Callable[[dict[str, float]], None] | None) -> None:
        self._stack, self._new_bar, self._report = stack, bar, report
        self.history: History = []
        self.result: dict[str, Any] = {}

    def hear(self, told: processes.Told) -> None:
        """Handle one report."""
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
        """The error of a process, as if it had been raised in this one."""
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
    """The built-in exception or warning with this name, if it can be created from a message alone."""
    found = getattr(builtins, name, None)
    plain = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, UnicodeError)
    return found if plain else other
