"""From model outputs to what the user gets: predictions, their uncertainty, and intervals or sets for a coverage.

    answers                  class probabilities, or numbers in the units of the targets
    deviations, quantiles    what a model with `uncertainty` predicts in addition
    low, high                of a calibrated model: `predict_interval`
    sets, sets_by_class      of a calibrated classifier: `predict_set`, without and with by_class=True

The thresholds of a calibration are constants of the graph, from which the input `coverage` selects.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor, nn

from lformer.distributions import BELOW, in_units
from lformer.export.ports import Port
from lformer.export.subject import Subject, calibration_of, classes_of

GRID = 1000  # thresholds are kept for coverages in thousandths
MILLION = 1e6  # a coverage is first rounded to a millionth of a thousandth, so that 0.57 becomes exactly 570
STEPS = [0.0, *(-NormalDist().inv_cdf(level) for level in reversed(BELOW))]  # z of the levels, from the median outwards


class Answering(nn.Module):
    """Outputs of any shape, (..., P O), converted to the user's units."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        task, self.classes, self.width = subject.task_, classes_of(subject), subject.model_.config.outputs
        self.kind = task.distribution
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", torch.tensor(list(task.shift) or [0.0], dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(list(task.scale) or [1.0], dtype=torch.float64))
        calibration = calibration_of(subject)
        self.calibrated = calibration is not None
        if calibration is not None:
            found = torch.as_tensor(calibration.thresholds, dtype=torch.float64)  # (G, bins, 999)
            never = found.new_full((*found.shape[:2], 1), torch.inf)  # no guarantee beyond 0.999
            self.thresholds = nn.Buffer(torch.cat([found, never], dim=2))
            if len(calibration.edges):  # a PyTorch archive cannot hold an empty tensor
                self.edges = nn.Buffer(torch.tensor(calibration.edges, dtype=torch.float64))
            steps = torch.tensor(STEPS, dtype=torch.float64)[:, None]
            self.steps, self.widths = nn.Buffer(steps[:-1].clone()), nn.Buffer(steps.diff(dim=0))

    @property
    def needs_size(self) -> bool:
        """Whether intervals need an assumed standard deviation, because the model predicts none."""
        return self.calibrated and self.classes is None and self.kind == "point"

    @property
    def needs_ahead(self) -> bool:
        """Whether intervals depend on the time since the last row."""
        return hasattr(self, "edges")

    def inputs(self) -> list[Port]:
        """Inputs in addition to the series."""
        about = "probability that an interval or set contains the true value, 0.001 to 0.999"
        return [Port("coverage", "float64", (), about)] if self.calibrated else []

    def outputs(self, *axes: str) -> list[Port]:
        """The outputs, for predictions along these axes."""
        shape: tuple[str | int, ...] = (*axes, self.width)
        if self.classes is not None:
            found = [Port("answers", "float64", shape, "class probabilities, in the order of `classes`")]
            if self.calibrated:
                found.append(Port("sets", "bool", shape, "prediction sets with this coverage"))
                found.append(Port("sets_by_class", "bool", shape, "the same, with this coverage within each class"))
            return found
        found = [Port("answers", "float64", shape, "predictions, in the units of training")]
        if self.kind == "gaussian":
            found.append(Port("deviations", "float64", shape, "standard deviations, in the units of `answers`"))
        elif self.kind == "quantiles":
            found.append(Port("quantiles", "float64", (*shape, 2 * len(BELOW) + 1), "at the `levels`"))
        if self.calibrated:
            found.append(Port("low", "float64", shape, "lower end of the prediction interval with this coverage"))
            found.append(Port("high", "float64", shape, "its upper end"))
        return found

    def forward(
        self, output: Tensor, coverage: Tensor | None, ahead: Tensor | None = None, size: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The tensors that `outputs` lists.

        Args:
            output: (..., P O) of the model.
            coverage: (), if the model is calibrated.
            ahead: (...) time since the last row, if `needs_ahead`.
            size: (..., O) assumed standard deviation, relative to that of training, if `needs_size`; 1 if None.
        """
        output = output.double()
        if self.classes is not None:
            probability = torch.softmax(output, dim=-1)
            return probability, *(() if coverage is None else self._sets(probability, self._at(coverage)[:, 0]))
        numbers = in_units(self.kind, output, self.shift, self.scale)
        answers, found = numbers[..., : self.width], [numbers[..., : self.width]]
        if self.kind == "gaussian":
            found.append(numbers[..., self.width :])
        elif self.kind == "quantiles":
            K, blocks = len(BELOW), numbers.unflatten(-1, (-1, self.width))
            ascending = torch.cat([blocks[..., 1 : K + 1, :], blocks[..., :1, :], blocks[..., K + 1 :, :]], dim=-2)
            found.append(ascending.transpose(-1, -2))
        if coverage is None:
            return tuple(found)
        z = self._z(coverage, ahead)
        if self.kind == "quantiles":
            away = (blocks[..., 1:, :] - blocks[..., :1, :]).abs()
            below, above = self._reach(away[..., :K, :].flip(-2), z), self._reach(away[..., K:, :], z)
            return *found, answers - below, answers + above
        one = (
            numbers[..., self.width :] if self.kind == "gaussian" else self.scale if size is None else self.scale * size
        )
        return *found, answers - z * one, answers + z * one

    def _at(self, coverage: Tensor) -> Tensor:
        """(G, bins) thresholds for a coverage, which is rounded up to thousandths."""
        level = torch.ceil(torch.round(coverage * (GRID * MILLION)) / MILLION).clamp(1, GRID).long() - 1
        return self.thresholds.index_select(2, level.reshape(1)).squeeze(2)

    def _z(self, coverage: Tensor, ahead: Tensor | None) -> Tensor:
        """(O,), or (..., O) if intervals widen with the time ahead: half-width of an interval in deviations."""
        found = self._at(coverage)
        if not self.needs_ahead:
            return found[:, 0]
        assert ahead is not None
        place = (self.edges < ahead[..., None]).sum(dim=-1)
        return found.T[place]

    def _reach(self, away: Tensor, z: Tensor) -> Tensor:
        """(..., K, O) distances of the levels on one side from the median, nearest first -> (..., O) distance of z.

        Linear in z between two levels; beyond the last one on the line from the median.
        """
        way = ((z[..., None, :] - self.steps) / self.widths).clamp(0, 1)  # share of each piece that lies below z
        pieces = torch.cat([away[..., :1, :], away[..., 1:, :] - away[..., :-1, :]], dim=-2)
        inside = (pieces * way).sum(dim=-2)
        last = self.steps[-1] + self.widths[-1]
        return torch.where(z > last, away[..., -1, :] * (z / last), inside)

    def _sets(self, probability: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        """(..., K) bool twice; the most likely class is always included, as an empty set is useless."""
        missed = 1 - probability
        likeliest = torch.arange(self.width, device=missed.device) == probability.argmax(dim=-1, keepdim=True)
        return (missed <= thresholds[0]) | likeliest, (missed <= thresholds[1:]) | likeliest
