"""mTAND: attention from moments in time to observations, a softmax per channel over the times at which it was observed.

    φ(t) = [w₀ t + b₀, sin(w t + b)]           learned, of a time in spans of a series
    s_ij = (Q φ(τ_i)) · (K φ(t_j)) / √d        from moment i to row j, the same for all channels
    a_ic = Σ_j e^{s_ij} m_jc v_jc / Σ_j e^{s_ij} m_jc        m: what was observed, v: values

Encoder: moments are R reference points spread evenly over a series; a GRU runs over them, and gives the law of a latent
point at each. Decoder: a GRU over latent points, and attention from the moments that are asked for to the reference
points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lformer.baselines.bound import Law, asks_for_numbers, check_bound, log_likelihood
from lformer.baselines.model import BaselineConfig, Channels, Clock, Frame
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.rows import Encoded, Rows
from lformer.tasks import Task

PointsFrom = Literal["decoder", "encoder"]


@dataclass(frozen=True, kw_only=True)
class MTANDConfig(BaselineConfig):
    """The defaults are those published for PhysioNet.

    The model reads channels, not embedded rows: of the embedder only "frames" is used, which makes `width` channels of
    a frame; `time_embedding` is not used.

    Attributes:
        rows: with "observed", the model's own way, a channel is attended over the times at which it was observed; with
            "values" and "carried" over all rows.
        width: of what is attended, and units of the encoder's GRU.
        depth: layers of the GRUs.
        references: R, reference points over the span of a series.
        heads: of the attention; must divide `time_width`.
        time_width: size of the time embedding φ.
        latent: size of a latent point.
        generator: units of the decoder's GRU, and of the hidden layer before the latent points.
        points: how rows are answered: by the "decoder", as queries are, or from the "encoder", with the rows' own times
            in place of the reference points (published for the classification of points).
        samples: of the latent points, in training.
        noise: standard deviation of a target around its answer.
        kl_weight: of the divergence of the latent points from a standard normal law.
    """

    rows: Rows = "observed"
    depth: int = 1
    references: int = 64
    heads: int = 1
    time_width: int = 128
    latent: int = 16
    generator: int = 50
    points: PointsFrom = "decoder"
    samples: int = 5
    noise: float = 0.01
    kl_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("points", self.points, PointsFrom)
        self.require_positive("references", "heads", "latent", "generator")
        check_bound(self.samples, self.noise, self.kl_weight)
        if self.time_width < 2 or self.time_width % self.heads:
            raise ValueError(
                f"time_width must be at least 2 and a multiple of heads; got time_width={self.time_width}, "
                f"heads={self.heads}."
            )


class Seen(NamedTuple):
    """What there is to attend to, and when."""

    values: Tensor  # (B, L, W)
    there: Tensor  # (B, L, W) 1 or 0
    rows: Tensor  # (B, L, E) times of the rows
    references: Tensor  # (B, R, E) times of the reference points
    asked: Tensor  # (B, N, E) times of the queries, or of the rows


class MTAND(Frame):
    """A series is answered from the last state of a GRU over its reference points, a query by the decoder.

    How a row is answered, `config.points` says.

    The decoder answers from the means of the latent points. Targets that are numbers are learned by the
    importance-weighted bound over `samples` draws of the latent points, likelihood and divergence both divided by the
    number of targets. Classes, and what is answered without a decoder, are learned by the loss of the task alone.

    Note: the weight of the divergence is constant. The authors' is 0 for ten epochs and rises to 1 afterwards. A bound
    is that of a whole batch, and each target counts alike; theirs is the mean over series. Their reference points are
    the same for all series; here they span each series, so that series may differ in length.
    """

    config: MTANDConfig
    recordable = True  # what it does depends on shapes alone, so its steps may be replayed as CUDA graphs
    own_draws = True  # it draws from the generators of a run, never from those of the process

    def __init__(self, config: MTANDConfig) -> None:
        super().__init__(config)
        D, G = config.width, config.generator
        self.channels = Channels(self.rows, config)
        self.time = TimeFeatures(config.time_width)
        self.attend = TimeAttention(config.time_width, config.heads, self.channels.width, D)
        self.references = config.references
        self.decodes = config.answer == "query" or (config.answer == "step" and config.points == "decoder")
        if config.answer == "series":
            self.forwards = nn.GRU(D, D, config.depth, batch_first=True)
        else:
            self.both_ways = BothWays(D, D, config.depth)
        if self.decodes:
            self.latent = nn.Sequential(nn.Linear(2 * D, G), nn.ReLU(), nn.Linear(G, 2 * config.latent))
            self.generate = BothWays(config.latent, G, config.depth)
            self.attend_back = TimeAttention(config.time_width, config.heads, 2 * G, D)
        elif config.answer == "step":
            self.narrow = nn.Linear(2 * D, D)

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D)"""
        seen = self.see(batch, encoded)
        if self.decodes:
            return self.decode(self.law(seen).mean, seen)
        if self.config.answer == "step":
            attended = self.attend(seen.rows, seen.rows, seen.values, seen.there)
            return self.narrow(self.both_ways(attended, batch.lengths))
        return self.forwards(self.attended(seen))[0][:, -1]

    def see(self, batch: IrregularBatch, encoded: Encoded) -> Seen:
        """What a batch shows."""
        x, clock = self.channels(encoded.rows), Clock.of(batch, self.rows.span)
        moments = torch.linspace(0, 1, self.references, device=x.device, dtype=clock.start.dtype)
        points = clock.start + moments * (clock.end - clock.start)
        rows, references = (self.time(clock(times).to(x.dtype)) for times in (batch.times, points))
        asked = rows if batch.query_times is None else self.time(clock(batch.query_times).to(x.dtype))
        return Seen(x, may_attend(self.config, batch, x), rows, references, asked)

    def attended(self, seen: Seen) -> Tensor:
        """(B, R, D), from the reference points to the rows."""
        return self.attend(seen.references, seen.rows, seen.values, seen.there)

    def law(self, seen: Seen) -> Law:
        """Of the latent points, (B, R, latent)."""
        numbers = self.latent(self.both_ways(self.attended(seen), self._all_references(seen)))
        mean, log_variance = numbers.to(seen.values.dtype).chunk(2, dim=-1)
        return Law(mean, torch.exp(log_variance / 2))

    def decode(self, latent: Tensor, seen: Seen) -> Tensor:
        """(B, R, latent) -> (B, N, D), at the moments that are asked for."""
        generated = self.generate(latent, self._all_references(seen))  # (B, R, 2 G)
        return self.attend_back(seen.asked, seen.references, generated, torch.ones_like(generated))

    def training_loss(self, task: Task, batch: IrregularBatch) -> Tensor:
        """The negative bound, (); the loss of the task if the targets are classes or nothing is decoded."""
        if not (self.decodes and asks_for_numbers(task)):
            return task.loss(task.predict(self, batch), batch)
        whole, encoded = self.encode(batch)
        seen, config = self.see(whole, encoded), self.config
        law = self.law(seen)

        def answers(latent: Tensor) -> Tensor:
            return self.asked_for(self.answer(self.decode(latent, seen), whole, encoded), batch)

        likelihood = log_likelihood(answers, law.samples(config.samples), task, batch, config.noise)
        return config.kl_weight * law.divergence().sum() / task.weight(batch).clamp(min=1) - likelihood

    def _all_references(self, seen: Seen) -> Tensor:
        """(B,) how many there are of each series."""
        return torch.full((len(seen.values),), self.references, device=seen.values.device)


def may_attend(config: BaselineConfig, batch: IrregularBatch, x: Tensor) -> Tensor:
    """(B, L, W) 1 where a channel may be attended: beside the observed values, what was observed and statics."""
    valid = batch.valid[..., None].expand_as(x)
    if config.rows != "observed":
        return valid.to(x.dtype)
    observed = batch.observed & batch.valid[..., None]
    return torch.cat([observed, observed, valid[..., 2 * config.inputs :]], dim=-1).to(x.dtype)


class TimeFeatures(nn.Module):
    """φ(t): one linear feature and E − 1 sines, learned."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.periodic = nn.Linear(1, 1), nn.Linear(1, width - 1)

    def forward(self, times: Tensor) -> Tensor:
        """(B, N) -> (B, N, E)"""
        t = times[..., None]
        return torch.cat([self.linear(t), self.periodic(t).sin()], dim=-1)


class TimeAttention(nn.Module):
    """From moments to rows by their times alone; each channel is averaged over the rows in which it is there."""

    def __init__(self, time_width: int, heads: int, channels: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(time_width, time_width)
        self.key = nn.Linear(time_width, time_width, bias=False)  # one would shift all scores alike
        self.out = nn.Linear(heads * channels, width)

    def forward(self, moments: Tensor, rows: Tensor, values: Tensor, there: Tensor) -> Tensor:
        """(B, N, E), (B, L, E), (B, L, W), (B, L, W) 1 or 0 -> (B, N, D)"""
        return self.out(averages(self.scores(moments, rows), values, there).transpose(1, 2).flatten(2))

    def scores(self, moments: Tensor, rows: Tensor) -> Tensor:
        """(B, N, E), (B, L, E) -> (B, H, N, L)"""
        q, k = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear, x in ((self.query, moments), (self.key, rows))
        )
        return q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5


def averages(scores: Tensor, values: Tensor, there: Tensor) -> Tensor:
    """Softmax averages, each channel over the rows in which it is there; 0 if there is none.

    Two matrix products, and no tensor with an entry for every moment, row and channel: the exponentials are the same
    for all channels. They are taken from the highest score of a row in which anything is there, and not below the
    least number of the precision to the power of 0.7, so that a channel far from that row still has an average.

    Args:
        scores: (B, H, N, L).
        values: (B, L, W).
        there: (B, L, W) 1 or 0.

    Returns:
        (B, H, N, W)
    """
    any_there = there.any(dim=-1)[:, None, None]  # (B, 1, 1, L)
    highest = scores.masked_fill(~any_there, -torch.inf).amax(dim=-1, keepdim=True)
    highest = torch.where(torch.isfinite(highest), highest, 0).detach()
    lowest = 0.7 * math.log(torch.finfo(scores.dtype).tiny)
    weights = (scores - highest).clamp(lowest, 0).exp()  # rows with nothing may score higher, and are left out below
    total = weights @ there[:, None]
    seen = there.any(dim=1)[:, None, None]  # (B, 1, 1, W)
    return torch.where(seen, weights @ (values * there)[:, None] / torch.where(seen, total, 1), 0)


class BothWays(nn.Module):
    """A GRU over the valid rows in either direction: (B, N, D), (B,) -> (B, N, 2 H)."""

    def __init__(self, inputs: int, units: int, depth: int) -> None:
        super().__init__()
        self.forwards = nn.GRU(inputs, units, depth, batch_first=True)
        self.backwards = nn.GRU(inputs, units, depth, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Padding comes last in either direction, so no state of a valid row has seen any."""
        place = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        place = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)  # its own inverse
        there, back = self.forwards(x)[0], self.backwards(_taken(x, place))[0]
        return torch.cat([there, _taken(back, place)], dim=-1)


def _taken(x: Tensor, place: Tensor) -> Tensor:
    """(B, N, D), (B, N) -> (B, N, D)"""
    return x.gather(1, place[..., None].expand(-1, -1, x.shape[2]))
