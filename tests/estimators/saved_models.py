"""Folders of saved models as somebody may have made them by hand: wrong inside, but sealed as if they were right."""

import hashlib
import json
from pathlib import Path
from typing import Any

from lformer.sealed import json_text


def resealed(folder: Path, change: dict[str, Any]) -> None:
    """Set entries of estimator.json and seal it again."""
    file = folder / "estimator.json"
    found = json.loads(file.read_text(encoding="utf-8")) | change
    found.pop("sha256")
    file.write_text(json_text(found), encoding="utf-8")


def changed(folder: Path, *path: Any, to: Any) -> None:
    """Set one entry of estimator.json, however deep, and seal it again; None takes it out."""
    file = folder / "estimator.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    del found["sha256"]
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    file.write_text(json_text(found), encoding="utf-8")


def with_weights(folder: Path, content: bytes) -> None:
    """Exchange the weights, and let estimator.json name the new ones."""
    file = json.loads((folder / "estimator.json").read_text(encoding="utf-8"))["weights"]["file"]
    (folder / file).write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    resealed(folder, {"weights": {"file": file, "sha256": sha256, "bytes": len(content)}})
