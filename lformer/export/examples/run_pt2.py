"""Answers of the exported model for example.json, or a file like it. Needs torch alone."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch


def tensor(nested: Any, dtype: str) -> torch.Tensor:
    """A tensor of nested lists; null is NaN."""
    text = json.dumps(nested).replace("null", "NaN")
    return torch.tensor(json.loads(text), dtype=getattr(torch, dtype))


def nested(x: Any) -> Any:
    """Lists of numbers, null for what is not finite."""
    if isinstance(x, torch.Tensor):
        x = x.tolist()
    return [nested(one) for one in x] if isinstance(x, list) else x if math.isfinite(x) else None


@torch.no_grad()
def main(here: Path, file: Path) -> None:
    about, given = json.loads((here / "export.json").read_text()), json.loads(file.read_text())["inputs"]
    batch, step, ask = (about["graphs"].get(name) for name in ("batch", "step", "ask"))
    axes = {port["name"]: port["axes"] for port in batch["inputs"]}
    inputs = {port["name"]: tensor(given[port["name"]], port["dtype"]) for port in batch["inputs"]}
    first = {name: x[:1] if "batch" in axes[name] else x for name, x in inputs.items()}

    told = torch.export.load(here / batch["file"]).module()(*inputs.values())
    found: dict[str, Any] = {port["name"]: nested(x) for port, x in zip(batch["outputs"], told, strict=True)}
    found["classes"] = about["classes"]

    if step is not None:  # the first series once more, row by row
        program, count = torch.export.load(here / step["file"]).module(), len(step["outputs"])
        state = {
            p["name"]: tensor(p["initial"], p["dtype"]).expand([1 if axis == "batch" else axis for axis in p["axes"]])
            for p in step["state"]
        }
        found |= {f"step_{port['name']}": [] for port in step["outputs"]}
        for n in range(int(inputs["lengths"][0])):
            row = {name: x[:, n] if "length" in axes[name] else x for name, x in first.items()}
            out = program(*(row[port["name"]] for port in step["inputs"]), *state.values())
            state = dict(zip(state, out[count:], strict=True))
            for port, x in zip(step["outputs"], out[:count], strict=True):
                found[f"step_{port['name']}"].append(nested(x[0]))

    if ask is not None:  # at its query times, from where it stands; the state stays as it is
        program = torch.export.load(here / ask["file"]).module()
        told = program(*((first | state)[port["name"]] for port in (*ask["inputs"], *ask["state"])))
        found |= {f"ask_{port['name']}": nested(x[0]) for port, x in zip(ask["outputs"], told, strict=True)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(__file__).parent, Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "example.json"))
