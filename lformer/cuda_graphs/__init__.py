"""CUDA graphs: one launch for a whole model, or for a whole training step, instead of one for every kernel."""

from lformer.cuda_graphs.answers import CapturedAnswers
from lformer.cuda_graphs.inference import Captured, capture
from lformer.cuda_graphs.recording import RecordingError
from lformer.cuda_graphs.shapes import pad_to_bucket
from lformer.cuda_graphs.training import CapturedStep, capture_step

__all__ = ["Captured", "CapturedAnswers", "CapturedStep", "RecordingError", "capture", "capture_step", "pad_to_bucket"]
