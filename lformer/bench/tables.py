"""Records to Markdown: the tables of the README are these, and a test compares."""

from typing import Any

from lformer.bench import paper
from lformer.bench.speed import WORKS, Cell, table


def markdown(rows: list[list[str]]) -> str:
    """A header row and body rows; the first column to the left, the others to the right."""
    header, *body = rows
    rule = [":--", *["--:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *body])


def demo_rows(record: dict[str, Any]) -> list[tuple[str, float, float, float]]:
    """Metric, ours, the paper's mean and deviation, in its unit of 1e-2 of the scaled axes."""
    return [
        (metric.replace("_mae", " MAE").replace("_rmse", " RMSE"), 100 * record["metrics"][metric], mean, deviation)
        for metric, (mean, deviation) in paper.SPIRALS[record["dataset"]].items()
    ]


def demo(record: dict[str, Any]) -> str:
    """Ours beside the paper's; bold where we are at or past the printed mean."""
    body = []
    for label, ours, mean, deviation in demo_rows(record):
        shown = f"{ours:.2f}"
        body.append([label, f"**{shown}**" if float(shown) <= mean else shown, f"{mean:.2f} ± {deviation:.2f}"])
    return markdown([["metric", "lformer demo", "LFormer paper"], *body])


def speed(record: dict[str, Any], batch: int) -> str:
    """Milliseconds and ratios at one batch size, forward and training step."""
    cells = [Cell(**cell) for cell in record["cells"]]
    parts = [f"**{work}**\n\n{markdown(table(cells, work, batch))}" for work in WORKS]
    return "\n\n".join(parts)
