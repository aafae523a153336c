"""What every trained baseline has around it: the row encoder and head of LFormer (`Frame`), and its embedder.

`BaselineModel` is for models that only say what they make of embedded rows; a model that reads the observations in its
own way is a `Frame`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.embedder import Embedder, Embedding, FrameEncoder, TimeEmbedding, require_shape
from lformer.nn.persistence import PersistenceKind, guess, start_from_guess
from lformer.nn.predictor import Answer, Pool, head
from lformer.nn.query import check_answer, rows_until
from lformer.nn.rows import Encoded, RowEncoder, Rows, check_rows

FRAME = (24, 24)  # shape of a row that is a frame


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """What every baseline has; the names and defaults are those of `LFormerConfig`.

    Attributes:
        inputs: C, observed channels per row.
        outputs: numbers per answer: classes, or targets.
        answer: one per "series", at every row ("step"), or at `batch.query_times` ("query").
        rows, statics, persistence: see `LFormerConfig`. With "values" a missing value and an observed 0 look the same.
        width, depth: D, number of layers.
        embedder, embedder_layers, time_embedding: see `Embedder`.
        time_channel: append the time since the start, in typical spans of a series, to every row and query.
        head_layers: hidden layers of the predictor; 0 is a single linear map.
    """

    inputs: int
    outputs: int
    answer: Answer = "series"
    rows: Rows = "values"
    statics: int = 0
    persistence: PersistenceKind = "none"
    width: int = 64
    depth: int = 2
    embedder: Embedding = "linear"
    embedder_layers: int = 1
    time_embedding: TimeEmbedding = "none"
    time_channel: bool = False
    head_layers: int = 0

    def __post_init__(self) -> None:
        choices = {
            "answer": Answer, "embedder": Embedding, "time_embedding": TimeEmbedding, "rows": Rows,
            "persistence": PersistenceKind,
        }  # fmt: skip
        for name, allowed in choices.items():
            one_of(name, getattr(self, name), allowed)
        self.require_positive("inputs", "outputs", "width", "depth")
        check_rows(self)
        if self.time_channel and self.embedder == "frames":
            raise ValueError('embedder="frames" takes one frame per row, to which no time_channel can be appended.')

    def require_positive(self, *names: str) -> None:
        """Refuse a size below 1."""
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")


class Frame(nn.Module):
    """RowEncoder → `read` of the model → head: for a model with an encoder of its own. It brings `read`.

    What the trainer looks for on a model: `fit_rows(batches)`, called once before training with the training part, for
    statistics that are kept in buffers; `training_loss(task, batch)`, in place of the loss of the task; `recordable`,
    True if a step depends on shapes alone, so that it may be replayed as a CUDA graph.
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.config = config
        self.rows = RowEncoder(config.inputs, config.rows, config.statics, config.persistence)
        self.head = head(self.read_width(), config.outputs, config.head_layers)
        self.persistence = (
            None if config.persistence == "none" else start_from_guess(self.head, config.inputs, config.persistence)
        )

    def read_width(self) -> int:
        """D of `read`; called once `config` and `rows` are there."""
        return self.config.width

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """What the head answers from: (B, D), (B, L, D) or (B, Q, D) as `config.answer` says.

        `batch` has at least one row, and `encoded` are its rows before any embedder.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what it answers from.")

    def forward(self, batch: IrregularBatch) -> Tensor:
        """(B, O), (B, L, O) or (B, Q, O) as `config.answer` says."""
        whole, encoded = self.encode(batch)
        return self.asked_for(self.answer(self.read(whole, encoded), whole, encoded), batch)

    def encode(self, batch: IrregularBatch) -> tuple[IrregularBatch, Encoded]:
        """The batch, with a row of padding if it has no row at all, and its rows before any embedder."""
        check_answer(self.config.answer, batch)
        whole = batch if batch.values.shape[1] else _one_padding_row(batch)
        return whole, self.rows(whole)

    def answer(self, read: Tensor, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(..., D) -> (..., O), through the head, and added to the guess if answers start from one."""
        answers: Tensor = self.head(read)
        if self.persistence is None:
            return answers
        return answers + guess(self.persistence, batch, encoded, self.rows.interval)

    def asked_for(self, answers: Tensor, batch: IrregularBatch) -> Tensor:
        """The answers without that at the row of padding which `encode` may have added."""
        return answers[:, : batch.values.shape[1]] if self.config.answer == "step" else answers


class BaselineModel(Frame):
    """RowEncoder → Embedder → `mix` of the model → one answer per series, row or query. A model brings `mix`.

    It may also bring its own `series` (default: the mean over the valid rows) and `queries` (default: the result at the
    latest row that is not later than the query; right for models whose rows do not look ahead). A model that needs more
    than embedded rows, such as the raw values and what was observed, brings `read` instead of all three.
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        self.embedder = Embedder(
            self.rows.width + config.time_channel,
            config.width,
            config.embedder,
            config.embedder_layers,
            config.time_embedding,
        )
        self.pool = Pool(config.width)

    def mix(self, x: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) embedded rows -> (B, L, D). L is at least 1, and x is 0 on padding, which must not be read."""
        raise NotImplementedError(f"{type(self).__name__} must say what it makes of the rows.")

    def series(self, rows: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) results of `mix` -> (B, D), what a series is answered from."""
        return self.pool(
            self.pool.add(self.pool.start(batch.values.shape[0], rows), rows, batch.lengths), batch.lengths
        )

    def queries(self, x: Tensor, asked: Tensor, batch: IrregularBatch, query_times: Tensor) -> Tensor:
        """(B, L, D) embedded rows, (B, Q, D) embedded rows of the queries, (B, Q) -> (B, Q, D), to answer them from."""
        return state_after(self.mix(x, batch), rows_until(batch.times, batch.lengths, query_times))

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D) as `config.answer` says."""
        x = self.embed_rows(encoded.rows, batch)
        if batch.query_times is not None:
            return self.queries(x, self.embed_queries(batch, encoded), batch, batch.query_times)
        rows = self.mix(x, batch)
        return self.series(rows, batch) if self.config.answer == "series" else rows

    def embed_rows(self, rows: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, W) -> (B, L, D), 0 on padding."""
        return torch.where(batch.valid[..., None], self._embed(rows, batch.times), 0)

    def embed_queries(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, Q, D), rows at the query times in which nothing was observed."""
        assert batch.query_times is not None
        return self._embed(self.rows.queries(batch, encoded), batch.query_times)

    def _embed(self, rows: Tensor, times: Tensor) -> Tensor:
        if self.config.time_channel:
            require_shape(rows, (self.rows.width,))
            rows = torch.cat([rows, (times / self.rows.span).to(rows.dtype)[..., None]], dim=-1)
        return self.embedder(rows, times / self.rows.interval if self.config.time_embedding == "relative" else times)


class Channels(nn.Module):
    """The rows as a model without an embedder reads them: W channels as they are, or frames as D channels."""

    def __init__(self, rows: RowEncoder, config: BaselineConfig) -> None:
        super().__init__()
        frames = config.embedder == "frames"
        self.shape = FRAME if frames else (rows.width,)
        self.width = config.width if frames else rows.width
        self.frames = FrameEncoder(config.width) if frames else None

    def forward(self, rows: Tensor) -> Tensor:
        """(B, L, W) or (B, L, 24, 24) -> (B, L, W) or (B, L, D)"""
        require_shape(rows, self.shape)
        return rows if self.frames is None else self.frames(rows)


def observations(rows: RowEncoder, batch: IrregularBatch, frames: bool) -> tuple[Tensor, Tensor]:
    """(B, L, C) values as the rows show them, 0 where nothing was observed, and what was; nothing is on padding.

    Of frames every pixel is a channel.
    """
    if not frames:
        return rows.scaled(batch)
    require_shape(batch.values, FRAME)
    observed = (batch.observed & batch.valid[:, :, None, None]).flatten(2)
    return torch.where(observed, batch.values.flatten(2), 0), observed


class Clock(NamedTuple):
    """Times in spans: 0 at the first row of a series, at most 1 at its last.

    The unit is the typical span of a series, or its own where that is longer.
    """

    start: Tensor  # (B, 1)
    end: Tensor  # (B, 1) of the last row
    unit: Tensor  # (B, 1)

    @classmethod
    def of(cls, batch: IrregularBatch, typical_span: Tensor) -> Clock:
        start, end = batch.times[:, :1], batch.times.amax(dim=1, keepdim=True)
        return cls(start, end, torch.maximum(end - start, typical_span.to(start.dtype)))

    def __call__(self, times: Tensor) -> Tensor:
        """(B, N) -> (B, N)"""
        return (times - self.start) / self.unit


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, autocast is off: small errors of a state add up over the rows of a series."""
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()


def state_after(rows: Tensor, count: Tensor) -> Tensor:
    """(B, L, D), (B, Q) -> (B, Q, D), the result of the last of the first `count` rows; zeros if there is none."""
    states = F.pad(rows, (0, 0, 1, 0))
    return states.gather(1, count[..., None].expand(-1, -1, rows.shape[2]))


def _one_padding_row(batch: IrregularBatch) -> IrregularBatch:
    """The same empty series with a row of padding, so that no model has to handle a tensor without rows."""
    B, _, *channels = batch.values.shape
    return replace(
        batch,
        values=batch.values.new_zeros(B, 1, *channels),
        times=batch.times.new_zeros(B, 1),
        deltas=batch.deltas.new_zeros(B, 1),
        observed=batch.observed.new_zeros(B, 1, *channels),
    )
