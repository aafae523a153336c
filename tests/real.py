"""The real data, for those who have them: `LFORMER_DATA` names the folder."""

import os
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = os.environ.get("LFORMER_DATA")


def real(name: str) -> bool:
    """Whether a raw file is at hand."""
    return FOLDER is not None and (Path(FOLDER) / name).is_file()


def raw(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Its arrays."""
    assert FOLDER is not None
    with np.load(Path(FOLDER) / name, allow_pickle=False) as file:
        return dict(file)
