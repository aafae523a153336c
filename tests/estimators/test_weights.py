"""The weights of a saved model: what cannot be theirs is refused by name, and before it can take time or memory."""

import json
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from estimators.every_estimator import fitted
from estimators.saved_models import changed, resealed, with_weights
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes

from lformer import LFormerClassifier, LFormerRegressor
from lformer.estimators import load
from lformer.nn.ensemble import Ensemble


@pytest.fixture(scope="module")
def model() -> LFormerClassifier:
    return fitted(LFormerClassifier)


@pytest.fixture
def saved(model: LFormerClassifier, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_weights_must_fit_in_name_shape_and_type(saved: Path) -> None:
    content = (saved / "model.safetensors").read_bytes()
    weights = from_bytes(content)
    name, tensor = next(iter(weights.items()))
    for wrong in (
        {key: value.double() for key, value in weights.items()},
        {key: value for key, value in weights.items() if key != name},
        {**weights, "more": torch.zeros(1)},
        {**weights, name: tensor[None]},
    ):
        with_weights(saved, as_bytes(wrong))
        with pytest.raises(ValueError, match=r"model\.safetensors does not fit estimator\.json beside it in \d+"):
            load(saved)
    with_weights(saved, content)
    load(saved)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.bfloat16, torch.complex64, torch.uint16, torch.bool])
def test_unusual_types_are_named(saved: Path, kind: torch.dtype) -> None:
    weights = from_bytes((saved / "model.safetensors").read_bytes())
    with_weights(saved, as_bytes({**weights, "first_interval": torch.ones((), dtype=kind)}))
    with pytest.raises(ValueError, match=r"model\.safetensors does not .*first_interval must be \(\) F32 and is \(\) "):
        load(saved)


def laid_out(header: Any, data: bytes = b"") -> bytes:
    """A file in the safetensors layout with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


F32 = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        b"\0" * 8,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 3) + b"{}",
        laid_out(b"\xff\xfe{}"),
        laid_out(b"[" * 100_000),
        laid_out([]),
        laid_out("text"),
        laid_out({"a": 3}),
        laid_out({"a": {"dtype": "F32"}}),
        laid_out({"a": {**F32, "shape": 7}}),
        laid_out(b'{"a": %b, "a": %b}' % (json.dumps(F32).encode(), json.dumps(F32).encode()), bytes(8)),
    ],
    ids=range(13),
)
def test_a_header_that_makes_no_sense_is_named(saved: Path, content: bytes) -> None:
    with_weights(saved, content)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: (a|its) header"):
        load(saved)


def test_tensors_that_overlap_are_named(saved: Path) -> None:
    content = (saved / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    one, two = [name for name, about in header.items() if about["shape"] == [8]][:2]
    header[one]["data_offsets"] = header[two]["data_offsets"]
    with_weights(saved, laid_out(header, content[8 + size :]))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged \("):
        load(saved)
    header[one]["data_offsets"] = [2**70, 2**71]
    with_weights(saved, laid_out(header, content[8 + size :]))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged \("):
        load(saved)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("head.0.weight", torch.nan, "head.0.weight is not finite"),
        ("mixers.0.time_norm.bias", -torch.inf, "mixers.0.time_norm.bias is not finite"),
        ("rows.shift", torch.inf, "rows.shift is not finite"),
        ("rows.scale", 0.0, "rows.scale is not greater than 0"),
        ("rows.scale", -1.0, "rows.scale is not greater than 0"),
        ("rows.scale", torch.nan, "rows.scale is not finite"),
        ("rows.low", torch.nan, "rows has a low that is above its high, or not a number"),
        ("rows.high", torch.nan, "rows has a low that is above its high, or not a number"),
        ("rows.low", torch.inf, "rows has a low that is above its high, or not a number"),
        ("rows.interval", 0.0, "rows.interval is not greater than 0"),
        ("rows.span", -3.0, "rows.span is not greater than 0"),
        ("first_interval", 0.0, "first_interval is not greater than 0"),
    ],
)
@pytest.mark.parametrize("members", [0, 2])
def test_weights_of_no_fitted_model_are_named(
    model: LFormerClassifier, tmp_path: Path, name: str, value: float, reason: str, members: int
) -> None:
    several = copy(model)
    if members:
        several.model_ = Ensemble([model.model_, deepcopy(model.model_)])
        name = f"members.1.{name}"
    several.save(tmp_path / "m")
    weights = from_bytes((tmp_path / "m/model.safetensors").read_bytes())
    weights[name].view(-1)[0] = value
    with_weights(tmp_path / "m", as_bytes(weights))
    with pytest.raises(
        ValueError, match=rf"model\.safetensors does not hold the weights of a fitted model: .*{reason}"
    ):
        load(tmp_path / "m")


def test_bounds_may_be_infinite(saved: Path) -> None:
    weights = from_bytes((saved / "model.safetensors").read_bytes())
    weights["rows.low"].fill_(-torch.inf)
    weights["rows.high"].fill_(torch.inf)
    with_weights(saved, as_bytes(weights))
    assert torch.equal(load(saved).model_.rows.high, torch.full((2,), torch.inf))


# -- what would take forever, or all memory


@contextmanager
def bounded() -> Iterator[None]:
    """At most a gibibyte more than now, of which threads that start may reserve most; and a generous time."""
    start = time.monotonic()
    if sys.platform == "linux":
        import resource

        before = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    try:
        yield
    finally:
        if sys.platform == "linux":
            resource.setrlimit(resource.RLIMIT_AS, before)
    assert time.monotonic() - start < 10


LARGE = [
    {"depth": 10**9},
    {"depth": 2**62},
    {"head_layers": 10**9},
    {"embedder_layers": 10**9},
    {"neighbours": 10**9},
    {"width": 10**6},
    {"width": 10**9},
    {"width": 10**9, "heads": 10**9},
    {"width": 2**62},
    {"heads": 10**9},
    {"hidden": 10**12},
    {"hidden": 7000},
    {"width": 6000, "heads": 6000, "hidden": 7000},
    {"heads": 3},
]


@pytest.mark.parametrize("change", LARGE, ids=str)
def test_a_config_of_a_model_that_is_too_large_is_refused_at_once(saved: Path, change: dict[str, int]) -> None:
    load(saved)
    for key, value in change.items():
        changed(saved, "config", key, to=value)
    with bounded(), pytest.raises(ValueError, match=r"does not fit|has a config of an impossible model: heads"):
        load(saved)


@pytest.mark.parametrize("members", [1, 2, 3, 10**9, 2**62])
def test_too_many_members_are_refused_at_once(saved: Path, members: int) -> None:
    load(saved)
    resealed(saved, {"members": members})
    with bounded(), pytest.raises(ValueError, match=r"model\.safetensors does not fit estimator\.json beside it"):
        load(saved)


def test_many_outputs_are_refused_at_once(tmp_path: Path) -> None:
    fitted(LFormerRegressor).save(tmp_path / "m")
    load(tmp_path / "m")
    changed(tmp_path / "m", "config", "outputs", to=2**62)
    with bounded(), pytest.raises(ValueError, match="shift and scale must have 4611686018427387904 numbers"):
        load(tmp_path / "m")


@pytest.mark.parametrize("dtype", ["<U500000000", "|S500000000", "|V500000000", "(99999,99999)f8", "f8" + ",f8" * 999])
def test_the_width_of_a_type_is_not_believed(saved: Path, dtype: str) -> None:
    load(saved)
    changed(saved, "fitted", "classes_", "dtype", to=dtype)
    with (
        bounded(),
        pytest.raises(ValueError, match=r"estimator\.json does not describe .* which is not a valid array type"),
    ):
        load(saved)


def test_one_long_text_among_many_is_not_too_much_for_memory(saved: Path) -> None:
    load(saved)
    classes = {"dtype": "str", "values": ["x" * 10**6, *(str(i) for i in range(10**5))]}
    changed(saved, "fitted", "classes_", to=classes)  # 400 GB, if every entry is as wide as the longest
    with bounded(), pytest.raises(ValueError, match="classes_ has 100001 texts of up to 1000000 characters"):
        load(saved)


def test_a_description_of_a_hundred_megabytes_is_not_read(saved: Path) -> None:
    load(saved)
    with (saved / "estimator.json").open("wb") as stream:
        stream.write(b'{"a": [')
        stream.truncate(10**8)
    with bounded(), pytest.raises(ValueError, match=r"estimator\.json holds more than 16,777,216 bytes"):
        load(saved)


def test_weights_of_gigabytes_are_not_read(saved: Path) -> None:
    """A sparse file that says it is the right one."""
    content = (saved / "model.safetensors").read_bytes()
    with (saved / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", 2**31))
        stream.truncate(2**32)
    with bounded(), pytest.raises(ValueError, match=r"model\.safetensors is damaged, or not the file"):
        load(saved)
    resealed(saved, {"weights": {"file": "model.safetensors", "sha256": "0" * 64, "bytes": 2**32}})
    with (
        bounded(),
        pytest.raises(ValueError, match=r"model\.safetensors is damaged: a header of 2,147,483,648"),
    ):
        load(saved)
    with_weights(saved, content)
    load(saved)


@pytest.mark.parametrize("depth", [*range(880, 1010, 10), *range(970, 1000), 10**6])
def test_deep_nesting_is_damage(saved: Path, depth: int) -> None:
    """Wherever the recursion ends: in reading, in comparing with the seal, or nowhere."""
    (saved / "estimator.json").write_text('{"sha256": "0", "a": ' + "[" * depth + "]" * depth + "}")
    with bounded(), pytest.raises(ValueError, match=r"estimator\.json is damaged"):
        load(saved)
