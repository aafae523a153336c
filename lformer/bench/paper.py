"""Figures printed in the paper, to stand beside ours. Spiral errors are in units of 1e-2 of the scaled axes."""

SPIRALS: dict[str, dict[str, tuple[float, float]]] = {  # name: metric: (mean, standard deviation over five seeds)
    "spiral-2": {
        "interpolation_mae": (0.40, 0.06),
        "interpolation_rmse": (0.43, 0.09),
        "extrapolation_mae": (0.53, 0.06),
        "extrapolation_rmse": (0.52, 0.06),
    },
    "spiral-0.2": {
        "interpolation_mae": (0.33, 0.02),
        "interpolation_rmse": (0.34, 0.02),
        "extrapolation_mae": (0.44, 0.04),
        "extrapolation_rmse": (0.45, 0.06),
    },
    "spiral-0.02": {
        "interpolation_mae": (0.33, 0.09),
        "interpolation_rmse": (0.31, 0.06),
        "extrapolation_mae": (0.34, 0.08),
        "extrapolation_rmse": (0.32, 0.06),
    },
}

PARAMETERS = {"lformer": 103_860, "transformer": 101_380, "mamba": 66_690, "r-ode": 34_560}
