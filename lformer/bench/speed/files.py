"""Records on the disk: the whole file or the one before, never half of it."""

import json
import os
from pathlib import Path
from typing import Any


def write(record: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(part, path)
