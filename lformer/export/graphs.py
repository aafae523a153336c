"""The batch graph: from raw values and time stamps of whole series to the result of `predict` or `predict_proba`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.export.answering import Answering
from lformer.export.ports import Port
from lformer.export.subject import Subject
from lformer.nn.ensemble import Ensemble
from lformer.nn.lformer import LFormer
from lformer.panel.missing import read_marks


class Reading(nn.Module):
    """Raw values -> which of them are missing.

    Missing are NaN, numbers that stand for missing values, and channels that were never observed in training.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        features = subject.features_
        self.unknown: Tensor | None
        self.register_buffer("unknown", None if features.known.all() else torch.from_numpy(~features.known))
        marks = read_marks(subject.missing_values, features.channels, np.float32, some=True)
        self.marks = [(float(number), torch.from_numpy(where)) for number, where in marks]

    def forward(self, values: Tensor) -> Tensor:
        """(..., C) -> (..., C) bool, where nothing was observed"""
        missing = torch.isnan(values)
        if self.unknown is not None:
            missing = missing | self.unknown
        for number, where in self.marks:
            missing = missing | ((values.float() == number) & where)
        return missing


class BatchGraph(nn.Module):
    """B series with up to L rows, and Q query times if the model predicts at queries.

    Time stamps are differenced here, in float64, so that those of the year 2024 in seconds lose no precision.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.reading, self.answering = Reading(subject), Answering(subject)
        self.model = subject.model_
        self.asks = subject.model_.config.answer == "query"
        self.inputs = [*batch_inputs(subject), *self.answering.inputs()]
        place: dict[str, tuple[str, ...]] = {"series": (), "step": ("length",), "query": ("queries",)}
        self.outputs = self.answers = self.answering.outputs("batch", *place[subject.model_.config.answer])

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """(B, O), (B, L, O) or (B, Q, O), and the uncertainty outputs"""
        given = {port.name: tensor for port, tensor in zip(self.inputs, inputs, strict=True)}
        batch = self.batch(given)
        ahead = size = None
        if self.answering.needs_ahead:
            assert batch.query_times is not None
            ahead = batch.query_times - batch.times.amax(dim=1, keepdim=True)
        # Not an attribute: `torch.export` confuses the weights of a module with two names.
        first = self.model.models[0] if isinstance(self.model, Ensemble) else self.model
        if self.answering.needs_size and first.rows.own is not None:
            size = _own_size(first, batch)
        return self.answering(self.model(batch), given.get("coverage"), ahead, size)

    def batch(self, given: dict[str, Tensor]) -> IrregularBatch:
        """The series as the model takes them."""
        values, observed = given["values"], ~self.reading(given["values"])
        times, lengths, marks = given["times"], given["lengths"], given.get("marks")
        place = torch.arange(times.shape[1], device=times.device)
        if self.asks:  # leave out rows without observations, like `predict`
            informed = observed.any(dim=2) & (place < lengths[:, None])
            order = torch.where(informed, place, place + times.shape[1]).argsort(dim=1)
            values, observed = (x.gather(1, order[..., None].expand_as(x)) for x in (values, observed))
            times, lengths = times.gather(1, order), informed.sum(dim=1)
            if marks is not None:
                marks = marks.gather(1, order[..., None].expand_as(marks))
        valid = place < lengths[:, None]
        observed = observed & valid[..., None]
        last = (lengths - 1).clamp(min=0)[:, None]
        start = torch.where(lengths > 0, times[:, 0], 0)
        clock = torch.where(valid, times, torch.where(lengths[:, None] > 0, times.gather(1, last), 0)) - start[:, None]
        before = torch.cat([clock[:, :1], clock], dim=1).gather(1, place.expand_as(clock))
        if marks is not None:  # on padding, those of the last row, like its time
            row = torch.minimum(place, last)
            marks = marks.gather(1, row[..., None].expand_as(marks))
        asked = given.get("query_times")
        return IrregularBatch(
            values=torch.where(observed, values, 0),
            times=clock,
            deltas=(clock - before).float(),
            observed=observed,
            lengths=lengths,
            start=start,
            query_times=None if asked is None else asked - start[:, None],
            static=given.get("static"),
            marks=marks,
            query_marks=given.get("query_marks"),
        )


def batch_inputs(subject: Subject) -> list[Port]:
    """The inputs of the batch graph of a model."""
    config = subject.model_.config
    ports = [
        Port("values", "float64", ("batch", "length", config.inputs), "NaN where nothing was observed"),
        Port("times", "float64", ("batch", "length"), "time stamps, not decreasing along a series"),
        Port("lengths", "int64", ("batch",), "number of rows of each series; the rest is padding"),
    ]
    if config.statics:
        ports.append(Port("static", "float32", ("batch", config.statics), "covariates, encoded as in `covariates`"))
    if config.marks:
        ports.append(Port("marks", "float32", ("batch", "length", config.marks), "of the rows, see `calendar`"))
    if config.answer == "query":
        ports.append(Port("query_times", "float64", ("batch", "queries"), "times at which to predict"))
        if config.marks:
            ports.append(Port("query_marks", "float32", ("batch", "queries", config.marks), "of these times"))
    return ports


def _own_size(model: LFormer, batch: IrregularBatch) -> Tensor:
    """(B, 1, C) assumed standard deviation for series on their own scale, relative to that of training."""
    own = model.rows(batch).own
    assert own is not None
    assert model.rows.own is not None
    return model.rows.own.deviation(own)[:, None].double()
