"""BaselineModel: the shared embedder and head around a model that only says what it makes of the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.embedder import Embedder, Embedding, TimeEmbedding
from lformer.nn.predictor import Answer, Pool, head
from lformer.nn.query import check_answer, rows_until


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """What every baseline has; the names and defaults are those of `LFormerConfig`.

    Attributes:
        inputs: C, observed channels per row.
        outputs: numbers per answer: classes, or targets.
        answer: one per "series", at every row ("step"), or at `batch.query_times` ("query").
        width, depth: D, number of layers.
        embedder, embedder_layers, time_embedding: see `Embedder`.
        head_layers: hidden layers of the predictor; 0 is a single linear map.
        show_observed: whether the embedder also gets what was observed, 2 C channels in all. Without it a missing
            value and an observed 0 look the same.
    """

    inputs: int
    outputs: int
    answer: Answer = "series"
    width: int = 64
    depth: int = 2
    embedder: Embedding = "linear"
    embedder_layers: int = 1
    time_embedding: TimeEmbedding = "none"
    head_layers: int = 0
    show_observed: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("answer", Answer), ("embedder", Embedding), ("time_embedding", TimeEmbedding)):
            one_of(name, getattr(self, name), allowed)
        self.require_positive("inputs", "outputs", "width", "depth")
        if self.show_observed and self.embedder == "frames":
            raise ValueError(
                'show_observed puts a second channel beside each value, and embedder="frames" takes one frame per '
                "row. Set show_observed=False."
            )

    def require_positive(self, *names: str) -> None:
        """Refuse a size below 1."""
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")


class BaselineModel(nn.Module):
    """Embedder → rows of the model → one answer per series, row or query. A model brings `rows`.

    It may also bring its own `series` (default: the mean over the valid rows) and `queries` (default: the result at the
    latest row that is not later than the query; right for models whose rows do not look ahead).
    """

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.config = config
        channels = config.inputs * (2 if config.show_observed else 1)
        self.embedder = Embedder(channels, config.width, config.embedder, config.embedder_layers, config.time_embedding)
        self.pool = Pool(config.width)
        self.head = head(config.width, config.outputs, config.head_layers)

    def rows(self, x: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) embedded rows -> (B, L, D). L is at least 1, and x is 0 on padding, which must not be read."""
        raise NotImplementedError(f"{type(self).__name__} must say what it makes of the rows.")

    def series(self, rows: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) results of `rows` -> (B, D), what a series is answered from."""
        return self.pool(self.pool.add(self.pool.start(len(batch), rows), rows, batch.lengths), batch.lengths)

    def queries(self, x: Tensor, batch: IrregularBatch, query_times: Tensor) -> Tensor:
        """(B, L, D) embedded rows, (B, Q) -> (B, Q, D), what each query is answered from."""
        return state_after(self.rows(x, batch), rows_until(batch.times, batch.lengths, query_times))

    def forward(self, batch: IrregularBatch) -> Tensor:
        """(B, O), (B, L, O) or (B, Q, O) as `config.answer` says."""
        check_answer(self.config.answer, batch)
        L = batch.values.shape[1]
        batch = batch if L else _one_padding_row(batch)
        x = torch.where(batch.valid[..., None], self._embed(batch), 0)
        if batch.query_times is not None:
            answers = self.queries(x, batch, batch.query_times)
        elif self.config.answer == "series":
            answers = self.series(self.rows(x, batch), batch)
        else:
            answers = self.rows(x, batch)[:, :L]
        return self.head(answers)

    def empty_rows(self, times: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, Q) -> (B, Q, D), embedded rows in which nothing was observed."""
        return self.embedder(times.new_zeros(*times.shape, *self.embedder.shape, dtype=dtype), times)

    def _embed(self, batch: IrregularBatch) -> Tensor:
        values = batch.values
        if self.config.show_observed:
            values = torch.cat([values, batch.observed.to(values.dtype)], dim=-1)
        return self.embedder(values, batch.times)


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
