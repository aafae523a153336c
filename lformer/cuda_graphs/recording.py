"""What a model does with a batch, recorded once per shape as a CUDA graph and replayed with other numbers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from threading import local
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from lformer.batch import Source
from lformer.cuda_graphs.turns import turns
from lformer.draws import generator_on

T = TypeVar("T")
S = TypeVar("S", bound=Source)


class RecordingError(RuntimeError):
    """The work does something that a CUDA graph does not allow."""


class Recording(NamedTuple, Generic[T]):
    """Recorded work: `replay` reads `inputs` and overwrites what `output` holds."""

    inputs: Any  # a source of the kind that was recorded
    output: T
    replay: Callable[[], None]


class Recordings(Generic[T]):
    """The graphs of one model, one for each shape of batch.

    Args:
        model: whose weights the work reads; where they lie is part of what is recorded.
        work: what is done with a batch, or with what becomes one. It must depend on shapes alone, never on values.
        graphs: how many shapes are held, each with its buffers; the one not used for longest makes room.
        settings: what else the work depends on.
        written: what it writes beside the buffers of the model. Recording leaves all of it as it was.
    """

    def __init__(
        self,
        model: nn.Module,
        work: Callable[[Any], T],
        graphs: int,
        settings: Callable[[], Hashable] = lambda: None,
        written: Callable[[], Iterable[Tensor]] = tuple,
    ) -> None:
        if graphs < 1:
            raise ValueError(f"graphs must be at least 1; got {graphs}.")
        self.model, self.work, self.graphs, self.settings = model, work, graphs, settings
        self.written = written
        self._held: OrderedDict[Hashable, Recording[T]] = OrderedDict()  # the latest used last
        self._seen: set[Hashable] = set()
        self._weights = _places(model)
        self._pool: Any = None

    def holds(self, batch: Source, device: torch.device) -> bool:
        """Whether there is a graph for batches like this one on a device."""
        return self.key(batch, device) in self._held

    def recording(self, batch: Source, device: torch.device) -> Recording[T]:
        """The graph of this shape, recorded if there is none."""
        return self._recording(self.key(batch, device), batch, device)

    def if_it_comes_again(self, batch: Source, device: torch.device) -> Recording[T] | None:
        """As `recording`, but None for the first batch of a shape: one that never comes again is not worth a graph."""
        key = self.key(batch, device)
        if key in self._seen:
            return self._recording(key, batch, device)
        self._seen.add(key)
        return None

    def while_there_is_room(self, batch: Source, device: torch.device) -> Recording[T] | None:
        """As `if_it_comes_again`, but None also where another graph would have to go: for batches that come in the same
        order again and again, of which each would drive out the one that is wanted next."""
        key = self.key(batch, device)
        if key not in self._held and len(self._held) >= self.graphs:
            return None
        return self.if_it_comes_again(batch, device)

    def _recording(self, key: Hashable, batch: Source, device: torch.device) -> Recording[T]:
        if key not in self._held:
            while len(self._held) >= self.graphs:
                self._held.popitem(last=False)  # before recording, so that its memory is free by then
            if not self._held:  # a pool ends with the last graph that uses it
                self._pool = new_pool()
            with _kept([*self.model.buffers(), *self.written()]):
                self._held[key] = record(self.work, buffers(batch, device), type(self.model).__name__, self._pool)
        self._held.move_to_end(key)
        return self._held[key]

    def clear(self) -> None:
        """Let all graphs go, and the memory they hold."""
        self._held.clear()
        self._seen.clear()
        self._weights = _places(self.model)

    def key(self, batch: Source, device: torch.device) -> Hashable:
        """Everything a recording depends on beside the values in its buffers."""
        kind = device.type
        return (
            device,
            tuple([(t.shape, t.dtype) if isinstance(t, Tensor) else t for t in _held_by(batch).values()]),
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None,
            torch.get_float32_matmul_precision(),
            # A graph reads addresses: weights written in place are seen, weights that moved need a new graph.
            tuple([(home[name].data_ptr(), home[name].dtype) for home, name in self._weights]),
            self.settings(),
        )


def replays_on(device: torch.device) -> bool:
    """Whether a device knows graphs."""
    return device.type == "cuda"


def can_replay(batch: Source, device: torch.device) -> bool:
    """Whether there is something to record: a batch that is not empty, for a GPU."""
    return replays_on(device) and cells(batch) > 0


def cells(batch: Source) -> int:
    """Rows of all series together, padding included."""
    return len(batch) * batch.extent[0]


def buffers(batch: S, device: torch.device) -> S:
    """Memory of its own on a device for every tensor of a batch, filled from it."""
    shapes = {name: t for name, t in _held_by(batch).items() if isinstance(t, Tensor)}
    # Contiguous: an expanded tensor has rows that share their memory.
    made = {name: torch.empty(t.shape, dtype=t.dtype, device=device) for name, t in shapes.items()}
    inputs: S = replace(batch, **made)  # type: ignore[type-var]  # every source is a dataclass
    fill(inputs, batch)
    return inputs


def fill(inputs: Source, batch: Source) -> None:
    """Put a batch into buffers of its shape."""
    with torch.no_grad():
        for buffer, tensor in zip(_held_by(inputs).values(), _held_by(batch).values(), strict=True):
            if isinstance(buffer, Tensor) and isinstance(tensor, Tensor) and buffer is not tensor:
                # From memory that is not pinned, a copy would wait for all work that the GPU has before it.
                tensor = tensor.contiguous().pin_memory() if buffer.is_cuda and not tensor.is_cuda else tensor
                buffer.copy_(tensor, non_blocking=True)


def new_pool() -> Any:
    """Memory for graphs that never run at the same time; what one leaves in it holds until another one runs."""
    return torch.cuda.graph_pool_handle()


def record(work: Callable[[Any], T], inputs: Source, name: str, pool: Any) -> Recording[T]:
    """Warm up on a stream of its own, as graphs ask for, then record what `work` does with these buffers.

    The warm-up compiles kernels and sets up libraries, which a recording allows neither of. The random numbers of a
    recording go on from where they stand at its replay; the warm-up leaves them there.
    """
    device = next(t for t in _held_by(inputs).values() if isinstance(t, Tensor)).device
    own = generator_on(device)  # what this run draws from, if not from the generator of the process
    # Autocast keeps the weights it has cast; a graph would go on reading them after they are freed.
    autocast = torch.autocast(
        "cuda", torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda"), cache_enabled=False
    )
    with turns.recording(), torch.cuda.device(device), autocast:
        random, ours = torch.cuda.get_rng_state(), None if own is None else own.get_state()
        side = _side_stream(device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work(inputs)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.set_rng_state(random)
        graph = torch.cuda.CUDAGraph()
        if own is not None and ours is not None:
            own.set_state(ours)
            graph.register_generator_state(own)
        try:
            # Only this thread is held to what a recording allows: others may load data meanwhile.
            with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                output = work(inputs)
        except RuntimeError as error:
            _end_random_capture(own)
            raise RecordingError(
                f"{name} cannot be recorded as a CUDA graph ({str(error).splitlines()[0]}). What is recorded must not "
                "wait for the GPU, read values or choose kernels by them. Call the model itself."
            ) from error
    return Recording(inputs, output, partial(_replay, graph))


def _replay(graph: torch.cuda.CUDAGraph) -> None:
    with turns.replaying():
        graph.replay()


class _Streams(local):
    def __init__(self) -> None:
        self.of: dict[torch.device, torch.cuda.Stream] = {}


_streams = _Streams()


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all recordings of a thread: cuBLAS keeps memory for every stream it has worked on, 32 MiB on a Hopper.

    A thread that works on a stream of its own records on that one.
    """
    current = torch.cuda.current_stream(device)
    if current != torch.cuda.default_stream(device):
        return current
    if device not in _streams.of:
        _streams.of[device] = torch.cuda.Stream(device)
    return _streams.of[device]


def _held_by(batch: Source) -> dict[str, Any]:
    """The fields of a batch: tensors, and what else tells one kind of batch from another."""
    return {field.name: getattr(batch, field.name) for field in fields(batch)}  # type: ignore[arg-type]


def _places(model: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where each parameter and buffer hangs: looked up by every call, which must not cost more than it saves."""
    homes = [home for module in model.modules() for home in (module._parameters, module._buffers)]
    return [(home, name) for home in homes for name, weight in home.items() if weight is not None]


@contextmanager
def _kept(tensors: list[Tensor]) -> Iterator[None]:
    """What the work writes down, as batch norm its means and an optimiser the weights, is not written by a warm-up."""
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


def _end_random_capture(own: torch.Generator | None) -> None:
    """A recording that fails leaves the generators waiting for its end; copies of their states do not wait."""
    for generator in (torch.cuda.default_generators[torch.cuda.current_device()], own):
        if generator is not None:
            generator.graphsafe_set_state(generator.clone_state())
