"""mTAND: attention from moments in time to observations, a softmax per channel over the times at which it was observed.

    φ(t) = [w₀ t + b₀, sin(w t + b)]           learned, of a time in spans of a series
    s_ij = (Q φ(τ_i)) · (K φ(t_j)) / √d        from moment i to row j, the same for all channels
    a_ic = Σ_j e^{s_ij} m_jc v_jc / Σ_j e^{s_ij} m_jc        m: what was observed, v: values

Encoder: moments are R reference points spread evenly over a series; a GRU runs over them. Decoder: a GRU over latent
points, and attention from the moments that are asked for to the reference points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lformer.baselines.model import BaselineConfig, Channels, Clock, Frame
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.rows import Encoded, Rows

PointsFrom = Literal["decoder", "encoder"]


@dataclass(frozen=True, kw_only=True)
class MTANDConfig(BaselineConfig):
    """The defaults are those published for PhysioNet, with the mean of the latent points in place of samples.

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
    """

    rows: Rows = "observed"
    depth: int = 1
    references: int = 64
    heads: int = 1
    time_width: int = 128
    latent: int = 16
    generator: int = 50
    points: PointsFrom = "decoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("points", self.points, PointsFrom)
        self.require_positive("references", "heads", "latent", "generator")
        if self.time_width < 2 or self.time_width % self.heads:
            raise ValueError(
                f"time_width must be at least 2 and a multiple of heads; got time_width={self.time_width}, "
                f"heads={self.heads}."
            )


class MTAND(Frame):
    """A series is answered from the last state of a GRU over its reference points, a query by the decoder.

    How a row is answered, `config.points` says.

    Note: the published decoder is trained on samples of the latent points, with the importance-weighted bound and a
    weight of its divergence that rises with the epochs. Here the latent points are their means, and the loss is that
    of the task: the trainer has one loss for all models. Published reference points are the same for all series; here
    they span each series, so that series may differ in length.
    """

    recordable = True  # what it does depends on shapes alone, so its steps may be replayed as CUDA graphs

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
            self.latent = nn.Sequential(nn.Linear(2 * D, G), nn.ReLU(), nn.Linear(G, config.latent))
            self.generate = BothWays(config.latent, G, config.depth)
            self.attend_back = TimeAttention(config.time_width, config.heads, 2 * G, D)
        elif config.answer == "step":
            self.narrow = nn.Linear(2 * D, D)

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D)"""
        x = self.channels(encoded.rows)
        clock = Clock.of(batch, self.rows.span)
        rows = self.time(clock(batch.times).to(x.dtype))  # (B, L, E)
        there = may_attend(self.config, batch, x)
        if self.config.answer == "step" and not self.decodes:
            return self.narrow(self.both_ways(self.attend(rows, rows, x, there), batch.lengths))
        moments = torch.linspace(0, 1, self.references, device=x.device, dtype=clock.start.dtype)
        references = self.time(clock(clock.start + moments * (clock.end - clock.start)).to(x.dtype))  # (B, R, E)
        attended = self.attend(references, rows, x, there)  # (B, R, D)
        if not self.decodes:
            return self.forwards(attended)[0][:, -1]
        full = attended.new_full((len(attended),), self.references, dtype=torch.int64)
        generated = self.generate(self.latent(self.both_ways(attended, full)), full)  # (B, R, 2 G)
        asked = rows if batch.query_times is None else self.time(clock(batch.query_times).to(x.dtype))
        return self.attend_back(asked, references, generated, torch.ones_like(generated))


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
