"""Questions to a state, and states of many series side by side."""

from typing import Any

import pytest
import torch

from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.ensemble import Ensemble
from lformer.nn.states import first, leaves, put, room, take

NAN = float("nan")


def build(seed: int = 0, **choices: Any) -> LFormer:
    settings: dict[str, Any] = {
        "inputs": 3, "outputs": 3, "answer": "query", "rows": "carried", "causal": True, "gate_norm": "prefix",
        "width": 8, "heads": 2, "marks": 2, "time_embedding": "relative",
    }  # fmt: skip
    torch.manual_seed(seed)
    model = LFormer(LFormerConfig(**settings | choices)).double().eval()
    torch.nn.init.normal_(model.head[-1].weight)  # type: ignore[arg-type]
    return model


def series() -> dict[str, torch.Tensor]:
    """Four of up to seven rows, with uneven times, holes and marks, and two questions each after the last row."""
    torch.manual_seed(1)
    values, lengths = torch.randn(4, 7, 3).double(), torch.tensor([7, 3, 5, 1])
    values[torch.rand(4, 7, 3) < 0.4] = NAN
    times = torch.rand(4, 7).double().cumsum(1)
    last = times.gather(1, lengths[:, None] - 1)
    asked = last + torch.tensor([[0.0, 0.7], [2.0, 0.1], [0.3, 0.3], [5.0, 0.0]]).double()
    return {
        "values": values, "times": times - times[:, :1], "lengths": lengths, "marks": torch.randn(4, 7, 2).double(),
        "query_times": asked - times[:, :1], "query_marks": torch.randn(4, 2, 2).double(),
    }  # fmt: skip


@pytest.mark.parametrize("choices", [{"persistence": "latest", "neighbours": 3}, {"persistence": "none"}])
def test_a_question_to_a_state_is_one_to_the_series_and_changes_nothing(choices: Any) -> None:
    one, two = build(**choices), build(1, **choices)
    both, given = Ensemble([one, two]), series()
    wanted = both(IrregularBatch.build(**given, dtype=torch.float64))
    for model in (one, both):
        expected = wanted if model is both else one(IrregularBatch.build(**given, dtype=torch.float64))
        for i, length in enumerate(given["lengths"].tolist()):
            state: Any = model.init_state(1)
            for n in range(length):
                gap = given["times"][i, n] - given["times"][i, max(0, n - 1)]
                state = model.advance(given["values"][i : i + 1, n], gap[None], state, given["marks"][i : i + 1, n])
            before = [leaf.clone() for leaf in leaves(state)]
            told = model.ask(given["query_times"][i : i + 1], state, given["query_marks"][i : i + 1])
            torch.testing.assert_close(told, expected[i : i + 1], rtol=1e-9, atol=1e-9)
            assert all(torch.equal(a, b) for a, b in zip(before, leaves(state), strict=True))


def test_a_step_of_a_model_that_is_asked_elsewhere_says_what_to_call() -> None:
    model = build()
    with pytest.raises(RuntimeError, match=r"predicts at query times\. Use advance, then ask"):
        model.step(torch.zeros(1, 3).double(), torch.zeros(1).double(), model.init_state(1), torch.zeros(1, 2).double())


def test_rows_of_states_are_taken_put_and_given_room() -> None:
    model = Ensemble(
        [build(persistence="latest", neighbours=2, statics=2), build(1, persistence="latest", neighbours=2, statics=2)]
    )
    state = model.init_state(4, torch.randn(4, 2).double())
    marks = torch.randn(4, 2).double()
    state = model.advance(torch.randn(4, 3).double(), torch.zeros(4).double(), state, marks)
    index = torch.tensor([2, 0])
    some = take(state, index)
    assert all(torch.equal(a, b[index]) for a, b in zip(leaves(some), leaves(state), strict=True))
    larger = room(state, 9)
    assert all(len(a) == 9 and torch.equal(a[:4], b) for a, b in zip(leaves(larger), leaves(state), strict=True))
    put(larger, torch.tensor([8, 1]), some)
    assert all(torch.equal(a[[8, 1]], b) for a, b in zip(leaves(larger), leaves(some), strict=True))
    assert all(torch.equal(a[[0, 2, 3]], b[[0, 2, 3]]) for a, b in zip(leaves(larger), leaves(state), strict=True))
    assert all(torch.equal(a, b[:3]) for a, b in zip(leaves(first(state, 3)), leaves(state), strict=True))
    assert type(take(state, index)[0]) is type(state[0])
