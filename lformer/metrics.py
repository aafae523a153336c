"""Errors as the published tables define them: pure functions of tensors."""

from torch import Tensor


def summed_mae(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean over points of `|dx| + |dy| + …`: (..., C), (..., C) -> (). Summed over coordinates, not averaged."""
    return (prediction - target).abs().sum(dim=-1).mean()


def summed_mse(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean over points of the squared distance `dx² + dy² + …`: (..., C), (..., C) -> ()."""
    return (prediction - target).square().sum(dim=-1).mean()


def summed_rmse(prediction: Tensor, target: Tensor) -> Tensor:
    """Root of the mean squared distance: (..., C), (..., C) -> ()."""
    return summed_mse(prediction, target).sqrt()
