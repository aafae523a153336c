"""The ask graph: from states of B series and query times to the values of their channels at these times."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lformer.distributions import mixture
from lformer.export.answering import Answering
from lformer.export.lean import State
from lformer.export.lean_ask import LeanAsk
from lformer.export.ports import Port
from lformer.export.subject import Subject, members_of


class AskGraph(nn.Module):
    """The result of `Stream.predict_at` at Q times for each of B series, whose states do not change."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        models, config = members_of(subject), subject.model_.config
        self.answering, self.distribution = Answering(subject), config.distribution
        self.members = nn.ModuleList(
            LeanAsk(one, f"member{n}_" if len(models) > 1 else "") for n, one in enumerate(models)
        )
        asked = [Port("query_times", "float64", ("batch", "queries"), "not before the last row of the series")]
        if config.statics:
            asked.append(Port("static", "float32", ("batch", config.statics), "covariates, encoded as in `covariates`"))
        if config.marks:
            asked.append(Port("query_marks", "float32", ("batch", "queries", config.marks), "of these times"))
        self.rows = [*asked, *self.answering.inputs()]
        self.state = [port for member in self.members for port in member.ports()]  # type: ignore[operator]
        self.inputs = [*self.rows, *self.state]
        self.outputs = self.answers = self.answering.outputs("batch", "queries")

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """(B, Q, O), and the uncertainty outputs; NaN at times before the last row"""
        given: State = {port.name: tensor for port, tensor in zip(self.inputs, inputs, strict=True)}
        told = [
            member(given["query_times"], given.get("static"), given.get("query_marks"), given)
            for member in self.members
        ]
        output = told[0][0] if len(told) == 1 else mixture(self.distribution, torch.stack([one for one, _ in told]))
        return self.answering(output, given.get("coverage"), told[0][1])
