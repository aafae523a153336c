"""The Transformer: known answers, and when it sees time."""

import pytest
import torch
import torch.nn.functional as F
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch
from lformer.baselines import Transformer, TransformerConfig

TIGHT = 1e-12


def build(answer: str = "step", **choices: object) -> Transformer:
    torch.manual_seed(0)
    config = {"inputs": 3, "outputs": 2, "answer": answer, "width": 8, "heads": 2, "feed_forward": 12, "depth": 2}
    model = Transformer(TransformerConfig(**config | choices)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def batch_of(values: Tensor, times: Tensor, lengths: Tensor, **more: object) -> IrregularBatch:
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **more)


def attention(layer: nn.TransformerEncoderLayer, x: Tensor, sources: int) -> Tensor:
    """(N, D) -> (N, D): every row reads the first `sources` ones, one head after the other."""
    part = layer.self_attn
    q, k, v = (x @ part.in_proj_weight.T + part.in_proj_bias).chunk(3, dim=-1)
    heads = []
    for a, b, c in zip(*(m.chunk(part.num_heads, dim=-1) for m in (q, k, v)), strict=True):
        scores = (a @ b[:sources].T / a.shape[-1] ** 0.5).exp()
        heads.append(scores / scores.sum(-1, keepdim=True) @ c[:sources])
    return part.out_proj(torch.cat(heads, dim=-1))


def by_hand(model: Transformer, x: Tensor, sources: int) -> Tensor:
    """(N, D) rows with their positions -> (N, D)"""
    for layer in model.layers:
        if model.config.norm_first:
            x = x + attention(layer, layer.norm1(x), sources)
            x = x + layer.linear2(F.relu(layer.linear1(layer.norm2(x))))
        else:
            x = layer.norm1(x + attention(layer, x, sources))
            x = layer.norm2(x + layer.linear2(F.relu(layer.linear1(x))))
    return F.layer_norm(x, (8,), model.last_norm.weight, model.last_norm.bias) if model.config.norm_first else x


def waves(position: float, width: int = 8) -> Tensor:
    """(D,): sin(p), cos(p), sin(p / 10000^(2/D)), …"""
    angles = [position / 10_000 ** (2 * (i // 2) / width) for i in range(width)]
    return torch.tensor([torch.tensor(a).sin() if i % 2 == 0 else torch.tensor(a).cos() for i, a in enumerate(angles)])


@pytest.mark.parametrize("norm_first", [True, False])
def test_it_is_the_softmax_written_out(norm_first: bool) -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=0)
    steps, series = build("step", norm_first=norm_first), build("series", norm_first=norm_first)
    by_row, by_series = steps(batch_of(values, times, lengths)), series(batch_of(values, times, lengths))
    place = torch.stack([waves(float(n)) for n in range(9)]).double()
    for i, n in enumerate(lengths.tolist()):
        x = steps.embedder(torch.nan_to_num(values[i : i + 1, :n], nan=0.0), times[:1, :n])[0] + place[:n]
        rows = by_hand(steps, x, sources=n)
        assert relative_error(by_row[i, :n], steps.head(rows)) < 1e-6  # the frequencies are float32 numbers
        assert relative_error(by_series[i], series.head(rows.mean(0))) < 1e-6


def test_a_query_reads_the_rows_and_stands_behind_those_not_later() -> None:
    values = torch.nan_to_num(irregular_arrays(1, 4, 3, seed=7)[0], nan=0.0)
    times = torch.tensor([[0.0, 1.0, 1.0, 3.0]]).double()
    asked = torch.tensor([[-1.0, 0.0, 1.0, 2.0, 3.0, 9.0]]).double()
    model = build("query")
    padded = F.pad(values, (0, 0, 0, 2)), F.pad(times, (0, 2))
    y = model(batch_of(*padded, torch.tensor([4]), query_times=asked))[0]
    rows = model.embedder(values, times)[0] + torch.stack([waves(float(n)) for n in range(4)])
    empty = model.embedder(torch.zeros(1, 1, 3).double(), times[:, :1])[0, 0]
    for q, index in enumerate([0, 1, 3, 3, 4, 4]):
        x = torch.cat([rows, (empty + waves(float(index)))[None]])
        assert relative_error(y[q], model.head(by_hand(model, x, sources=4)[4])) < 1e-6


def test_without_positions_it_knows_no_order() -> None:
    values, times, _ = irregular_arrays(2, 9, 3, seed=1)
    order, lengths = torch.arange(9).flip(0), torch.tensor([9, 9])
    for positions, knows in (("none", False), ("index", True)):
        model = build(positions=positions)
        turned = model(batch_of(values[:, order], times, lengths))
        change = relative_error(turned, model(batch_of(values, times, lengths))[:, order])
        assert (change > 1e-3) if knows else (change < TIGHT)


def test_without_queries_and_keys_attention_is_the_mean_over_valid_rows() -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=2)
    model = build(depth=1, positions="none")
    layer, eye = model.layers[0], torch.eye(8).double()
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(torch.cat([0 * eye, 0 * eye, eye]))
        layer.self_attn.out_proj.weight.copy_(eye)
        for zero in (layer.self_attn.in_proj_bias, layer.self_attn.out_proj.bias):
            zero.zero_()
        for zero in layer.linear2.parameters():
            zero.zero_()
    y = model(batch_of(values, times, lengths))
    for i, n in enumerate(lengths.tolist()):
        x = model.embedder(torch.nan_to_num(values[i : i + 1, :n], nan=0.0), times[:1, :n])[0]
        known = model.head(model.last_norm(x + layer.norm1(x).mean(0)))
        assert relative_error(y[i, :n], known) < TIGHT


@pytest.mark.parametrize(("positions", "sees"), [("index", False), ("time", True), ("none", False)])
@pytest.mark.parametrize("answer", ["series", "step"])
def test_it_sees_time_only_if_told_to(positions: str, sees: bool, answer: str) -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=3)
    model = build(answer, positions=positions)
    known, slower = model(batch_of(values, times, lengths)), model(batch_of(values, 2 * times, lengths))
    assert (relative_error(slower, known) > 1e-3) if sees else torch.equal(slower, known)


def test_on_a_regular_clock_time_is_the_index() -> None:
    values, _, lengths = irregular_arrays(3, 9, 3, seed=4)
    batch = batch_of(values, torch.arange(9.0), lengths)
    by_time, by_index = build("series", positions="time"), build("series", positions="index")
    assert torch.equal(by_time(batch), by_index(batch))


def test_a_query_is_told_apart_by_its_gap_or_by_its_time() -> None:
    values, _, _ = irregular_arrays(2, 6, 3, seed=5)
    asked = torch.tensor([[2.2, 2.8, 3.2]]).double().expand(2, 3)
    batch = batch_of(values, torch.arange(6.0), torch.tensor([6, 6]), query_times=asked)
    by_index, by_time = build("query", positions="index")(batch), build("query", positions="time")(batch)
    assert relative_error(by_index[:, 0], by_index[:, 1]) < TIGHT
    assert relative_error(by_index[:, 2], by_index[:, 1]) > 1e-3
    assert relative_error(by_time[:, 0], by_time[:, 1]) > 1e-3


def test_the_standard_size_has_a_hundred_thousand_parameters_and_no_two_layers_alike() -> None:
    model = Transformer(TransformerConfig(inputs=12, outputs=1))
    assert sum(p.numel() for p in model.parameters()) == 100_993
    assert not torch.equal(model.layers[0].linear1.weight, model.layers[1].linear1.weight)


def test_dropout_acts_in_training_alone() -> None:
    values, times, lengths = irregular_arrays(2, 6, 3, seed=6)
    batch, model = batch_of(values, times, lengths), build(dropout=0.5)
    assert relative_error(model.train()(batch), model(batch)) > 1e-3
    assert torch.equal(model.eval()(batch), build()(batch))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"positions": "learned"}, "'index', 'time', 'none'; got 'learned'"),
        ({"heads": 3}, "heads must divide width; got width=64, heads=3"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"feed_forward": 0}, "feed_forward must be at least 1"),
        ({"depth": 0}, "depth must be at least 1"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TransformerConfig(inputs=3, outputs=2, **change)
