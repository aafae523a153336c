"""Summary features of series, which ignore the order of the rows: the usual baseline for a sequence model."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lformer.estimators.inputs import as_panel, check_width, match_channels
from lformer.panel import Array, Panel
from lformer.summaries import KINDS, summarise


class Summaries(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn series into a table of summary features and covariates, (n, 6 C + S).

    The features of each channel are its count, mean, last, least and greatest value, and slope. If a channel is never
    observed in a series, they are NaN except for the count; so is the slope if there is a single time stamp. Text
    covariates become one column for each category seen in `fit`.

    Example:
        >>> import numpy as np
        >>> from lformer import Panel
        >>> X = Panel.from_list([([0.0, 1.0, 4.0], [[1.0], [np.nan], [9.0]])])
        >>> Summaries().fit_transform(X).tolist()
        [[2.0, 5.0, 9.0, 1.0, 9.0, 2.0]]
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the names of the channels and categories; nothing else is fitted."""
        panel, wide = as_panel(X)
        self.channels_ = panel.channels
        self.categories_ = _categories(panel)
        self.n_features_in_ = len(panel.channels) if wide is None else wide
        self._is_table = wide is not None
        return self

    def transform(self, X: Any) -> Array:
        """(n, 6 C + S) float64 table of features."""
        check_is_fitted(self, "channels_")
        panel, wide = as_panel(X)
        check_width(self, wide)
        panel = match_channels(panel, self.channels_).compact()
        owner = np.repeat(np.arange(len(panel)), panel.lengths)
        values = panel.values if panel.scale == 1.0 else panel.values * panel.scale
        found = summarise(owner, values, panel.observed, panel.times, len(panel))
        return np.concatenate([found.reshape(len(panel), -1), self._covariates(panel)], axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns, such as "HR mean"."""
        check_is_fitted(self, "channels_")
        names = [f"{channel} {kind}" for channel in self.channels_ for kind in KINDS]
        for name, found in self.categories_.items():
            names += [name] if found is None else [f"{name} {category}" for category in found]
        return np.array(names, dtype=object)

    def _covariates(self, panel: Panel) -> Array:
        table, columns = panel.static, []
        for name, found in self.categories_.items():
            if table is None or name not in table.columns:
                raise ValueError(f"the covariate {name!r} was there in fit; give it in Panel.from_long(..., static=).")
            if found is None:
                columns.append(table[name].to_numpy(np.float64, na_value=np.nan))
            else:
                text = table[name].astype(str).to_numpy()
                columns += [(text == category).astype(np.float64) for category in found]
        return np.column_stack(columns) if columns else np.zeros((len(panel), 0))


def _categories(panel: Panel) -> dict[str, list[str] | None]:
    """For each covariate: None if it is numeric, else its categories."""
    if panel.static is None:
        return {}
    import pandas as pd

    return {
        str(name): None
        if pd.api.types.is_numeric_dtype(panel.static[name])
        else sorted(panel.static[name].dropna().astype(str).unique().tolist())
        for name in panel.static.columns
    }
