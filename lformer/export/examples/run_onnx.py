"""Answers of the exported model for example.json, or a file like it. Needs numpy and onnxruntime alone."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def main(here: Path, file: Path) -> None:
    about, given = json.loads((here / "export.json").read_text()), json.loads(file.read_text())
    batch, step = about["graphs"]["batch"], about["graphs"].get("step")
    inputs = {port["name"]: np.array(given["inputs"][port["name"]], port["dtype"]) for port in batch["inputs"]}
    session = onnxruntime.InferenceSession(here / batch["file"], providers=["CPUExecutionProvider"])
    answers = session.run(["answers"], inputs)[0]  # missing values are NaN; null becomes that
    found = {"answers": answers.tolist(), "classes": about["classes"]}

    if step is not None:  # the first series once more, row by row
        session = onnxruntime.InferenceSession(here / step["file"], providers=["CPUExecutionProvider"])
        shapes = {port["name"]: [1 if axis == "batch" else axis for axis in port["axes"]] for port in step["state"]}
        state: dict[str, Any] = {
            p["name"]: np.array(np.broadcast_to(np.array(p["initial"], p["dtype"]), shapes[p["name"]]))
            for p in step["state"]
        }
        found["step_answers"] = []
        for n in range(inputs["lengths"][0]):
            row = {name: inputs[name][:1, n] for name in ("values", "times", "marks") if name in inputs}
            row |= {name: inputs[name][:1] for name in ("static",) if name in inputs}
            answer, *after = session.run(["answers", *(p["next"] for p in step["state"])], row | state)
            state = {p["name"]: tensor for p, tensor in zip(step["state"], after, strict=True)}
            found["step_answers"].append(answer[0].tolist())
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(__file__).parent, Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "example.json"))
