"""CUDA graphs: one launch for a whole model, or for a whole training step, instead of one for every kernel."""

from lformer.graphs.inference import Captured, capture
from lformer.graphs.recording import RecordingError
from lformer.graphs.shapes import roomy
from lformer.graphs.training import CapturedStep, capture_step

__all__ = ["Captured", "CapturedStep", "RecordingError", "capture", "capture_step", "roomy"]
