"""Every row of the paper's architecture table, and its ablations: they build, count, and every weight learns."""

from dataclasses import replace

import pytest
import torch
from helpers import irregular_arrays

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.bench import paper
from lformer.bench.models import MODELS, build
from lformer.bench.recipes import ABLATIONS, RECIPES, recipe


def parameters(config: LFormerConfig) -> int:
    return sum(p.numel() for p in LFormer(config).parameters())


def batch_for(config: LFormerConfig) -> IrregularBatch:
    shape = (24, 24) if config.embedder == "frames" else (config.inputs,)
    values, times, lengths = irregular_arrays(3, 12, config.inputs, seed=0, dtype=torch.float32)
    times = times / 500
    queries = times[:, :4] + 0.01 if config.answer == "query" else None
    return IrregularBatch.build(values.unflatten(-1, shape), times, lengths=lengths, query_times=queries)


def test_there_is_a_recipe_for_every_benchmark() -> None:
    names = """
        ethanol eigenworms heartbeat motor-imagery scp1 scp2 bidmc-hr bidmc-rr bidmc-spo2
        activity pendulum spiral-2 spiral-0.2 spiral-0.02 ushcn physionet
    """
    assert set(RECIPES) == set(names.split())


@pytest.mark.parametrize("ablation", [None, *ABLATIONS])
@pytest.mark.parametrize("dataset", ["ethanol", "scp1", "bidmc-hr", "activity", "pendulum", "spiral-2", "physionet"])
def test_every_weight_gets_a_gradient_and_the_answer_has_its_shape(dataset: str, ablation: str | None) -> None:
    plan = recipe(dataset, ablation=ablation or "")
    torch.manual_seed(0)
    model, batch = LFormer(plan.model), batch_for(plan.model)
    y = model(batch)
    leading = {"series": (3,), "step": (3, 12), "query": (3, 4)}[plan.model.answer]
    assert y.shape == (*leading, plan.model.outputs)
    y.square().sum().backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not bool(p.grad.abs().max() > 0)]
    assert silent == []


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_every_ablation_changes_the_answer(ablation: str) -> None:
    plan = recipe("activity")
    answers = []
    for config in (plan.model, recipe("activity", ablation=ablation).model):
        torch.manual_seed(0)
        model = LFormer(config)
        for name, p in model.named_parameters():
            torch.nn.init.normal_(p, std=0.3, generator=torch.Generator().manual_seed(len(name) + p.numel()))
        answers.append(model(batch_for(config)))
    assert float((answers[0] - answers[1]).detach().abs().max()) > 1e-4


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        # embedder + mixers + head, counted from the paper's table; d_ff = 2.75 d
        ("ethanol", (3 * 64 + 64) + 2 * 55_048 + (64 * 4 + 4)),
        ("scp1", (6 * 128 + 128) + 1 * 218_242 + (128 * 2 + 2)),
        ("bidmc-hr", (2 * 64 + 64 + 128) + 2 * 55_048 + 65),
        ("activity", (12 * 64 + 64 + 128 + 4160) + 4 * 55_048 + (64 * 7 + 7)),
        ("spiral-2", (2 * 32 + 32) + 13_960 + (32 * 2 + 2)),
        ("physionet", (37 * 64 + 64 + 128 + 2 * (4160 + 128) + 4160) + 2 * 55_048 + (3 * 4160 + 64 * 37 + 37)),
    ],
)
def test_parameter_counts_of_the_papers_configurations(dataset: str, count: int) -> None:
    assert parameters(recipe(dataset).model) == count


def test_one_mixer_holds_what_its_equations_name() -> None:
    d, h, f = 64, 4, 176
    projections = 4 * (d * d + d) + d * d  # q, k, v, o with biases; W_m without
    gates = h * (d + 1) + h  # w_f, b_f and theta of every head
    norms, swiglu = 2 * 2 * d, 3 * d * f
    assert projections + gates + norms + swiglu == 55_048
    one, two = (parameters(LFormerConfig(inputs=3, outputs=2, depth=n)) for n in (1, 2))
    assert two - one == 55_048


def test_the_printed_parameter_count_is_not_reached_and_by_how_much() -> None:
    """The paper prints 103.86 K for its efficiency study; its equations give 111,511 in the same frame.

    Leaving out W_m (103,319) or the output gate (103,191) comes near, neither gives the printed figure: the
    difference is stated here, not forced.
    """
    frame = LFormerConfig(inputs=12, outputs=7, embedder="relu_norm")
    assert parameters(frame) == 111_511
    assert parameters(frame) - paper.PARAMETERS["lformer"] == 7_651
    assert parameters(frame) - 2 * 64 * 64 == 103_319
    assert parameters(replace(frame, output_gate="none")) == 103_191


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no recipe for 'mnist'; there are ethanol"):
        recipe("mnist")
    with pytest.raises(ValueError, match="unknown ablation 'mu'; there are softmax_attention"):
        recipe("scp1", ablation="mu")
    with pytest.raises(ValueError, match="unknown model 'lstm'; there are lformer, gru"):
        recipe("scp1", "lstm")
    with pytest.raises(ValueError, match="ablations exchange parts of LFormer; gru has none"):
        recipe("scp1", "gru", ablation="fixed_mu")


@pytest.mark.parametrize("model", [name for name in MODELS if name != "lformer"])
@pytest.mark.parametrize("dataset", RECIPES)
def test_a_baseline_gets_the_same_embedder_head_and_training(dataset: str, model: str) -> None:
    ours, theirs = recipe(dataset), recipe(dataset, model)
    assert theirs.train == ours.train
    assert theirs.data == ours.data
    for name in ("inputs", "outputs", "answer", "embedder", "embedder_layers", "head_layers", "width", "depth"):
        assert getattr(theirs.model, name) == getattr(ours.model, name)
    batch = batch_for(ours.model)
    assert build(model, theirs.model)(batch).shape == build("lformer", ours.model)(batch).shape


def test_records_can_be_classified_too() -> None:
    plan = recipe("physionet", task="classify")
    assert (plan.model.answer, plan.model.outputs) == ("series", 2)
