"""How fast a table larger than memory becomes a panel on disk, and how fast one trains on it.

Makes a long table of id, time, channel and value in no order, as Parquet files in a folder that is deleted at the end,
and prints:

    polars       seconds in which polars sorts the same files by id and time, and in which it makes one row of each id
                 and time with a column for each channel; each in a process of its own, as far as memory allows
    build        seconds of `Panel.from_parquet`
    core second  what counts on a machine that others use, too; the panel and polars with POLARS_MAX_THREADS=1 use one
    peak memory  of each of these processes; "own" is without the pages of mapped files, which the system takes back
    train        seconds of `lformer fit` from the files to a tested and saved model, one pass over the series, with at
                 most 4 GiB of memory of its own (RLIMIT_DATA): should it need more, it fails
    epoch        seconds of one training epoch of a classifier on the panel on disk and on the same in memory, in turns;
                 the share is the speed on disk of that in memory

    python scripts/big_table.py --rows 10000000
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

CHANNELS = ("hr", "map", "na", "k", "cl", "lactate")
PER_FILE = 5_000_000  # rows
READINGS = 100  # rows of the table for each series, on average


def make(folder: Path, rows: int) -> None:
    """A long table: some channels at every stamp of a series, ids and stamps in no order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = pa.array(CHANNELS)
    for n, start in enumerate(range(0, rows, PER_FILE)):
        count = min(PER_FILE, rows - start)
        ids = rng.integers(0, max(rows // READINGS, 1), count)
        channel = rng.integers(0, len(CHANNELS), count).astype(np.int32)
        # A grid of 1,000 stamps, and one channel of each at most: what comes twice is taken as the last.
        clock = rng.integers(0, 1000, count) * 0.25
        ill = (channel == 0) & (ids % 2 == 1)  # who has a heart rate that is higher by half a deviation
        value = rng.normal(10.0 * channel + 0.5 * ill, 1.0).astype(np.float64)
        table = {"id": ids, "time": clock, "channel": pa.DictionaryArray.from_arrays(channel, names), "value": value}
        table["channel"] = table["channel"].cast(pa.string())
        pq.write_table(pa.table(table), folder / f"{n:04d}.parquet")
    everyone = np.arange(max(rows // READINGS, 1))
    pq.write_table(pa.table({"id": everyone, "ill": everyone % 2}), folder.parent / "targets.parquet")


# -- what is measured, each in a process of its own


def by_sorting(files: str, _: str) -> None:
    """polars, sorted by id and time, in its streaming engine."""
    import polars as pl

    pl.scan_parquet(files).sort("id", "time").collect(engine="streaming")


def by_grouping(files: str, _: str) -> None:
    """polars, one row of each id and time with a column for each channel, sorted."""
    import polars as pl

    columns = [pl.col("value").filter(pl.col("channel") == name).last().alias(name) for name in CHANNELS]
    pl.scan_parquet(files).group_by("id", "time").agg(columns).sort("id", "time").collect(engine="streaming")


def by_building(files: str, folder: str) -> None:
    """Ours."""
    from lformer import Panel

    panel = Panel.from_parquet(
        files, folder, id="id", time="time", channel="channel", value="value", on_duplicate="last"
    )
    print(panel, file=sys.stderr)


def by_training(files: str, folder: str) -> None:
    """Ours, from the files to a model."""
    from lformer.cli import app

    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    targets = str(Path(files).parents[1] / "targets.parquet")
    columns = ["--id", "id", "--time", "time", "--channel", "channel", "--value", "value", "--on-duplicate", "last"]
    asked = ["--targets", targets, "--target", "ill", "--task", "classify", "--epochs", "1", "--device", "cpu"]
    places = ["--on-disk", f"{folder}-series", "--out", f"{folder}-model", "--quiet"]
    with redirect_stdout(sys.stderr):
        app(["fit", files, *columns, *asked, *places], standalone_mode=False)


WORK = {"sort": by_sorting, "group": by_grouping, "build": by_building, "train": by_training}
LIMIT = 4 * 2**30  # bytes of memory of its own for `lformer fit`


def measured(work: str, files: str, folder: str) -> dict[str, float]:
    """Seconds and peak memory of one of these, in a fresh process."""
    command = [sys.executable, __file__, "--work", work, "--files", files, "--folder", folder]
    told = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    return json.loads(told.stdout) if told.returncode == 0 else {"failed": float(told.returncode)}


def measure_here(work: str, files: str, folder: str) -> None:
    """Print seconds, peak memory, and the peak of what is not mapped from files."""
    __import__("lformer" if work in ("build", "train") else "polars")
    own, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            lines = Path("/proc/self/status").read_text().splitlines()
            own[0] = max(own[0], *(float(line.split()[1]) / 2**20 for line in lines if line.startswith("RssAnon")))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    began, worked = time.perf_counter(), time.process_time()
    WORK[work](files, folder)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    done.set()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "cpu": worked, "peak": peak, "own": own[0]}))


def in_memory(panel: Any) -> Any:
    """The same panel with a copy of each array."""
    names = ("times", "values", "observed", "first", "lengths")
    return replace(panel, **{name: getattr(panel, name).copy() for name in names if getattr(panel, name) is not None})


def epoch_seconds(panel: Any, steps: int, drop: float) -> float:
    """One pass of so many steps of the default model over the first batches of an epoch."""
    import torch

    from lformer.nn import LFormer, LFormerConfig
    from lformer.parts import PanelPart, Targets

    part = PanelPart(panel, Targets(values=np.arange(len(panel)) % 2, at="series"), np.arange(len(panel)), seed=0)
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=len(panel.channels), outputs=2, answer="series", rows="carried", embedder="mlp", width=64, depth=2,
        heads=4, pooling="mean_last_max",
    )  # fmt: skip
    model = LFormer(config).train()
    optimiser = torch.optim.AdamW(model.parameters())
    began = time.perf_counter()
    for n, batch in enumerate(part.training_batches(32, 0, drop)):
        if n == steps:
            break
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), batch.targets).backward()
        optimiser.step()
    return time.perf_counter() - began


def loading_seconds(panel: Any, steps: int) -> float:
    """The same batches without a model."""
    from lformer.parts import PanelPart, Targets

    part = PanelPart(panel, Targets(values=np.arange(len(panel)) % 2, at="series"), np.arange(len(panel)), seed=0)
    began = time.perf_counter()
    for n, _ in enumerate(part.training_batches(32, 0)):
        if n == steps:
            break
    return time.perf_counter() - began


def compare_epochs(folder: str, steps: int, turns: int) -> None:
    """On disk and in memory, in turns."""
    from lformer import Panel

    began = time.perf_counter()
    Panel.open(folder)
    verified = time.perf_counter() - began
    began = time.perf_counter()
    mapped = Panel.open(folder, verify=False)
    print(f"open     {verified:.2f} s with every file read to the end, {time.perf_counter() - began:.3f} s without")
    copied = in_memory(mapped)
    for name, run in (
        ("batches alone", lambda panel: loading_seconds(panel, steps)),
        ("epoch", lambda panel: epoch_seconds(panel, steps, 0.0)),
        ("epoch, observations dropped", lambda panel: epoch_seconds(panel, steps, 0.2)),
    ):
        taken: dict[str, list[float]] = {"memory": [], "disk": []}
        for _ in range(turns):
            taken["memory"].append(run(copied))
            taken["disk"].append(run(mapped))
        memory, disk = (statistics.median(taken[place]) for place in ("memory", "disk"))
        print(f"{name}: {steps} steps in {memory:.2f} s in memory, {disk:.2f} s on disk: {100 * memory / disk:.0f} %")


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table")
    parser.add_argument("--steps", type=int, default=150, help="of training")
    parser.add_argument("--turns", type=int, default=3, help="on disk and in memory; the median counts")
    parser.add_argument("--within", default=None, help="folder for what is made; by default that of temporary files")
    parser.add_argument("--skip", nargs="*", default=[], choices=[*WORK], help="what needs too much memory or time")
    for name in ("--work", "--files", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)  # of the processes that are started here
    told = parser.parse_args()
    if told.work:
        measure_here(told.work, told.files, told.folder)
        return
    place = Path(tempfile.mkdtemp(dir=told.within))
    try:
        (place / "table").mkdir()
        make(place / "table", told.rows)
        size = sum(file.stat().st_size for file in (place / "table").iterdir())
        print(f"table    {told.rows:,} rows, {size / 2**30:.2f} GiB of Parquet; {os.cpu_count()} cores", flush=True)
        files, folder = f"{place}/table/*.parquet", f"{place}/panel"
        for work in WORK:
            if work in told.skip:
                continue
            found = measured(work, files, folder)
            if "failed" in found:
                print(
                    f"{work:8} failed with exit code {found['failed']:.0f}, for want of memory if it is -9", flush=True
                )
                continue
            pace = told.rows / found["cpu"]
            taken = f"{found['seconds']:.1f} s, {found['cpu']:.1f} s of a core, {pace:,.0f} rows a core second"
            print(f"{work:8} {taken}; peak memory {found['peak']:.2f} GiB, own {found['own']:.2f} GiB", flush=True)
        if "build" not in told.skip:
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
            print(f"panel    {size / 2**30:.2f} GiB", flush=True)
            compare_epochs(folder, told.steps, told.turns)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
