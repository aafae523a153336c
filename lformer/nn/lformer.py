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
from lformer.nn.rows import Encoded, RowEncoder, Rows, check_rows
from lformer.nn.softmax import SoftmaxAttention
from lformer.nn.summaries import Seen, SummaryHead, about_waves, nothing_seen, table, table_width
from lformer.nn.trees import Trees
from lformer.ops import GateNorm, checks

TimeMixer = Literal["liquid", "softmax"]
ChannelMixer = Literal["swiglu", "feed_forward"]
FirstInterval = Literal["typical", "zero"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LFormerConfig:
    """Everything that decides the shape of an LFormer. The defaults are the paper's standard sizes.

    Attributes:
        inputs: C, observed channels per row.
        outputs: O, numbers per answer: classes, or targets.
        distribution: "point" answers each target with one number, "gaussian" and "quantiles" with several, which say
            how sure it is, see `lformer.distributions`.
        answer: "series" pools the valid rows; "step" answers at every row; "query" at `batch.query_times`.
        rows: what a row holds: "values" (paper), "observed" or "carried", see `RowEncoder`.
        neighbours: on either side of a "carried" row, at how many moments it also shows what each channel did, so that
            the embedder is a convolution in time; see `lformer.nn.neighbours`.
        statics: S, numbers of static covariates, from `batch.static`.
        marks: M, numbers known in advance of every row and query, such as the calendar, from `batch.marks`; the paper
            has none.
        summaries: whether an answer per series also depends on the mean, range and the like of each channel, see
            `SummaryHead`; needs rows="carried".
        trees: rounds of boosted trees on these summaries, with which the answer is mixed, see `Trees`; 0 for none.
        waves: whether trees also know how fast the best wave of each channel is, and that of its changes, and how much
            it explains; not in a causal model, which does not see the end of a series.
        series_scale: whether values, and answers in their units, are in units of their own series, see `OwnScale`.
        persistence: "latest", "recent", "line" or "wave" adds the answer to a simple guess in the units of the inputs,
            see `Persistence`; "none" is the paper's.
        width, depth, heads: D, number of mixers, H.
        hidden: inner width of the channel mixer; 2.75 D if None.
        embedder, embedder_layers, time_embedding: see `Embedder`.
        head_layers: hidden layers of the predictor; 0 is a single linear map.
        pooling: what answer "series" sees of the rows: their "mean" (paper), or "mean_last_max" side by side.
        read_out: what answer "query" sees: the query as a "row" that only reads, or, beside it, the rows by their
            distance in "time", see `TimeReadOut`.
        dropout: in training, share of the numbers set to 0 in embedded rows and in what each mixer adds to them.
        causal, gate_norm: non-causal with "sequence" is the paper's; causal with "prefix" can stream.
        first_interval: what the first row, which has none, is given. "typical" lets it write: the mean interval of
            its series in a non-causal model, the buffer `first_interval` otherwise. "zero" is the literal Δ_1 = 0.
        time_mixer, channel_mixer, mu, rate, output_gate: the paper's choices first; the others are its ablations.
        backend: of `ops.liquid_gated_attention`. "auto" and "fused" also run whole mixers as fused kernels where they
            can; `LFormer.explain` tells what runs.
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
        if self.trees < 0 or (self.trees and (not self.summaries or self.series_scale or self.distribution != "point")):
            raise ValueError(
                f"trees must be at least 0, and 0 without summaries, with series_scale and with a distribution; got "
                f"{self.trees}."
            )
        if self.waves and (not self.trees or self.causal):
            raise ValueError(
                f"waves=True needs trees and whole series; got trees={self.trees} and causal={self.causal}."
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
        """How many numbers the model puts out for an answer: those of a distribution for each of `outputs`."""
        return NUMBERS[self.distribution] * self.outputs

    @property
    def in_table(self) -> int:
        """W, how many numbers trees are given of a series."""
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
    """What the mixers are given."""

    x: Tensor  # (B, L, D)
    deltas: Tensor  # (B, L)
    lengths: Tensor  # (B,)
    is_query: Tensor | None  # (B, L) bool, rows of queries
    merged: Merged | None  # how queries and observations were put in order
    encoded: Encoded  # the rows before they were embedded, and what is known at each


class State(NamedTuple):
    """Where a stream stands after its last valid row; what grows with the series is in float64, see `exact_dtype`."""

    layers: tuple[LayerState, ...]
    time: Tensor  # (B,) float64, of the last row since the start of the series
    rows: Tensor  # (B,) how many so far
    pooled: Tensor  # (B, D) or (B, 3 D) what `Pool` keeps of the last mixer's rows, for answers per series
    known: Known | None  # (B, C) of each channel, where rows or answers need it
    static: Tensor | None  # (B, S) covariates
    recent: Recent | None = None  # the latest rows, where rows show their neighbours
    seen: Seen | None = None  # (B, C) what summaries need beyond what is known
    read_out: ReadOutState | None = None  # where queries read by their distance in time

    @property
    def past(self) -> Past | None:
        """What the row encoder goes on from; None where it keeps nothing."""
        return None if self.known is None else Past(self.time, self.rows, self.known, self.recent, self.seen)


class LFormer(nn.Module):
    """The backbone with its head: `model(batch)` answers per series (B, O), per row (B, L, O) or query (B, Q, O).

    With a `distribution`, there are `config.numbers` in place of O, see `lformer.distributions`.

    Example:
        >>> model = LFormer(LFormerConfig(inputs=3, outputs=2))
        >>> batch = IrregularBatch.build(torch.randn(8, 50, 3), times=torch.rand(8, 50).cumsum(1))
        >>> model(batch).shape
        torch.Size([8, 2])
    """

    recordable = True  # what it does depends on shapes, never on values, so its steps may be replayed as CUDA graphs
    own_draws = True  # it draws from the generators of a run, never from those of the process

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
        """Answer for every series of the batch.

        Args:
            batch: the series. To continue from a state, build it with the `t0` of the earlier pieces.
            state: where the series stand; None at their start.
            return_state: also return where they stand afterwards. States need causal=True and gate_norm "prefix" or
                "none".

        Returns:
            (B, O), (B, L, O) or (B, Q, O) as `config.answer` says, and the new state if asked for. Answers are finite:
            inf or NaN is an error, but in compiled code and inside `skip_value_checks`.
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
        """(B, L + Q, D) out of the last mixer -> (B, Q, D), and where the read-out stands, if there is one."""
        answers = merged.answers(x)
        if self.read_out is None:
            return answers, None
        read, after = self.read_out(x, merged, state and state.read_out)
        return answers + self.dropout(read), after

    def explain(self, batch: IrregularBatch, state: State | None = None) -> fusion.Path:
        """Which path `forward` takes here and, if it is not the fastest, the reason and what would change it."""
        queries = batch.query_times is not None
        return fusion.explain(self, fusion.call_of(batch.values, batch.deltas, queries, state is not None))

    def init_state(self, batch: int, static: Tensor | None = None) -> State:
        """The state before the first row of `batch` series, with their covariates (B, S) if the model reads any."""
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
        """One row per series: what was seen, and how long after the row before.

        Args:
            values: (B, *C); NaN where nothing was observed.
            delta: (B,) interval since the latest row; 0 at the first row of a series.
            state: from `init_state`, `step` or `forward(..., return_state=True)`.
            marks: (B, M) numbers known in advance of this row, if the model reads any.

        Returns:
            (B, O), the answer for the series so far or for this row, and the new state.
        """
        if self.config.answer == "query":
            raise RuntimeError(
                'step answers at the row it is given; a model with answer="query" answers elsewhere. Use advance, and '
                "ask where an answer is wanted."
            )
        x, row, encoded, after = self._advance(values, delta, state, marks)
        if self.config.answer == "series":
            x = self.pool(after.pooled, after.rows).to(x.dtype)
        return _finite(self._from_guess(self.head(x)[:, None], row, encoded)[:, 0]), after

    def advance(self, values: Tensor, delta: Tensor, state: State, marks: Tensor | None = None) -> State:
        """As `step`, without an answer: the state after one row per series, of any model that has one."""
        return self._advance(values, delta, state, marks)[-1]

    def ask(self, times: Tensor, state: State, marks: Tensor | None = None) -> Tensor:
        """What a model with answer="query" says of series that stand at `state`, which stays as it is.

        Args:
            times: (B, Q) since the start of each series, not before its latest row.
            state: as in `step`.
            marks: (B, Q, M) numbers known in advance of these times, if the model reads any.

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
        """(B, D) out of the last mixer, the row, what the encoder made of it, and the new state."""
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
        """(B, L, H) of each layer, how much of its memory every row of the batch lets fade: `-log g`; 0 on padding."""
        entering = self._enter(replace(batch, query_times=None, query_marks=None), None)  # queries let nothing fade
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
        """What enters the first mixer: the embedded rows, the queries among them."""
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
        """Times as the time embedding wants them."""
        return times / self.rows.interval if self.config.time_embedding == "relative" else times

    def _from_guess(self, prediction: Tensor, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """The answers, added to what one would say without a model where that is wanted, with their distribution."""
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
        """So many rounds of trees that have not grown, for the table that `summary_table` makes; None if 0."""
        width = table_width(self.config.inputs, self.config.statics, waves)
        return Trees(width, self.config.outputs, rounds) if rounds else None

    def set_trees(self, trees: Trees | None, waves: bool = False) -> None:
        """Mix the answers with those of other trees, or of none."""
        self.trees = trees
        self.config = replace(self.config, trees=0 if trees is None else trees.rounds, waves=waves)

    def summary_table(self, batch: IrregularBatch, waves: bool = False) -> Tensor:
        """(B, W) what trees are given of each series."""
        return self._table(batch, self.rows(batch), waves)

    def _table(self, batch: IrregularBatch, encoded: Encoded, waves: bool) -> Tensor:
        assert encoded.known is not None
        assert encoded.seen is not None
        last = encoded.known.at(batch.lengths[:, None]).squeeze()
        found = about_waves(*self.rows.scaled(batch), batch.times, encoded.known.before_rows()) if waves else None
        return table(last, encoded.seen, batch.static, found)

    def typical_first(self, dtype: torch.dtype) -> Tensor:
        """The first interval of a series that must not look ahead."""
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
        return torch.where(rows == 0, first[:, None], batch.deltas)  # not a slice: an exported length may be anything


def _finite(answer: Tensor) -> Tensor:
    """The answer itself, if it is one: layers may overflow where the operator inside them did not."""
    checks.finite_result(answer, "the model's answer", "values or weights are")
    return answer


def _one_row(values: Tensor, time: Tensor, state: State, marks: Tensor | None) -> IrregularBatch:
    """(B, *C) with NaN where nothing was observed, (B,) -> a batch of one row per series."""
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
    """(B,) time of the last valid row; unchanged where this piece is empty."""
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
