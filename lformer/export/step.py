"""The step graph: from one row of each of B series and their states to predictions and new states.

For models that predict at queries, it returns only new states, from which the ask graph predicts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lformer.distributions import mixture
from lformer.export.answering import Answering
from lformer.export.graphs import Reading
from lformer.export.lean import LeanStep, State
from lformer.export.ports import Port
from lformer.export.subject import Subject, members_of


class StepGraph(nn.Module):
    """The result of `Stream.update` after one row, for B series at once.

    A series starts with the state given by `initial`; times are relative to its first row.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        models, config = members_of(subject), subject.model_.config
        self.reading, self.answering = Reading(subject), Answering(subject)
        self.asks, self.distribution = config.answer == "query", config.distribution
        self.members = nn.ModuleList(
            LeanStep(one, f"member{n}_" if len(models) > 1 else "") for n, one in enumerate(models)
        )
        self.state = [port for member in self.members for port in member.ports()]  # type: ignore[operator]
        row = [
            Port("values", "float64", ("batch", config.inputs), "NaN where nothing was observed"),
            Port("times", "float64", ("batch",), "time stamps, each later than the previous one of its series"),
        ]
        if config.statics:
            row.append(Port("static", "float32", ("batch", config.statics), "covariates, encoded as in `covariates`"))
        if config.marks:
            row.append(Port("marks", "float32", ("batch", config.marks), "of these times, see `calendar`"))
        self.rows = [*row, *([] if self.asks else self.answering.inputs())]
        self.inputs = [*self.rows, *(port for port, _ in self.state)]
        self.answers = [] if self.asks else self.answering.outputs("batch")
        self.outputs = [*self.answers, *(port.next() for port, _ in self.state)]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """(B, O) and the uncertainty outputs, but not for models with queries; the new state in the order of the old"""
        given: State = {port.name: tensor for port, tensor in zip(self.inputs, inputs, strict=True)}
        values, missing = given["values"], self.reading(given["values"])
        stamps = given["times"][:, None]
        answers, after = [], State()
        for member in self.members:
            answer, state = member(values, missing, stamps, given.get("static"), given.get("marks"), given)
            answers.append(answer)
            after |= state
        new = [after[port.name] for port, _ in self.state]
        if self.asks:
            return tuple(new)
        output = answers[0] if len(answers) == 1 else mixture(self.distribution, torch.stack(answers))
        return *self.answering(output, given.get("coverage")), *new
