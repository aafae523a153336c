"""Inference by replaying a CUDA graph.

A small batch keeps a GPU busy for less time than its kernels take to launch. A graph records them once per shape.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.cuda_graphs import recording
from lformer.cuda_graphs.recording import Recordings, fill
from lformer.ops import checks


class Captured:
    """What `capture` returns; called as the model is."""

    def __init__(self, model: nn.Module, graphs: int = 4) -> None:
        self.model = model
        self._graphs = Recordings(model, partial(_answer, model), graphs)

    def __call__(self, batch: IrregularBatch, *, copy: bool = True) -> Tensor:
        """The model's answer, without gradients.

        Args:
            batch: of any shape; lengths may differ from call to call within a padded shape.
            copy: False returns the tensor that the next call overwrites.
        """
        self._require_inference()
        batch, device = _asked(batch), batch.values.device
        if not recording.can_replay(batch, device):
            return _answer(self.model, batch)
        found = self._graphs.recording(batch, device)
        fill(found.inputs, batch)
        found.replay()
        return found.output.clone() if copy else found.output

    def captured(self, batch: IrregularBatch) -> bool:
        """Whether a graph is held for batches like this one; never on a device without CUDA."""
        device = batch.values.device
        return recording.can_replay(batch, device) and self._graphs.holds(_asked(batch), device)

    def inputs(self, batch: IrregularBatch) -> IrregularBatch:
        """The buffers of this shape: whoever writes into them and calls with them spares the copies.

        On a device without CUDA there are none, and the batch itself comes back.
        """
        self._require_inference()
        device = batch.values.device
        return self._graphs.recording(_asked(batch), device).inputs if recording.can_replay(batch, device) else batch

    def clear(self) -> None:
        """Let all graphs go, and the memory they hold; also to be called after a submodule was replaced."""
        self._graphs.clear()

    def _require_inference(self) -> None:
        if self.model.training:
            raise RuntimeError(
                f"this graph is replayed for inference only, and this {type(self.model).__name__} is in training mode. "
                "Call model.eval() first; a training step is recorded by capture_step."
            )


def capture(model: nn.Module, graphs: int = 4) -> Captured:
    """A model for inference that replays CUDA graphs, one per shape of batch.

    The first call with a shape (B, L, C, Q, dtypes) records; later ones copy the batch into fixed buffers and replay.
    Parameters changed in place are seen. Weights that moved (`model.to`, `load_state_dict(assign=True)`), another
    autocast or another float32 precision lead to a new recording. Values are not looked at: `IrregularBatch.build`
    has checked them. On a device without CUDA the model is simply run, and `captured(batch)` says so.

    Args:
        model: any model called with an `IrregularBatch`, in evaluation mode. Its work must not depend on the values.
        graphs: how many shapes are held, each with its buffers; the one not used for longest makes room.

    Example:
        >>> from lformer.nn import LFormer, LFormerConfig
        >>> fast = capture(LFormer(LFormerConfig(inputs=3, outputs=2)).eval())
        >>> batch = IrregularBatch.build(torch.randn(8, 50, 3), times=torch.rand(8, 50).cumsum(1))
        >>> fast(batch).shape, fast.captured(batch)
        (torch.Size([8, 2]), False)
    """
    return Captured(model, graphs)


def _answer(model: nn.Module, batch: IrregularBatch) -> Tensor:
    with torch.no_grad(), checks.skip_value_checks():
        answer: Tensor = model(batch)
    return answer


def _asked(batch: IrregularBatch) -> IrregularBatch:
    """Without what no model reads."""
    if batch.targets is None and batch.index is None and batch.weights is None:
        return batch
    return replace(batch, targets=None, targets_observed=None, targets_given=None, weights=None, index=None)
