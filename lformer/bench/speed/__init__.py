"""Time, memory and throughput: LFormer and its peers on one machine, in one run.

From small to large: cells and timing, the sweep over lengths, throughput, the machine's own rates and the floor that is
counted from them; then the run on a CPU (`cpu`), the three studies on a GPU (`studies`), a step of every trained model
(`every`), how far solvers go in length (`scaling`), tables and figures. Needs torch and numpy alone, as
`python -m lformer.bench.speed`; only figures need the extra `plots`, and some of the models compared a package more.
"""

from lformer.bench.speed.cells import WORKS, Cell
from lformer.bench.speed.sweep import SpeedConfig
from lformer.bench.speed.tables import table

__all__ = ["WORKS", "Cell", "SpeedConfig", "table"]
