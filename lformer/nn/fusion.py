"""Decides which parts of an LFormer run as fused kernels, explains why others do not, and runs them.

`LFormer.forward` calls `choose` once. The decision depends on the modules and on `Call`, never on the numbers in a
batch, so `expected` can determine the path for a machine with a GPU on one without.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from lformer import ops
from lformer.batch import IrregularBatch
from lformer.nn.attention import Interpolation, LiquidGatedAttention
from lformer.nn.dropout import Dropout, draw_seed
from lformer.nn.embedder import Embedder
from lformer.nn.mixer import LiquidMixer, SwiGLU
from lformer.nn.query import Merged
from lformer.ops.dropout import Dropping
from lformer.ops.fused import WIDEST
from lformer.ops.fused.plan import (
    CAUSAL_HEAD_SIZES,
    HEAD_SIZES,
    LAYER_HEAD_SIZES,
    LAYER_STEP,
    LAYER_WIDEST,
    WIDTHS,
    Affine,
    MixerWeights,
    blocked,
    layers_blocked,
    layers_unsupported,
    rounding,
    unsupported,
)

if TYPE_CHECKING:
    from lformer.nn.lformer import LFormer, LFormerConfig

# Up to how many channels and outputs the fused kernels take the embedder and the head.
EMBEDDED, ANSWERED = 64, 1024
KNOWN = (LiquidGatedAttention, Interpolation, SwiGLU, nn.Linear, nn.LayerNorm, Dropout)  # parts of a fused mixer


class Path(NamedTuple):
    """How a model is computed, from the fastest path to the slowest.

    "fused model": the embedder, the mixers and, after a mean, the head are kernels. "fused mixers": all mixers run in
    one call of kernels, after the embedder as a module. "fused layers": all mixers run in one call of cuBLAS products
    with kernels between them, for any width. "fused operator": modules in which the operator runs as kernels. "plain":
    modules in plain PyTorch.
    """

    name: str
    reason: str = ""  # why it is not the fastest
    remedy: str = ""  # what would change that

    def __str__(self) -> str:
        why = self.reason + (f" ({self.remedy})" if self.remedy else "")
        return f"{self.name}: {why}" if why else self.name


class Obstacle(NamedTuple):
    """Why something is not fused, and what would change that."""

    reason: str
    remedy: str = ""


class Call(NamedTuple):
    """Everything about a call that determines its path, apart from the modules."""

    device: torch.device
    values: torch.dtype
    rows: torch.dtype  # embedded, as they enter the kernels
    autocast: bool
    shape: tuple[int, ...]  # of a row of values, (C,)
    empty: bool = False  # there are no rows
    queries: bool = False  # some rows only read
    continued: bool = False  # from one state to the next
    values_learn: bool = False  # they want a gradient
    deltas_learn: bool = False
    assumed: bool = False  # not made: a recent GPU and TF32 are taken for granted


def call_of(values: Tensor, deltas: Tensor, queries: bool = False, continued: bool = False) -> Call:
    """For values or rows (B, L, *C) and intervals (B, L)."""
    device = values.device
    autocast = torch.is_autocast_enabled(device.type)
    rows = torch.get_autocast_dtype(device.type) if autocast else values.dtype
    learn = torch.is_grad_enabled() and values.requires_grad
    return Call(
        device, values.dtype, rows, autocast, tuple(values.shape[2:]), 0 in values.shape, queries, continued, learn,
        deltas.requires_grad,
    )  # fmt: skip


def expected(config: LFormerConfig, training: bool = True) -> Path:
    """The path on a recent NVIDIA GPU with TF32, the trainer's default precision; depends only on the configuration."""
    from lformer.nn.lformer import LFormer

    with torch.device("meta"):
        model = LFormer(config).train(training)
    float32, shape = torch.float32, (24, 24) if config.embedder == "frames" else (config.inputs,)
    queries = config.answer == "query"
    return explain(model, Call(torch.device("cuda"), float32, float32, False, shape, queries=queries, assumed=True))


def choose(model: LFormer, call: Call) -> Path:
    """How `model` computes such a call; the name is "modules" if it is not fused."""
    if call.continued:
        return Path("modules", "a state is carried", "answer whole series in one call")
    mixers = model.blocks
    if (obstacle := _explain_all(mixers, call)) is not None:
        return Path("modules", *obstacle)
    if (obstacle := _explain_kernels(mixers, call)) is not None:
        wider = _explain_layers(mixers, call)
        return Path("fused layers", *obstacle) if wider is None else Path("modules", *wider)
    obstacle = _explain_embedder(model, call)
    return Path("fused model") if obstacle is None else Path("fused mixers", *obstacle)


def explain(model: LFormer, call: Call) -> Path:
    """Like `choose`, with the name of what runs inside the modules."""
    path = choose(model, call)
    return path._replace(name=_slow_name(model.blocks[0], call)) if path.name == "modules" else path


def _slow_name(mixer: LiquidMixer, call: Call) -> str:
    """Whether the operator inside the modules is fused."""
    time = mixer.time_mixer
    if not isinstance(time, LiquidGatedAttention):
        return "plain"
    size = time.width // time.heads
    if call.assumed:
        fused = time.backend == "fused" or (time.backend == "auto" and size <= WIDEST)
    else:
        q = torch.empty(1, 1, time.heads, size, dtype=call.rows, device=call.device)
        fused = ops.choose_backend(time.backend, q, q, q, q[..., 0]) == "fused"
    return "fused operator" if fused else "plain"


# --- what the kernels take ---


def explain_mixers(mixers: Sequence[LiquidMixer], call: Call) -> Obstacle | None:
    """Why the mixers do not run as a single call of kernels, see `mix`; None if they do."""
    return _explain_all(mixers, call) or _explain_kernels(mixers, call)


def explain_layers(mixers: Sequence[LiquidMixer], call: Call) -> Obstacle | None:
    """Why the mixers do not run as a single call of products and kernels, see `mix_layers`; None if they can."""
    return _explain_all(mixers, call) or _explain_layers(mixers, call)


def _explain_all(mixers: Sequence[LiquidMixer], call: Call) -> Obstacle | None:
    """Why the mixers run as modules, regardless of their shape."""
    for mixer in mixers:
        if obstacle := _explain_mixer(mixer, call):
            return obstacle
    if any(map(has_hooks, mixers)):
        return Obstacle("a mixer has hooks", "remove them")
    if len({_shape(mixer) for mixer in mixers}) > 1:
        return Obstacle("the mixers differ", "give all the same heads, hidden width, normalisation and dropout")
    return None


def _explain_mixer(mixer: LiquidMixer, call: Call) -> Obstacle | None:
    time, channel = mixer.time_mixer, mixer.channel_mixer
    if type(time) is not LiquidGatedAttention or type(channel) is not SwiGLU:
        return Obstacle(
            f"the mixers are {type(time).__name__} and {type(channel).__name__}",
            'time_mixer="liquid" and channel_mixer="swiglu" have kernels',
        )
    if time.backend not in ("auto", "fused"):
        return Obstacle(f"backend={time.backend!r}", 'backend="auto"')
    if time.backend == "auto" and call.device.type != "cuda":
        return Obstacle(f'it is on {call.device}; backend="auto" fuses on CUDA alone', "move model and batch to a GPU")
    if time.output_gate is None or time.gate is None:
        return Obstacle("an ablation takes away the output gate or the rate that the input sets")
    if changed := _changed(mixer):
        return Obstacle(changed, "the kernels know the modules as they are built")
    if call.deltas_learn:
        return Obstacle("deltas require a gradient")
    if call.values != time.query.weight.dtype and not call.autocast:
        return Obstacle(f"rows are {call.values} and the parameters are {time.query.weight.dtype}", "convert either")
    if _share(mixer.dropout) > 0 and torch.compiler.is_compiling():
        return Obstacle("a compiler sees operators that drop nothing", "dropout=0, or train without torch.compile")
    if not _share(mixer.dropout) < 1:
        return Obstacle("dropout leaves nothing", "dropout below 1")
    return None


def _explain_kernels(mixers: Sequence[LiquidMixer], call: Call) -> Obstacle | None:
    """Why mixers that could be fused do not run as kernels alone."""
    time = mixers[0].liquid
    size = time.width // time.heads
    if time.backend == "auto" and time.causal and size not in CAUSAL_HEAD_SIZES:
        return Obstacle(f'causal heads of {size}; "auto" fuses those of {CAUSAL_HEAD_SIZES}', 'backend="fused"')
    if call.queries:
        return Obstacle("some rows only read", 'answer="series" or "step" has faster kernels')
    if obstacle := None if call.assumed else _explain_machine(call):
        return obstacle
    if reason := unsupported(time.width, time.heads, time.causal, time.gate_norm):
        return Obstacle(reason, f'widths {WIDTHS}, heads of {HEAD_SIZES}, "sequence" or causal "prefix" have kernels')
    return None


def _explain_layers(mixers: Sequence[LiquidMixer], call: Call) -> Obstacle | None:
    """Why mixers that could be fused do not run as products and kernels."""
    time = mixers[0].liquid
    if torch.compiler.is_compiling():
        return Obstacle("a compiler sees modules and operators", f"widths {WIDTHS} have operators of whole mixers")
    if not call.assumed and (reason := layers_blocked(call.device, call.empty)):
        return Obstacle(reason)
    if call.rows not in ((torch.float32, torch.bfloat16) if call.device.type == "cuda" else (torch.float32,)):
        return Obstacle(f"rows are {str(call.rows).removeprefix('torch.')}", "float32 and bfloat16 have kernels")
    if reason := layers_unsupported(time.width, time.heads, time.gate_norm):
        sizes = f"multiples of {LAYER_STEP} up to {LAYER_WIDEST}, heads of {LAYER_HEAD_SIZES}"
        return Obstacle(reason, f'widths that are {sizes}, "sequence" or "prefix" have kernels')
    return None


def _explain_machine(call: Call) -> Obstacle | None:
    """Why the kernels do not support such rows on this machine."""
    if reason := blocked(call.device, call.empty):
        return Obstacle(reason)
    if rounding(call.rows, call.device.type == "cuda") is not None:
        return None
    if call.rows == torch.float32:
        return Obstacle("float32 products are exact here", 'torch.set_float32_matmul_precision("high") allows TF32')
    return Obstacle(f"rows are {str(call.rows).removeprefix('torch.')}", "float32 (TF32) and bfloat16 have kernels")


def _shape(mixer: LiquidMixer) -> tuple[bool, str, int, int, float]:
    """What several mixers in one kernel call must have in common, apart from the width."""
    assert isinstance(mixer.channel_mixer, SwiGLU)
    liquid = mixer.liquid
    return liquid.causal, liquid.gate_norm, liquid.heads, mixer.channel_mixer.down.in_features, _share(mixer.dropout)


def _changed(mixer: LiquidMixer) -> str:
    """A user's change to a mixer that the kernels would ignore; empty if there is none."""
    if type(mixer) is not LiquidMixer:
        return f"the mixer is a {type(mixer).__name__}"
    if not all(map(_familiar, mixer._modules.values())):
        return next(filter(None, starmap(_explain_unknown, mixer._modules.items())))
    norms = (mixer.time_norm, mixer.channel_norm)
    if any(norm.eps != 1e-5 or norm.weight is None or norm.bias is None for norm in norms):
        return "a layer norm is not the usual one"
    return ""


def _familiar(module: nn.Module | None) -> bool:
    """Whether the kernels support this part of a mixer; checked on every call, so it must be fast."""
    if module is None or type(module) not in KNOWN or has_hooks(module):
        return False
    return all(map(_familiar, module._modules.values()))


def _explain_unknown(name: str, module: nn.Module | None) -> str:
    """Why a part of a mixer is not `_familiar`; empty if it is."""
    if module is None or type(module) not in KNOWN:
        return f"{name} is a {type(module).__name__}"
    if has_hooks(module):
        return f"{name} has hooks"
    return next(
        filter(None, (_explain_unknown(f"{name}.{part}", inner) for part, inner in module._modules.items())), ""
    )


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module does more than its `forward`."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def _explain_embedder(model: LFormer, call: Call) -> Obstacle | None:
    """Why the embedder runs as a module before fused mixers; None if their kernels embed the rows."""
    embedder = model.embedder
    if torch.compiler.is_compiling():
        return Obstacle("a compiler sees modules and operators")
    if call.values_learn:
        return Obstacle("values require a gradient")
    if type(model.dropout) is not Dropout or has_hooks(model.dropout) or not _share(model.dropout) < 1:
        return Obstacle("the dropout of the embedded rows is not the usual one")
    if type(embedder) is not Embedder or embedder.time is not None or has_hooks(embedder):
        return Obstacle("the embedder does more than a linear map", 'embedder="linear", time_embedding="none"')
    if not model.rows.plain or model.persistence is not None or model.config.distribution != "point":
        advice = 'rows="values", persistence="none", distribution="point"'
        return Obstacle("rows or answers are more than values", advice)
    if call.shape != embedder.shape or len(call.shape) > 1 or call.shape[0] > EMBEDDED:
        return Obstacle(f"rows have the shape {call.shape}", f"up to {EMBEDDED} channels have a kernel")
    reason = _explain_linear(embedder.value, (model.config.width, call.shape[0]), call)
    return Obstacle(f"the embedder {reason}", 'embedder="linear"') if reason else None


def explain_head(model: LFormer, call: Call) -> str:
    """Why the head of a fused model runs as a module; empty if the kernel for the mean of the rows computes it too."""
    if not _wants_mean(model):
        return "the head sees more than a mean"
    if type(model.head) is not nn.Sequential or len(model.head) != 1 or has_hooks(model.head):
        return "the head is not a single linear map"
    if model.config.outputs > ANSWERED:
        return f"the head has {model.config.outputs} outputs"
    reason = _explain_linear(model.head[0], (model.config.outputs, model.config.width), call)
    return f"the head {reason}" if reason else ""


def _explain_linear(module: nn.Module, shape: tuple[int, int], call: Call) -> str:
    """Why a kernel cannot compute this map in such a call; empty if it can. Its weight must have the given shape."""
    if type(module) is not nn.Linear or module.weight.shape != shape or module.bias is None or has_hooks(module):
        return f"is not a bare linear map with a weight of {shape}"
    known, weight = (torch.float32, torch.bfloat16), module.weight
    same = weight.dtype == call.values or call.autocast
    here = weight.device == call.device or weight.is_meta  # of a model that is asked about alone
    if not same or weight.dtype not in known or call.values not in known or not here:
        return f"has weights of {weight.dtype} on {weight.device} for {call.values} on {call.device}"
    return ""


# --- running it ---


def answer(model: LFormer, batch: IrregularBatch, call: Call) -> Tensor:
    """The output of a "fused model", from the values on."""
    from lformer.ops.fused.mixer import answer as run  # imports triton

    liquid, layers = model.blocks[0].liquid, [kernel_weights(mixer) for mixer in model.blocks]
    embedder, head = _affine(model.embedder.value), None
    if not explain_head(model, call):
        head = _affine(model.head[0])
        if _learning(*head) and not _learning(*embedder, *(p for w in layers for p in w)):
            head = None  # a head that learns alone needs nothing of what is kept for the others
    x = run(
        batch.values, model.intervals(batch, None), embedder, layers, liquid.causal, liquid.gate_norm, batch.lengths,
        call.rows, _wants_mean(model), head, _dropping(model.blocks, batch.values.device, _share(model.dropout)),
    )  # fmt: skip
    return _answers(model, x, batch.lengths) if head is None else x


def answer_rows(model: LFormer, x: Tensor, deltas: Tensor, lengths: Tensor) -> Tensor:
    """The output of "fused mixers", from the embedded rows on; the call also averages the rows if needed."""
    return _answers(model, mix(model.blocks, x, deltas, lengths, pool=_wants_mean(model)), lengths)


def mix(
    mixers: Sequence[LiquidMixer], x: Tensor, deltas: Tensor, lengths: Tensor | None = None, pool: bool = False
) -> Tensor:
    """Mixers to which `explain_mixers` has no objection: (B, L, D) -> (B, L, D), or the mean over valid rows (B, D)."""
    from lformer.ops.fused.mixer import stack  # imports triton

    liquid, layers, device = mixers[0].liquid, [kernel_weights(mixer) for mixer in mixers], x.device.type
    rows = x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
    dropping = _dropping(mixers, x.device)
    return stack(rows, deltas, layers, liquid.causal, liquid.gate_norm, lengths, pool, dropping).to(x.dtype)


def answer_layers(
    model: LFormer, x: Tensor, deltas: Tensor, lengths: Tensor, is_query: Tensor | None, merged: Merged | None
) -> Tensor:
    """The output of "fused layers", from the embedded rows on; the call also averages the rows if needed."""
    x = mix_layers(model.blocks, x, deltas, is_query, lengths if _wants_mean(model) else None)
    return _answers(model, x, lengths) if merged is None else model.head(model.at_queries(x, merged, None)[0])


def mix_layers(
    mixers: Sequence[LiquidMixer],
    x: Tensor,
    deltas: Tensor,
    is_query: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Mixers to which `explain_layers` has no objection: (B, L, D) -> (B, L, D), or the mean over valid rows (B, D).

    is_query: (B, L) bool, rows that only read. lengths: (B,) number of valid rows, if their mean is needed.
    """
    from lformer.ops.fused.layers import stack  # imports triton

    liquid, layers, device = mixers[0].liquid, [kernel_weights(mixer) for mixer in mixers], x.device.type
    rows = x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
    dropping = _dropping(mixers, x.device)
    return stack(rows, deltas, layers, liquid.causal, liquid.gate_norm, is_query, lengths, dropping).to(x.dtype)


def fill_intervals(model: LFormer, batch: IrregularBatch) -> Tensor | None:
    """(B, L) intervals with the first one of every series filled in, see `LFormerConfig.first_interval`, in one launch.

    None if the kernel does not support them.
    """
    deltas, backend = batch.deltas, model.config.backend
    wanted = deltas.is_cuda if backend == "auto" else backend == "fused"
    if not wanted or deltas.dtype != torch.float32 or deltas.requires_grad or blocked(deltas.device, 0 in deltas.shape):
        return None
    from lformer.ops.fused.mixer import first_intervals, fused_intervals  # imports triton

    typical = model.config.first_interval == "typical"
    run = fused_intervals if torch.compiler.is_compiling() else first_intervals
    by_mean = typical and not model.config.causal
    return run(deltas, batch.times, batch.lengths, model.first_interval.detach(), typical, by_mean)


def kernel_weights(mixer: LiquidMixer) -> MixerWeights:
    """The parameters of a mixer in the order of the kernels."""
    # Dictionaries, not attributes: a module looks for those in three places, which takes longer than a kernel.
    block: dict[str, Any] = mixer._modules
    time, channel = block["time_mixer"]._modules, block["channel_mixer"]._modules
    theta, heads = block["time_mixer"].mu.theta, block["time_mixer"].heads
    return MixerWeights(
        *_pair(block["time_norm"]), *_pair(time["query"]), *_pair(time["key"]), *_pair(time["value"]),
        *_pair(time["output_gate"]), *_pair(time["gate"]),
        theta if len(theta) == heads else theta.expand(heads),
        time["mix"]._parameters["weight"], *_pair(block["channel_norm"]),
        channel["up"]._parameters["weight"], channel["down"]._parameters["weight"],
    )  # fmt: skip


def _dropping(mixers: Sequence[LiquidMixer], device: torch.device, rows: float = 0.0) -> Dropping | None:
    """What a call drops, including embedded rows if it computes them; None, without drawing, if nothing is dropped."""
    branches = _share(mixers[0].dropout)
    return Dropping(draw_seed(device), branches, rows) if branches or rows else None


def _share(dropout: Dropout) -> float:
    """The current dropout rate."""
    return dropout.p if dropout.training else 0.0


def _pair(module: nn.Module) -> tuple[Any, Any]:
    """Weight and bias."""
    return module._parameters["weight"], module._parameters["bias"]


def _affine(linear: nn.Module) -> Affine:
    assert isinstance(linear, nn.Linear)
    return Affine(linear.weight, linear.bias)


def _learning(*parameters: Tensor) -> bool:
    return torch.is_grad_enabled() and any(p.requires_grad for p in parameters)


def _wants_mean(model: LFormer) -> bool:
    return model.config.answer == "series" and model.pool.kind == "mean"


def _answers(model: LFormer, x: Tensor, lengths: Tensor) -> Tensor:
    """The output, from the rows of the last mixer or, if the head only needs it, from their mean."""
    if model.config.answer == "series" and not _wants_mean(model):
        x = model.pool(model.pool.add(model.pool.start(len(x), x), x, lengths), lengths)
    return model.head(x)
