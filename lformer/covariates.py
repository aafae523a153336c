"""Encode static covariates (age, sex, site etc., one row per series) as numbers, as in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]
Coding = tuple[float, float] | list[str]  # mean and standard deviation of a number, or the categories of a text


@dataclass(frozen=True)
class Covariates:
    """The encoding of static covariates, fitted on training series.

    Attributes:
        columns: column -> (mean, standard deviation) of a number, or the categories of a text.

    Example:
        >>> import pandas as pd
        >>> coding = Covariates.fit(pd.DataFrame({"age": [60.0, 80.0], "unit": ["a", "b"]}))
        >>> coding.encode(pd.DataFrame({"age": [None], "unit": ["b"]})).tolist()
        [[0.0, 0.0, 0.0, 1.0]]
    """

    columns: Mapping[str, Coding] = field(default_factory=dict)

    @classmethod
    def fit(cls, table: pd.DataFrame | None) -> Covariates:
        """Fit to the rows of the training series; without a table there are no covariates."""
        if table is None:
            return cls()
        import pandas as pd

        found: dict[str, Coding] = {}
        for name in table.columns:
            if pd.api.types.is_numeric_dtype(table[name]):
                number = table[name].to_numpy(np.float64, na_value=np.nan)
                number = number[np.isfinite(number)]
                spread = float(number.std()) if len(number) else 1.0
                found[str(name)] = (float(number.mean()) if len(number) else 0.0, spread or 1.0)
            else:
                found[str(name)] = sorted(table[name].dropna().astype(str).unique().tolist())
        return cls(found)

    @property
    def width(self) -> int:
        """S, number of encoded features per series."""
        return sum(2 if isinstance(coding, tuple) else len(coding) for coding in self.columns.values())

    def encode(self, table: pd.DataFrame | None) -> Array:
        """(n, S) float32: a standardised number and whether it is known, or the one-hot encoding of a category."""
        missing = [name for name in self.columns if table is None or name not in table.columns]
        if table is None or missing:
            raise ValueError(
                f"the model was trained with the static covariates {', '.join(self.columns)}; missing here: {missing}."
            )
        parts: list[Array] = []
        for name, coding in self.columns.items():
            if isinstance(coding, tuple):
                number = _as_numbers(table[name], name)
                known = np.isfinite(number)
                parts += [np.where(known, (number - coding[0]) / coding[1], 0.0), known]
            else:
                text = table[name].astype(str).to_numpy()
                parts += [text == category for category in coding]
        return np.column_stack(parts).astype(np.float32) if parts else np.zeros((len(table), 0), np.float32)


def _as_numbers(column: pd.Series[Any], name: str) -> Array:
    """(n,) float64 of a covariate that was numeric in training."""
    try:
        return column.to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the static covariate {name!r} was a number in training, and now is not: {error}.") from error
