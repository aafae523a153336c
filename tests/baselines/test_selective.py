"""S6 and Mamba: known answers, agreement with mambapy, and what they start from."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import irregular_arrays, irregular_batch, relative_error
from torch import Tensor

from lformer import IrregularBatch
from lformer.baselines import S6, Mamba, MambaConfig, S6Config
from lformer.baselines.selective import MambaMixer, SelectiveLayer
from lformer.baselines.state_space import Moments

TIGHT = 1e-12


def mamba(answer: str = "step", **choices: object) -> Mamba:
    torch.manual_seed(0)
    made = {"inputs": 3, "outputs": 2, "answer": answer, "width": 8, "state": 4}
    return Mamba(MambaConfig(**made | choices)).double()


def by_hand(layer: SelectiveLayer, u: Tensor) -> Tensor:
    """(L, E) -> (L, E), as the equations are printed."""
    R, N, _ = layer.sizes
    A, h, rows = -torch.exp(layer.log_rates), torch.zeros_like(layer.log_rates), []
    for row in u:
        low, B, C = (layer.select.weight @ row).split([R, N, N])
        delta = torch.log1p(torch.exp(layer.step_weight @ low + layer.step_bias))
        h = torch.exp(delta[:, None] * A) * h + (delta * row)[:, None] * B
        rows.append(h @ C + layer.D * row)
    return torch.stack(rows)


def test_a_selective_layer_is_the_recurrence_written_out() -> None:
    torch.manual_seed(0)
    layer, u = SelectiveLayer(6, 4, 2).double(), torch.randn(2, 23, 6).double()
    y = layer(u, torch.rand(2, 23))
    for i in range(2):
        assert relative_error(y[i], by_hand(layer, u[i])) < TIGHT


def test_without_steps_a_row_is_its_own_answer() -> None:
    layer, u = SelectiveLayer(6, 4, 2).double(), torch.randn(2, 23, 6).double()
    torch.nn.init.zeros_(layer.step_weight)
    torch.nn.init.constant_(layer.step_bias, -60.0)
    assert relative_error(layer(u, torch.rand(2, 23)), layer.D * u) < 1e-14


def test_with_constant_weights_it_is_a_linear_time_invariant_system() -> None:
    """Δ, B and C of a bias alone, as an input channel that is always 1 gives it: the kernel is C exp(k Δ A) Δ B."""
    layer = SelectiveLayer(3, 4, 1).double()
    with torch.no_grad():
        layer.select.weight[:, :2] = 0  # only channel 2, which is 1, is looked at
        layer.D.zero_()
    u = torch.randn(1, 15, 3).double()
    u[..., 2] = 1
    low, B, C = layer.select.weight[:, 2].split(layer.sizes)
    delta = F.softplus(layer.step_weight @ low + layer.step_bias)
    A = -torch.exp(layer.log_rates)
    kernel = torch.stack([(C * torch.exp(k * delta[:, None] * A) * delta[:, None] * B).sum(-1) for k in range(15)])
    known = torch.stack([sum(kernel[k] * u[0, n - k] for k in range(n + 1)) for n in range(15)])
    assert relative_error(layer(u, torch.rand(1, 15))[0], known) < TIGHT


def test_it_starts_as_published() -> None:
    torch.manual_seed(0)
    layer = SelectiveLayer(2000, 5, 4)
    assert torch.equal(layer.log_rates, torch.log(torch.tensor([1.0, 2, 3, 4, 5])).expand(2000, 5))
    assert torch.equal(layer.D, torch.ones(2000))
    step = F.softplus(layer.step_bias.detach().double()).log()  # uniform between 1e-3 and 1e-1
    assert math.log(1e-3) - 1e-3 <= float(step.min()) < math.log(1.02e-3)
    assert math.log(0.98e-1) < float(step.max()) <= math.log(1e-1) + 1e-3
    assert abs(float(step.mean()) - math.log(1e-2)) < 0.1
    assert 0.49 < float(layer.step_weight.detach().abs().max()) <= 0.5  # R^-1/2
    assert layer.select.bias is None
    assert MambaMixer(MambaConfig(inputs=1, outputs=1, width=40)).selective.sizes == [3, 16, 16]  # R = ⌈40 / 16⌉


def test_mamba_agrees_with_mambapy() -> None:
    """All blocks, weights copied: outputs and the gradients of inputs and every weight."""
    theirs_of = pytest.importorskip("mambapy.mamba")
    model = mamba(width=12, state=4, depth=2, conv=3)
    theirs = theirs_of.Mamba(
        theirs_of.MambaConfig(d_model=12, n_layers=2, d_state=4, expand_factor=2, d_conv=3)
    ).double()
    pairs = []
    for block, layer in zip(model.blocks, theirs.layers, strict=True):
        ours, mixer = block.recurrence, layer.mixer
        pairs += [
            (block.norm.weight, layer.norm.weight),
            (ours.enter.weight, mixer.in_proj.weight),
            (ours.convolution.weight, mixer.conv1d.weight),
            (ours.convolution.bias, mixer.conv1d.bias),
            (ours.selective.select.weight, mixer.x_proj.weight),
            (ours.selective.step_weight, mixer.dt_proj.weight),
            (ours.selective.step_bias, mixer.dt_proj.bias),
            (ours.selective.log_rates, mixer.A_log),
            (ours.selective.D, mixer.D),
            (ours.leave.weight, mixer.out_proj.weight),
        ]
    assert len(pairs) == len(list(theirs.parameters()))
    with torch.no_grad():
        for ours, other in pairs:
            other.copy_(ours.normal_(std=0.4))
    x = torch.randn(2, 19, 12).double().requires_grad_()
    y, known = x, theirs(x)
    for block in model.blocks:
        y = block(y, torch.ones(2, 19, dtype=torch.bool), lambda mixer, rows: mixer(rows, torch.ones(2, 19)))
    # It takes A and D in float32, whatever the rest is.
    assert relative_error(y, known) < 1e-6
    actual = torch.autograd.grad(y.sin().sum(), [x, *(ours for ours, _ in pairs)])
    expected = torch.autograd.grad(known.sin().sum(), [x, *(other for _, other in pairs)])
    for one, other in zip(actual, expected, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.parametrize("name", ["s6", "mamba", "mamba gated"])
def test_the_future_does_not_reach_the_past(name: str) -> None:
    values, times, _ = irregular_arrays(2, 12, 3, seed=1)
    torch.manual_seed(0)
    made = {"inputs": 3, "outputs": 2, "answer": "step", "width": 8}
    model = (
        S6(S6Config(**made)) if name == "s6" else Mamba(MambaConfig(**made, block=name.partition(" ")[2] or "plain"))
    )
    model = model.double()
    known = model(IrregularBatch.build(values, times, dtype=torch.float64))
    for k in (1, 5, 11):
        other = values.clone()
        other[:, k:] = 9.0
        changed = model(IrregularBatch.build(other, times, dtype=torch.float64))
        assert relative_error(changed[:, :k], known[:, :k]) < 1e-14
        assert relative_error(changed[:, k], known[:, k]) > 1e-3


@pytest.mark.parametrize("conv", [1, 2, 4])
def test_a_convolution_reads_so_many_rows(conv: int) -> None:
    mixer = mamba(conv=conv).blocks[0].recurrence
    torch.nn.init.constant_(mixer.selective.step_bias, -60.0)  # so that the recurrence passes nothing on
    torch.nn.init.zeros_(mixer.selective.step_weight)
    x = torch.randn(1, 10, 8).double()
    other = x.clone()
    other[:, 3] += 1
    change = (mixer(other, torch.ones(1, 10)) - mixer(x, torch.ones(1, 10))).abs().amax(dim=-1)[0] > 1e-9
    assert change.tolist() == [3 <= k < 3 + conv for k in range(10)]


def moments_of(times: Tensor, lengths: Tensor, asked: Tensor) -> Moments:
    batch = IrregularBatch.build(torch.zeros(*times.shape, 3), times, lengths=lengths, query_times=asked)
    return mamba().moments(batch, batch.query_times, torch.float64)


def test_a_query_reads_the_state_of_the_latest_row_and_leaves_none() -> None:
    torch.manual_seed(0)
    layer, u, asked = SelectiveLayer(6, 4, 2).double(), torch.randn(2, 5, 6).double(), torch.randn(2, 4, 6).double()
    times = torch.tensor([[0.0, 1.0, 1.0, 4.0, 6.0], [0.0, 2.0, 3.0, 3.0, 3.0]])
    when = torch.tensor([[9.0, -1.0, 1.0, 5.0], [3.5, 2.5, -0.5, 0.0]])
    y = layer.ask(u, asked, moments_of(times, torch.tensor([5, 3]), when))
    for i, until in enumerate(([5, 0, 3, 4], [3, 2, 0, 1])):
        valid = (5, 3)[i]
        assert relative_error(y[i, :valid], by_hand(layer, u[i, :valid])) < TIGHT
        for q, rows in enumerate(until):
            h = torch.zeros(6, 4).double()
            for row in u[i, :rows]:
                low, B, _ = (layer.select.weight @ row).split(layer.sizes)
                delta = F.softplus(layer.step_weight @ low + layer.step_bias)
                h = torch.exp(-delta[:, None] * torch.exp(layer.log_rates)) * h + (delta * row)[:, None] * B
            C = (layer.select.weight @ asked[i, q]).split(layer.sizes)[2]
            assert relative_error(y[i, 5 + q], h @ C + layer.D * asked[i, q]) < TIGHT


@pytest.mark.parametrize("conv", [1, 2, 4])
def test_the_convolution_of_a_query_is_that_of_a_row_in_its_place(conv: int) -> None:
    mixer = mamba(conv=conv).blocks[0].recurrence
    torch.nn.init.constant_(mixer.selective.step_bias, -60.0)  # so that the recurrence passes nothing on
    torch.nn.init.zeros_(mixer.selective.step_weight)
    x, times = torch.randn(1, 10, 8).double(), torch.arange(10.0)[None]
    known = mixer(x, torch.ones(1, 10))
    for k in range(10):
        before = moments_of(times, torch.tensor([10]), times[:, k : k + 1] - 0.5)
        assert relative_error(mixer.ask(x, x[:, k : k + 1], before)[:, 10], known[:, k]) < TIGHT


def test_blocks_are_put_together_as_published() -> None:
    """Plain: x + mixer(RMSNorm(x)), and a last norm. Gated: x + GLU(GELU(core(LayerNorm(x))))."""
    batch = irregular_batch(L=9)
    x = torch.randn(4, 9, 8).double()
    plain, gated = mamba(depth=1), mamba(depth=1, block="gated")

    def rms(v: Tensor) -> Tensor:
        return v / torch.sqrt(v.square().mean(-1, keepdim=True) + 1e-5)

    block = plain.blocks[0]
    assert relative_error(plain.mix(x, batch), rms(x + block.recurrence(rms(x), x[..., 0]))) < TIGHT
    block = gated.blocks[0]
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    value, gate = block.glu(F.gelu(block.recurrence(normed, x[..., 0]))).chunk(2, dim=-1)
    assert relative_error(gated.mix(x, batch), x + value * torch.sigmoid(gate)) < TIGHT


def test_the_standard_size() -> None:
    """Two layers of width 64 with 16 states, expanded twice, convolution over 4 rows."""
    model = Mamba(MambaConfig(inputs=12, outputs=1))
    assert sum(p.numel() for p in model.parameters()) == 66_369  # 2 · 32,704 + 832 + 64 + 65


def test_half_precision_changes_little() -> None:
    batch = irregular_batch(dtype=torch.float32)
    for model in (mamba("series").float(), mamba("series", block="gated").float()):
        with torch.autocast("cpu", torch.bfloat16):
            rough = model(batch)
        assert relative_error(rough.float(), model(batch)) < 0.1


def test_half_precision_does_not_round_the_pace() -> None:
    """A change of the bias by less than a digit of bfloat16 is felt under autocast."""
    torch.manual_seed(0)
    layer, u = SelectiveLayer(6, 4, 2), torch.randn(2, 200, 6)
    torch.nn.init.zeros_(layer.step_weight)
    with torch.autocast("cpu", torch.bfloat16):
        before = layer(u, torch.ones(2, 200))
        with torch.no_grad():
            layer.step_bias *= 1 + 2**-12
        change = relative_error(layer(u, torch.ones(2, 200)), before)
    assert 1e-6 < change < 1e-2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"block": "bare"}, "'plain', 'gated'; got 'bare'"),
        ({"conv": 0}, "conv must be at least 1"),
        ({"expand": 0}, "expand must be at least 1"),
        ({"norm": "batch"}, 'norm belongs to block="gated"'),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MambaConfig(inputs=3, outputs=2, **change)
