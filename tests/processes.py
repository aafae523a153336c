"""Processes that meet over gloo, for tests that are also scripts: `report` starts the script, `meet` forks in it.

Forked after torch was imported and before it has done anything, they cost no import of their own.
"""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TESTS = Path(__file__).parent
Report = dict[str, Any]


def report(script: str, out: Path, sizes: tuple[int, ...]) -> dict[int, list[Report]]:
    """Run the script, which calls `meet` for each size; what its processes have said, by size and rank."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, script, str(out)], capture_output=True, text=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {size: [json.loads((out / f"{size}-{rank}.json").read_text()) for rank in range(size)] for size in sizes}


def meet(size: int, work: Callable[[], Report], out: Path) -> None:
    """Call `work` in `size` processes that make a group, and write what each of them returns."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_one, args=(rank, size, work, out)) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit(1)


def _one(rank: int, size: int, work: Callable[[], Report], out: Path) -> None:
    torch.set_num_threads(1)
    meeting, patience = f"file://{out}/meet{size}", timedelta(seconds=60)  # rather an error than a test that hangs
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size, timeout=patience)
    (out / f"{size}-{rank}.json").write_text(json.dumps(work()))
    dist.barrier()
    dist.destroy_process_group()
