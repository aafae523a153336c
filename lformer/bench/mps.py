"""NVIDIA's Multi-Process Service (MPS): several processes whose kernels run on one GPU at the same time.

Without it a GPU gives each process a slice of time, in which the small kernels of one leave most of it idle.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import DEVNULL, PIPE, STDOUT, CalledProcessError, SubprocessError, run
from tempfile import TemporaryDirectory

CONTROL = "nvidia-cuda-mps-control"  # comes with the driver
PER_GPU = 8  # processes that share one, if nobody says
PATIENCE = 30.0  # seconds for an answer


def installed() -> bool:
    """Whether it can be started here."""
    return shutil.which(CONTROL) is not None


def running() -> bool:
    """Whether processes that are started now would find it."""
    try:
        told = run([CONTROL], input="get_server_list\n", stdout=PIPE, stderr=STDOUT, text=True, timeout=PATIENCE)
    except (OSError, SubprocessError):
        return False
    return told.returncode == 0 and "Cannot find" not in told.stdout


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """Inside, the service runs: what the environment of a process must have to use it.

    One that runs already is used and left running. Ours is one of its own, in a folder that nobody else knows of.
    """
    if running():
        yield {}
        return
    if not installed():
        raise ValueError(f"--mps needs {CONTROL}, which comes with the driver of NVIDIA, on the PATH.")
    with TemporaryDirectory(prefix="lformer-mps-", ignore_cleanup_errors=True) as folder:
        names = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = os.environ | names
        try:
            # In a session of its own: Ctrl-C is for us, who end the processes that use it first.
            run(
                [CONTROL, "-d"], env=environment, check=True, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL,
                timeout=PATIENCE, start_new_session=True,
            )  # fmt: skip
        except (OSError, SubprocessError) as error:
            code = f" (exit code {error.returncode})" if isinstance(error, CalledProcessError) else ""
            raise ValueError(f"--mps: {CONTROL} did not start{code}. Run without --mps.") from error
        try:
            yield names
        finally:
            with suppress(OSError, SubprocessError):
                run([CONTROL], input=b"quit\n", env=environment, stdout=DEVNULL, stderr=DEVNULL, timeout=PATIENCE)


def hint(workers: int | None, gpus: int, mps: bool) -> str:
    """A line for those whose processes share a GPU without it, though they need not; "" for others."""
    if mps or not gpus or (workers or 1) <= gpus or not installed() or running():
        return ""
    return f"{workers} processes share {gpus} GPU{'s' * (gpus > 1)} by turns; --mps lets their kernels run at once."
