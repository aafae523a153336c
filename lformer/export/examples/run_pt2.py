"""Answers of the exported model for example.json, or a file like it. Needs torch alone."""

import json
import sys
from pathlib import Path
from typing import Any

import torch


def tensor(nested: Any, dtype: str) -> torch.Tensor:
    """A tensor of nested lists; null is NaN."""
    text = json.dumps(nested).replace("null", "NaN")
    return torch.tensor(json.loads(text), dtype=getattr(torch, dtype))


@torch.no_grad()
def main(here: Path, file: Path) -> None:
    about, given = json.loads((here / "export.json").read_text()), json.loads(file.read_text())
    batch, step = about["graphs"]["batch"], about["graphs"].get("step")
    inputs = {port["name"]: tensor(given["inputs"][port["name"]], port["dtype"]) for port in batch["inputs"]}
    answers = torch.export.load(here / batch["file"]).module()(*inputs.values())
    found = {"answers": answers.tolist(), "classes": about["classes"]}

    if step is not None:  # the first series once more, row by row
        program = torch.export.load(here / step["file"]).module()
        state = [
            tensor(port["initial"], port["dtype"]).expand([1 if axis == "batch" else axis for axis in port["axes"]])
            for port in step["state"]
        ]
        found["step_answers"] = []
        for n in range(int(inputs["lengths"][0])):
            row = {name: x[:1] if name == "static" else x[:1, n] for name, x in inputs.items() if name != "lengths"}
            answer, *state = program(*(row[port["name"]] for port in step["inputs"]), *state)
            found["step_answers"].append(answer[0].tolist())
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(__file__).parent, Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "example.json"))
