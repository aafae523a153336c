"""LFormer = Embedder → depth × LiquidMixer → Predictor, on one page (paper IV-C)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch, mean_interval
from lformer.distributions import NUMBERS, Distribution, from_raw
from lformer.nn import fusion
from lformer.nn.attention import LayerState, LiquidGatedAttention, Mu, OutputGate, Rate, one_of
from lformer.nn.dropout import Dropout
from lformer.nn.embedder import Embedder, Embedding, TimeEmbedding
from lformer.nn.known import Known, Past, nothing_known
from lformer.nn.mixer import FeedForward, LiquidMixer, SwiGLU
from lformer.nn.neighbours import Recent, nothing_recent
from lformer.nn.own_scale import check_own_scale
from lformer.nn.persistence import PersistenceKind, guess, start_from_guess
from lformer.nn.predictor import Answer, Pool, Pooling, head
from lformer.nn.query import Merged, check_answer, merge
from lformer.nn.read_out import ReadOut, ReadOutState, TimeReadOut
from lformer.nn.row_table import row_table, row_table_width
from lformer.nn.rows import Encoded, RowEncoder, Rows, check_rows
from lformer.nn.softmax import SoftmaxAttention
from lformer.nn.summaries import Seen, SummaryHead, about_waves, nothing_seen, table, table_width
from lformer.nn.trees import FOR_ROWS, FOR_SERIES, Trees
from lformer.ops import GateNorm, checks

TimeMixer = Literal["liquid", "softmax"]
ChannelMixer = Literal["swiglu", "feed_forward"]
FirstInterval = Literal["typical", "zero"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LFormerConfig:
    """Configuration of an `LFormer`; the default sizes are the paper's.

    Attributes:
        inputs: C, observed channels per row.
        outputs: O, classes or targets per prediction.
        distribution: "point" predicts one number per target, "gaussian" and "quantiles" several, which describe its
            distribution, see `lformer.distributions`.
        answer: where predictions are made: "series" pools the valid rows; "step" predicts at every row; "query" at
            `batch.query_times`.
        rows: what a row contains: "values" (paper), "observed" or "carried", see `RowEncoder`.
        neighbours: number of moments on either side of a "carried" row at which it also shows the values of each
            channel, which makes the embedder a convolution in time; see `lformer.nn.neighbours`.
        statics: S, number of static covariates, from `batch.static`.
        marks: M, number of marks, which are known in advance for every row and query, such as the calendar, from
            `batch.marks`; the paper has none.
        summaries: whether predictions per series also depend on summary features of each channel, such as its mean and
            range, see `SummaryHead`; requires rows="carried".
        trees: number of boosting rounds of gradient-boosted trees whose predictions are mixed with the network's, see
            `Trees`; 0 for none. Those of series use the summary features; those of rows (answer="step") the values of
            each channel at rows nearby, see `lformer.nn.row_table`.
        waves: whether trees also use the frequency of the best-fitting sinusoid of each channel and of its changes, and
            the share of variance that it explains; not available in a causal model, which does not see the end of a
            series.
        series_scale: whether values, and predictions in their units, are scaled per series, see `OwnScale`.
        persistence: "latest", "recent", "line" or "wave" adds the prediction to a simple guess in the units of the
            inputs, see `Persistence`; "none" is the paper's.
        width, depth, heads: D, number of mixers, H.
        hidden: hidden width of the channel mixer; 2.75 D if None.
        embedder, embedder_layers, time_embedding: see `Embedder`.
        head_layers: hidden layers of the predictor; 0 is a single linear map.
        pooling: how answer="series" pools the rows: "mean" (paper), or "mean_last_max", their concatenation.
        read_out: what answer="query" reads: "row", the query as a row that only reads, or "time", additionally the rows
            weighted by their distance in time, see `TimeReadOut`.
        dropout: dropout rate of embedded rows and of the residual branches of each mixer.
        causal, gate_norm: the paper's model is non-causal with "sequence"; causal with "prefix" allows streaming.
        first_interval: the interval of the first row, which has no previous row. "typical" lets it write to the memory:
            the mean interval of its series in a non-causal model, else the buffer `first_interval`. "zero" is the
            literal Δ_1 = 0.
        time_mixer, channel_mixer, mu, rate, output_gate: the default is the paper's choice; the others are its
            ablations.
        backend: backend of `ops.liquid_gated_attention`. "auto" and "fused" also run whole mixers as fused kernels if
            possible; `LFormer.explain` shows what runs.
    """

    inputs: int
    outputs: int
    distribution: Distribution = "point"
    answer: Answer = "series"
    rows: Rows = "values"
    neighbours: int = 0
    statics: int = 0
    marks: int = 0
    summaries: bool = False
    trees: int = 0
    waves: bool = False
    series_scale: bool = False
    persistence: PersistenceKind = "none"
    width: int = 64
    depth: int = 2
    heads: int = 4
    hidden: int | None = None
    embedder: Embedding = "linear"
    embedder_layers: int = 1
    time_embedding: TimeEmbedding = "none"
    head_layers: int = 0
    pooling: Pooling = "mean"
    read_out: ReadOut = "row"
    dropout: float = 0.0
    causal: bool = False
    gate_norm: GateNorm = "sequence"
    first_interval: FirstInterval = "typical"
    time_mixer: TimeMixer = "liquid"
    channel_mixer: ChannelMixer = "swiglu"
    mu: Mu = "per_head"
    rate: Rate = "input"
    output_gate: OutputGate = "sigmoid"
    backend: str = "auto"

    def __post_init__(self) -> None:
        choices = {
            "answer": Answer, "embedder": Embedding, "time_embedding": TimeEmbedding, "gate_norm": GateNorm,
            "first_interval": FirstInterval, "time_mixer": TimeMixer, "channel_mixer": ChannelMixer, "mu": Mu,
            "rate": Rate, "output_gate": OutputGate, "pooling": Pooling, "rows": Rows, "persistence": PersistenceKind,
            "distribution": Distribution, "read_out": ReadOut,
        }  # fmt: skip
        for name, allowed in choices.items():
            one_of(name, getattr(self, name), allowed)
        for name in ("inputs", "outputs", "width", "depth", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1; got {self.dropout}.")

        check_rows(self)
        if self.neighbours < 0 or (self.neighbours and self.rows != "carried"):
            raise ValueError(
                f'neighbours must be at least 0, and 0 unless rows="carried"; got {self.neighbours} with '
                f"rows={self.rows!r}."
            )
        if self.marks < 0 or (self.marks and self.embedder == "frames"):
            raise ValueError(f'marks must be at least 0, and 0 with embedder="frames"; got {self.marks}.')
        if self.summaries and (self.rows != "carried" or self.answer != "series"):
            raise ValueError(
                'summaries=True needs rows="carried" and answer="series"; got '
                f"rows={self.rows!r} and answer={self.answer!r}."
            )
        if self.trees < 0 or (self.trees and not self.can_have_trees):
            raise ValueError(
                "trees must be at least 0, and 0 without features for them (summaries of a series or, in a non-causal "
                'model with answer="step" and without persistence, the channels of its rows), with series_scale and '
                f"with a distribution; got {self.trees}."
            )
        if self.waves and (not self.trees or not self.summaries or self.causal):
            raise ValueError(
                f"waves=True needs trees, summaries and whole series; got trees={self.trees}, "
                f"summaries={self.summaries} and causal={self.causal}."
            )
        if self.read_out == "time" and self.answer != "query":
            raise ValueError(f'read_out="time" reads at query times, so it needs answer="query"; got {self.answer!r}.')
        if self.series_scale:
            check_own_scale(self)
        if self.persistence in ("line", "wave") and self.causal:
            raise ValueError(
                f'persistence="{self.persistence}" reads the next observation, which a causal model must not. '
                'Use "latest".'
            )
        if self.persistence == "recent" and self.causal:
            raise ValueError(
                'persistence="recent" needs more of the past than the state of a causal model holds. Use "latest".'
            )

    @property
    def numbers(self) -> int:
        """Number of model outputs per prediction: the numbers of a distribution for each of `outputs`."""
        return NUMBERS[self.distribution] * self.outputs

    @property
    def can_have_trees(self) -> bool:
        """Whether there is a table of features for trees, and predictions are single numbers in the task's units."""
        whole = self.answer == "step" and not self.causal and self.embedder != "frames"
        rows = whole and self.persistence == "none"
        return (self.summaries or rows) and not self.series_scale and self.distribution == "point"

    @property
    def in_table(self) -> int:
        """W, number of features per series, or per row, for the trees."""
        if self.answer == "step":
            return row_table_width(self.inputs, self.statics)
        return table_width(self.inputs, self.statics, self.waves)

    def time_read_out(self) -> TimeReadOut:
        return TimeReadOut(self.width, self.heads, causal=self.causal, gate_norm=self.gate_norm, backend=self.backend)

    def mixer(self) -> LiquidMixer:
        time_mixer: nn.Module
        if self.time_mixer == "softmax":
            time_mixer = SoftmaxAttention(self.width, self.heads, causal=self.causal)
        else:
            time_mixer = LiquidGatedAttention(
                self.width,
                self.heads,
                causal=self.causal,
                gate_norm=self.gate_norm,
                mu=self.mu,
                rate=self.rate,
                output_gate=self.output_gate,
                backend=self.backend,
            )
        hidden = self.hidden or round(2.75 * self.width)
        channel_mixer = {"swiglu": SwiGLU, "feed_forward": FeedForward}[self.channel_mixer](self.width, hidden)
        return LiquidMixer(self.width, time_mixer, channel_mixer, self.dropout)


class Entering(NamedTuple):
    """The input of the mixers."""

    x: Tensor  # (B, L, D)
    deltas: Tensor  # (B, L)
    lengths: Tensor  # (B,)
    is_query: Tensor | None  # (B, L) bool, rows of queries
    merged: Merged | None  # how queries and rows were merged
    encoded: Encoded  # the rows before embedding, and what is known at each


class State(NamedTuple):
    """The state of a stream after its last valid row; what grows with the series is in float64, see `exact_dtype`."""

    layers: tuple[LayerState, ...]
    time: Tensor  # (B,) float64, of the last row since the start of the series
    rows: Tensor  # (B,) number of rows so far
    pooled: Tensor  # (B, D) or (B, 3 D) the running values of `Pool`, for predictions per series
    known: Known | None  # (B, C) of each channel, if rows or predictions need it
    static: Tensor | None  # (B, S) static covariates
    recent: Recent | None = None  # the latest rows, if rows show their neighbours
    seen: Seen | None = None  # (B, C) what summaries need in addition
    read_out: ReadOutState | None = None  # state of the read-out by time, for queries

    @property
    def past(self) -> Past | None:
        """The state of the row encoder; None if it has none."""
        return None if self.known is None else Past(self.time, self.rows, self.known, self.recent, self.seen)


class LFormer(nn.Module):
    """The LFormer model: `model(batch)` predicts per series (B, O), per row (B, L, O) or per query (B, Q, O).

    With a `distribution`, the last axis has `config.numbers` entries instead of O, see `lformer.distributions`.

    Example:
        >>> model = LFormer(LFormerConfig(inputs=3, outputs=2))
        >>> batch = IrregularBatch.build(torch.randn(8, 50, 3), times=torch.rand(8, 50).cumsum(1))
        >>> model(batch).shape
        torch.Size([8, 2])
    """

    recordable = True  # control flow depends on shapes, never on values, so steps can be replayed as CUDA graphs
    own_draws = True  # it uses the random generators of a run, never those of the process

    def __init__(self, config: LFormerConfig) -> None:
        super().__init__()
        self.config = config
        self.rows = RowEncoder(
            config.inputs,
            config.rows,
            config.statics,
            config.persistence,
            config.marks,
            config.series_scale,
            config.neighbours,
            config.causal,
            config.summaries,
        )
        self.summaries = (
            SummaryHead(config.inputs, config.statics, config.width, config.numbers, config.dropout)
            if config.summaries
            else None
        )
        self.trees = self.new_trees(config.trees, config.waves)
        self.embedder = Embedder(
            self.rows.width, config.width, config.embedder, config.embedder_layers, config.time_embedding
        )
        self.mixers = nn.ModuleList(config.mixer() for _ in range(config.depth))
        self.read_out = config.time_read_out() if config.read_out == "time" else None
        self.dropout = Dropout(config.dropout)
        self.pool = Pool(config.width, config.pooling)
        pooled = config.answer == "series"
        self.head = head(self.pool.outputs if pooled else config.width, config.numbers, config.head_layers)
        self.persistence = (
            None if config.persistence == "none" else start_from_guess(self.head, config.inputs, config.persistence)
        )
        self.register_buffer("first_interval", torch.tensor(1.0))
        self.first_interval: Tensor

    @overload
    def forward(
        self, batch: IrregularBatch, state: State | None = None, return_state: Literal[False] = False
    ) -> Tensor: ...
    @overload
    def forward(
        self, batch: IrregularBatch, state: State | None = None, *, return_state: Literal[True]
    ) -> tuple[Tensor, State]: ...
    def forward(
        self, batch: IrregularBatch, state: State | None = None, return_state: bool = False
    ) -> Tensor | tuple[Tensor, State]:
        """Predict for every series of the batch.

        Args:
            batch: the series. To continue from a state, build it with the `t0` of the earlier pieces.
            state: the state to continue from; None at the start of the series.
            return_state: whether to also return the new state. States require causal=True and gate_norm "prefix" or
                "none".

        Returns:
            (B, O), (B, L, O) or (B, Q, O), depending on `config.answer`, and the new state if requested. Predictions
            are finite: inf or NaN raises an error, except in compiled code and inside `skip_value_checks`.
        """
        check_answer(self.config.answer, batch)
        call = fusion.call_of(
            batch.values, batch.deltas, batch.query_times is not None, state is not None or return_state
        )
        path = fusion.choose(self, call).name
        if path == "fused model":
            return _finite(fusion.answer(self, batch, call))
        x, deltas, lengths, is_query, merged, encoded = self._enter(batch, state)
        x = self.dropout(x)
        if path == "fused mixers":
            return _finite(self._from_guess(fusion.answer_rows(self, x, deltas, lengths), batch, encoded))
        if path == "fused layers":
            answers = fusion.answer_layers(self, x, deltas, lengths, is_query, merged)
            return _finite(self._from_guess(answers, batch, encoded))

        layers: list[LayerState] = []
        for n, mixer in enumerate(self.blocks):
            if return_state or state is not None:
                x, layer = mixer.scan(x, deltas, state and state.layers[n], lengths=lengths, is_query=is_query)
                layers.append(layer)
            else:
                x = mixer(x, deltas, lengths=lengths, is_query=is_query)

        count = batch.lengths if state is None else state.rows + batch.lengths
        pooled = self.pool.start(batch.values.shape[0], x) if state is None else state.pooled
        if self.config.answer == "series":
            pooled = self.pool.add(pooled, x, batch.lengths)
            x = self.pool(pooled, count).to(x.dtype)
        x, read = (x, None) if merged is None else self.at_queries(x, merged, state)
        prediction = _finite(self._from_guess(self.head(x), batch, encoded))
        if not return_state:
            return prediction
        last = None if encoded.known is None else encoded.known.at(batch.lengths[:, None]).squeeze()
        static = batch.static if state is None else state.static
        pooled = pooled.to(checks.exact_dtype(x.device))
        return prediction, State(
            tuple(layers), _last_time(batch, state), count, pooled, last, static, encoded.recent, encoded.seen, read
        )

    def at_queries(self, x: Tensor, merged: Merged, state: State | None) -> tuple[Tensor, ReadOutState | None]:
        """(B, L + Q, D) from the last mixer -> (B, Q, D), and the state of the read-out, if there is one."""
        answers = merged.answers(x)
        if self.read_out is None:
            return answers, None
        read, after = self.read_out(x, merged, state and state.read_out)
        return answers + self.dropout(read), after

    def explain(self, batch: IrregularBatch, state: State | None = None) -> fusion.Path:
        """Which path `forward` takes for this batch and, if it is not the fastest, why and what would change that."""
        queries = batch.query_times is not None
        return fusion.explain(self, fusion.call_of(batch.values, batch.deltas, queries, state is not None))

    def init_state(self, batch: int, static: Tensor | None = None) -> State:
        """The state before the first row of `batch` series, with their static covariates (B, S) if it uses any."""
        like, keeps = self.first_interval, self.rows.keeps_known
        exact = checks.exact_dtype(like.device)
        known = nothing_known(batch, self.config.inputs, like, exact) if keeps else None
        return State(
            layers=tuple(mixer.liquid.init_state(batch) for mixer in self.blocks),
            time=torch.zeros(batch, dtype=exact, device=like.device),
            rows=torch.zeros(batch, dtype=torch.int64, device=like.device),
            pooled=self.pool.start(batch, like.to(exact)),
            known=known,
            static=static,
            recent=nothing_recent(known) if self.config.neighbours and known is not None else None,
            seen=nothing_seen(known) if self.config.summaries and known is not None else None,
            read_out=None if self.read_out is None else self.read_out.init_state(batch),
        )

    def step(self, values: Tensor, delta: Tensor, state: State, marks: Tensor | None = None) -> tuple[Tensor, State]:
        """Process one row per series.

        Args:
            values: (B, *C); NaN where nothing was observed.
            delta: (B,) interval since the previous row; 0 at the first row of a series.
            state: from `init_state`, `step` or `forward(..., return_state=True)`.
            marks: (B, M) numbers known in advance for this row, if the model uses any.

        Returns:
            (B, O), the prediction for the series so far or for this row, and the new state.
        """
        if self.config.answer == "query":
            raise RuntimeError(
                'step predicts at the row it is given; a model with answer="query" predicts at query times. Use '
                "advance, then ask."
            )
        x, row, encoded, after = self._advance(values, delta, state, marks)
        if self.config.answer == "series":
            x = self.pool(after.pooled, after.rows).to(x.dtype)
        return _finite(self._from_guess(self.head(x)[:, None], row, encoded)[:, 0]), after

    def advance(self, values: Tensor, delta: Tensor, state: State, marks: Tensor | None = None) -> State:
        """Like `step`, without a prediction: the state after one row per series. Works for every model with a state."""
        return self._advance(values, delta, state, marks)[-1]

    def ask(self, times: Tensor, state: State, marks: Tensor | None = None) -> Tensor:
        """Predict at query times with answer="query", from a state that is left unchanged.

        Args:
            times: (B, Q) since the start of each series, not before its latest row.
            state: as in `step`.
            marks: (B, Q, M) numbers known in advance for these times, if the model uses any.

        Returns:
            (B, Q, O)
        """
        B, none = times.shape[0], times[:, :0]
        values = self.first_interval.new_zeros(B, 0, self.config.inputs)
        batch = IrregularBatch(
            values=values,
            times=none,
            deltas=none.to(values.dtype),
            observed=values.bool(),
            lengths=torch.zeros_like(state.rows),
            start=torch.zeros_like(state.time),
            query_times=times,
            static=state.static,
            marks=None if marks is None else marks[:, :0],
            query_marks=marks,
        )
        return self(batch, state)

    def _advance(
        self, values: Tensor, delta: Tensor, state: State, marks: Tensor | None
    ) -> tuple[Tensor, IrregularBatch, Encoded, State]:
        """(B, D) from the last mixer, the row, its encoding, and the new state."""
        checks.row_valid(values, delta, len(state.rows), self.config.inputs, self.first_interval.dtype)
        time = state.time + delta.to(state.time.dtype)
        row = _one_row(values, time, state, marks)
        gap = torch.where(state.rows > 0, delta.to(values.dtype), self.typical_first(values.dtype))
        encoded = self.rows(row, state.past)
        x = self.embedder(encoded.rows, self.clock(row.times)).squeeze(1)
        layers = []
        for mixer, layer in zip(self.blocks, state.layers, strict=True):
            x, layer = mixer.step(x, gap, layer)
            layers.append(layer)
        count, pooled = state.rows + 1, state.pooled
        if self.config.answer == "series":
            pooled = self.pool.add(pooled, x[:, None], torch.ones_like(count))
        last = None if encoded.known is None else encoded.known.after_rows().squeeze()
        read = None
        if self.read_out is not None:
            assert state.read_out is not None
            read = self.read_out.advance(x, gap, state.read_out)
        after = State(tuple(layers), time, count, pooled, last, state.static, encoded.recent, encoded.seen, read)
        return x, row, encoded, after

    def decays(self, batch: IrregularBatch) -> list[Tensor]:
        """For each layer, (B, L, H) by how much its memory fades at every row of the batch: `-log g`; 0 on padding."""
        entering = self._enter(replace(batch, query_times=None, query_marks=None), None)  # queries fade nothing
        x, deltas, lengths = entering.x, entering.deltas, entering.lengths
        found: list[Tensor] = []
        for mixer in self.blocks:
            found.append(mixer.liquid.decays(mixer.time_norm(x), deltas))
            x = mixer(x, deltas, lengths=lengths)
        return found

    @property
    def blocks(self) -> list[LiquidMixer]:
        return [mixer for mixer in self.mixers if isinstance(mixer, LiquidMixer)]

    def _enter(self, batch: IrregularBatch, state: State | None) -> Entering:
        """The input of the first mixer: the embedded rows, merged with the queries."""
        past = None if state is None else state.past
        encoded = self.rows(batch, past)
        x, deltas = self.embedder(encoded.rows, self.clock(batch.times)), self.intervals(batch, state)
        if batch.query_times is None:
            return Entering(x, deltas, batch.lengths, None, None, encoded)
        before = None if state is None else torch.where(state.rows > 0, state.time, torch.nan)
        ahead = self.read_out is not None and not self.config.causal
        merged = merge(batch.times, deltas, batch.lengths, batch.query_times, before, ahead)
        asked = self.rows.queries(batch, encoded, past)
        x = merged.arrange(x, self.embedder(asked, self.clock(batch.query_times)))
        return Entering(x, merged.deltas, merged.lengths, merged.is_query, merged, encoded)

    def clock(self, times: Tensor) -> Tensor:
        """Times as the time embedding expects them."""
        return times / self.rows.interval if self.config.time_embedding == "relative" else times

    def _from_guess(self, prediction: Tensor, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """The predictions, added to the guess of the persistence if there is one, with their distribution."""
        if self.summaries is not None:
            assert encoded.known is not None
            assert encoded.seen is not None
            last = encoded.known.at(batch.lengths[:, None]).squeeze()
            added = self.summaries(last, encoded.seen, batch.static)
            prediction = prediction + added.reshape(added.shape[0], *[1] * (prediction.ndim - 2), -1)
        if self.trees is not None:
            prediction = self.trees.mix(prediction, self._table(batch, encoded, self.config.waves))
        outputs = self.config.outputs
        raw, prediction = prediction[..., outputs:], prediction[..., :outputs]
        if self.persistence is not None:
            prediction = prediction + guess(self.persistence, batch, encoded, self.rows.interval)
        if encoded.own is None:
            return from_raw(self.config.distribution, prediction, raw)
        marks = batch.marks if batch.query_times is None else batch.query_marks
        size = encoded.own.spread[:, None].to(raw.dtype)
        return from_raw(self.config.distribution, encoded.own.restore(prediction, marks), raw, size)

    def new_trees(self, rounds: int, waves: bool = False) -> Trees | None:
        """Empty trees for the features of `tree_table`, with this number of rounds; None if 0."""
        width = replace(self.config, trees=rounds, waves=waves).in_table if rounds else 0
        size = FOR_ROWS if self.config.answer == "step" else FOR_SERIES
        return Trees(width, self.config.outputs, rounds, size) if rounds else None

    def set_trees(self, trees: Trees | None, waves: bool = False) -> None:
        """Mix the predictions with those of these trees, or of none."""
        self.trees = trees
        self.config = replace(self.config, trees=0 if trees is None else trees.rounds, waves=waves)

    def tree_table(self, batch: IrregularBatch, waves: bool = False) -> Tensor:
        """(B, W) features of each series, or (B, L, W) of each row, for the trees."""
        return self._table(batch, self.rows(batch), waves)

    def _table(self, batch: IrregularBatch, encoded: Encoded, waves: bool) -> Tensor:
        if self.config.answer == "step":
            return row_table(*self.rows.scaled(batch), batch.times, batch.lengths, batch.static)
        assert encoded.known is not None
        assert encoded.seen is not None
        last = encoded.known.at(batch.lengths[:, None]).squeeze()
        found = about_waves(*self.rows.scaled(batch), batch.times, encoded.known.before_rows()) if waves else None
        return table(last, encoded.seen, batch.static, found)

    def typical_first(self, dtype: torch.dtype) -> Tensor:
        """The first interval of a series in a model that must not look ahead."""
        return self.first_interval.to(dtype) * (self.config.first_interval == "typical")

    def intervals(self, batch: IrregularBatch, state: State | None) -> Tensor:
        """(B, L) deltas with the first interval of every series filled in."""
        if batch.deltas.shape[1] == 0:
            return batch.deltas
        if state is None and (filled := fusion.fill_intervals(self, batch)) is not None:
            return filled
        first = self.typical_first(batch.deltas.dtype).expand(batch.values.shape[0])
        if self.config.first_interval == "typical" and not self.config.causal:
            mean = mean_interval(batch)
            first = torch.where(mean > 0, mean, first)
        if state is not None:
            gap = batch.times[:, 0] - state.time
            _require_later(torch.where((state.rows > 0) & (batch.lengths > 0), gap, 0))
            first = torch.where(state.rows > 0, gap.to(first.dtype), first)
        first = torch.where(batch.lengths > 0, first, 0)  # an empty series has no first row
        rows = torch.arange(batch.deltas.shape[1], device=first.device)
        return torch.where(rows == 0, first[:, None], batch.deltas)  # not a slice: exported lengths are symbolic


def _finite(answer: Tensor) -> Tensor:
    """The prediction itself, if it is finite: layers may overflow even if the operator inside them does not."""
    checks.finite_result(answer, "the model's answer", "values or weights are")
    return answer


def _one_row(values: Tensor, time: Tensor, state: State, marks: Tensor | None) -> IrregularBatch:
    """(B, *C) with NaN where nothing was observed, (B,) -> a batch with one row per series"""
    observed = ~torch.isnan(values)
    return IrregularBatch(
        values=torch.where(observed, values, 0)[:, None],
        times=time[:, None],
        deltas=torch.zeros_like(time)[:, None],
        observed=observed[:, None],
        lengths=torch.ones_like(state.rows),
        start=torch.zeros_like(time),
        static=state.static,
        marks=None if marks is None else marks[:, None],
    )


def _last_time(batch: IrregularBatch, state: State | None) -> Tensor:
    """(B,) time of the last valid row; that of the state if this piece is empty."""
    before = torch.zeros_like(batch.start) if state is None else state.time
    times = torch.cat([before[:, None], batch.times], dim=1)
    return times.gather(1, batch.lengths[:, None]).squeeze(1)


def _require_later(gap: Tensor) -> None:
    bad = checks.first_bad(gap < 0) if checks.readable(gap) else None
    if bad is not None:
        raise ValueError(
            f"series {bad[0]} continues {-float(gap[bad]):g} before its last row. Build every piece of a series with "
            "the same t0 (the first stamp of the whole series), in order of time."
        )
