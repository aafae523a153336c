"""explorer: every record of the benchmark on one page of HTML, to look around in."""

from lformer.bench.explorer.write import write

__all__ = ["write"]
