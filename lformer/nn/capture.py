"""Inference by replaying a CUDA graph: one launch for the whole model instead of one for every kernel.

A small batch keeps a GPU busy for less time than its kernels take to launch. A graph records them once per shape.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.ops import checks

INPUTS = ("values", "times", "deltas", "observed", "lengths", "start", "query_times")  # what a model may read
WARM_UP = 3  # kernels are compiled and libraries set up before the recording, which allows neither


class Recording(NamedTuple):
    """A recorded model: `replay` reads `inputs` and overwrites `output`."""

    inputs: IrregularBatch
    output: Tensor
    replay: Callable[[], None]


class Captured:
    """What `capture` returns; called as the model is."""

    def __init__(self, model: nn.Module, graphs: int = 4) -> None:
        if graphs < 1:
            raise ValueError(f"graphs must be at least 1; got {graphs}.")
        self.model, self.graphs = model, graphs
        self._recordings: OrderedDict[Hashable, Recording] = OrderedDict()  # the latest used last
        self._weights = _places(model)

    def __call__(self, batch: IrregularBatch, *, copy: bool = True) -> Tensor:
        """The model's answer, without gradients.

        Args:
            batch: of any shape; lengths may differ from call to call within a padded shape.
            copy: False returns the tensor that the next call of this shape overwrites.
        """
        self._require_inference()
        if not _can_replay(batch):
            return _run(self.model, batch)
        recording = self._recording(batch)
        _fill(recording.inputs, batch)
        recording.replay()
        return recording.output.clone() if copy else recording.output

    def captured(self, batch: IrregularBatch) -> bool:
        """Whether a graph is held for batches like this one; never on a device without CUDA."""
        return _can_replay(batch) and self._key(batch) in self._recordings

    def inputs(self, batch: IrregularBatch) -> IrregularBatch:
        """The buffers of this shape: whoever writes into them and calls with them spares the copies.

        On a device without CUDA there are none, and the batch itself comes back.
        """
        self._require_inference()
        return self._recording(batch).inputs if _can_replay(batch) else batch

    def clear(self) -> None:
        """Let all graphs go, and the memory they hold; also to be called after a submodule was replaced."""
        self._recordings.clear()
        self._weights = _places(self.model)

    def _recording(self, batch: IrregularBatch) -> Recording:
        """The graph of this shape, recorded if there is none; the one not used for longest makes room."""
        key = self._key(batch)
        if key not in self._recordings:
            while len(self._recordings) >= self.graphs:
                self._recordings.popitem(last=False)  # before recording, so that its memory is free by then
            self._recordings[key] = _record(self.model, batch)
        self._recordings.move_to_end(key)
        return self._recordings[key]

    def _key(self, batch: IrregularBatch) -> Hashable:
        """Everything a recording depends on beside the values in its buffers."""
        kind = batch.values.device.type
        return (
            batch.values.device,
            tuple(None if t is None else (t.shape, t.dtype) for t in _tensors(batch)),
            (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), torch.get_float32_matmul_precision()),
            # A graph reads addresses: weights written in place are seen, weights that moved need a new graph.
            tuple([(home[name].data_ptr(), home[name].dtype) for home, name in self._weights]),
        )

    def _require_inference(self) -> None:
        if self.model.training:
            raise RuntimeError(
                f"a graph is replayed for inference only, and this {type(self.model).__name__} is in training mode. "
                "Call model.eval() first; train with the model itself."
            )


def capture(model: nn.Module, graphs: int = 4) -> Captured:
    """A model for inference that replays CUDA graphs, one per shape of batch.

    The first call with a shape (B, L, C, Q, dtypes) records; later ones copy the batch into fixed buffers and replay.
    Parameters changed in place are seen. Weights that moved (`model.to`, `load_state_dict(assign=True)`), another
    autocast or another float32 precision lead to a new recording. Values are not looked at: `IrregularBatch.build`
    has checked them. On a device without CUDA the model is simply run, and `captured(batch)` says so.

    Args:
        model: any model called with an `IrregularBatch`, in evaluation mode. What it does must not hang on the values.
        graphs: how many shapes are held, each with its buffers; the one not used for longest makes room.

    Example:
        >>> from lformer.nn import LFormer, LFormerConfig
        >>> fast = capture(LFormer(LFormerConfig(inputs=3, outputs=2)).eval())
        >>> batch = IrregularBatch.build(torch.randn(8, 50, 3), times=torch.rand(8, 50).cumsum(1))
        >>> fast(batch).shape, fast.captured(batch)
        (torch.Size([8, 2]), False)
    """
    return Captured(model, graphs)


def _places(model: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where each parameter and buffer hangs: looked up by every call, which must not cost more than it saves."""
    homes = [home for module in model.modules() for home in (module._parameters, module._buffers)]
    return [(home, name) for home in homes for name, weight in home.items() if weight is not None]


def _can_replay(batch: IrregularBatch) -> bool:
    """Whether there is something to record: a batch on a GPU that is not empty."""
    return batch.values.is_cuda and batch.values.numel() > 0


def _tensors(batch: IrregularBatch) -> list[Tensor | None]:
    return [getattr(batch, name) for name in INPUTS]


def _run(model: nn.Module, batch: IrregularBatch) -> Tensor:
    with torch.no_grad(), checks.trusted():
        return model(batch)


def _buffers(batch: IrregularBatch) -> IrregularBatch:
    """Memory of its own for everything a model may read, filled from the batch."""
    tensors = zip(INPUTS, _tensors(batch), strict=True)
    contiguous = torch.contiguous_format  # an expanded tensor has rows that share their memory
    return IrregularBatch(**{n: t.detach().clone(memory_format=contiguous) for n, t in tensors if t is not None})


def _fill(buffers: IrregularBatch, batch: IrregularBatch) -> None:
    with torch.no_grad():
        for buffer, tensor in zip(_tensors(buffers), _tensors(batch), strict=True):
            if buffer is not None and tensor is not None and buffer is not tensor:
                buffer.copy_(tensor)


def _record(model: nn.Module, batch: IrregularBatch) -> Recording:
    """Warm up on a stream of its own, as graphs ask for, then record."""
    inputs, device = _buffers(batch), batch.values.device
    # Autocast keeps the weights it has cast; a graph would go on reading them after they are freed.
    autocast = torch.autocast(
        "cuda", torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda"), cache_enabled=False
    )
    with torch.cuda.device(device), autocast:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                _run(model, inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            # Only this thread is held to what a recording allows: others may load data meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                output = _run(model, inputs)
        except RuntimeError as error:
            _end_random_capture()
            raise RuntimeError(
                f"{type(model).__name__} cannot be recorded as a CUDA graph ({str(error).splitlines()[0]}). A recorded "
                "model must not wait for the GPU, read values or choose kernels by them. Call the model itself."
            ) from error
    return Recording(inputs, output, graph.replay)


def _end_random_capture() -> None:
    """A recording that fails leaves the generator waiting for its end; a copy of its state does not wait."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())
