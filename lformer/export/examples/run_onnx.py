"""Answers of the exported model for example.json, or a file like it. Needs numpy and onnxruntime alone."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def names(ports: list[dict[str, Any]]) -> list[str]:
    return [port["name"] for port in ports]


def nested(array: Any) -> Any:
    """Lists of numbers, null for what is not finite."""
    nothing: Any = None
    return np.where(np.isfinite(array), array, nothing).tolist()


def main(here: Path, file: Path) -> None:
    about, given = json.loads((here / "export.json").read_text()), json.loads(file.read_text())["inputs"]
    batch, step, ask = (about["graphs"].get(name) for name in ("batch", "step", "ask"))
    axes = {port["name"]: port["axes"] for port in batch["inputs"]}
    inputs = {port["name"]: np.array(given[port["name"]], port["dtype"]) for port in batch["inputs"]}  # null is NaN
    first = {name: x[:1] if "batch" in axes[name] else x for name, x in inputs.items()}

    session = onnxruntime.InferenceSession(here / batch["file"], providers=["CPUExecutionProvider"])
    told = names(batch["outputs"])
    found = dict(zip(told, map(nested, session.run(told, inputs)), strict=True)) | {"classes": about["classes"]}

    if step is not None:  # the first series once more, row by row
        session = onnxruntime.InferenceSession(here / step["file"], providers=["CPUExecutionProvider"])
        shapes = {port["name"]: [1 if axis == "batch" else axis for axis in port["axes"]] for port in step["state"]}
        state: dict[str, Any] = {
            p["name"]: np.array(np.broadcast_to(np.array(p["initial"], p["dtype"]), shapes[p["name"]]))
            for p in step["state"]
        }
        told, after = names(step["outputs"]), [port["next"] for port in step["state"]]
        found |= {f"step_{name}": [] for name in told}
        for n in range(inputs["lengths"][0]):
            row = {name: first[name][:, n] if "length" in axes[name] else first[name] for name in names(step["inputs"])}
            out = dict(zip([*told, *after], session.run([*told, *after], row | state), strict=True))
            state = {port["name"]: out[port["next"]] for port in step["state"]}
            for name in told:
                found[f"step_{name}"].append(nested(out[name][0]))

    if ask is not None:  # at its query times, from where it stands; the state stays as it is
        session = onnxruntime.InferenceSession(here / ask["file"], providers=["CPUExecutionProvider"])
        told = names(ask["outputs"])
        asked = {name: first[name] for name in names(ask["inputs"])} | {
            name: state[name] for name in names(ask["state"])
        }
        found |= {f"ask_{name}": nested(x[0]) for name, x in zip(told, session.run(told, asked), strict=True)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(__file__).parent, Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "example.json"))
