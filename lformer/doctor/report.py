"""The doctor's report: findings, figures and a table of channels, as text and as an HTML page."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lformer.doctor.words import counted, number, percent, span

if TYPE_CHECKING:
    import pandas as pd
    from rich.text import Text

    from lformer.doctor.sketch import Sketch

Level = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
LISTED = 30  # channels in the text


@dataclass(frozen=True)
class Finding:
    """A single finding.

    Attributes:
        level: "error" = training would fail; "warning" = it would run, perhaps not as intended; "info" = good to know.
        title: what was found.
        detail: how much and where, with examples.
        advice: what to do.
        option: what to do at the command line, if that is different.
    """

    level: Level
    title: str
    detail: str
    advice: str
    option: str = ""


@dataclass(frozen=True, eq=False)
class Report:
    """The report of `examine` on a table.

    Attributes:
        findings: the findings, errors first.
        figures: numbers by name, with times in `unit` and shares between 0 and 1.
        channels: one row per channel: channel, observations, missing (share of the rows), rate (observations per
            unit of time), minimum, median, maximum, spread (robust standard deviation), outliers.
        unit: unit of times: "s" for calendar stamps, "" for numbers.
        sketch: content of the figures; None if the table could not be read that far.
        name: name of the table.
    """

    findings: tuple[Finding, ...]
    figures: dict[str, float]
    channels: pd.DataFrame
    unit: str = ""
    sketch: Sketch | None = None
    name: str = "this table"

    @property
    def ok(self) -> bool:
        """True if training would work."""
        return all(finding.level != "error" for finding in self.findings)

    def in_options(self) -> Report:
        """The report with advice for the command line, in options instead of Python."""
        told = (replace(finding, advice=finding.option or finding.advice) for finding in self.findings)
        return replace(self, findings=tuple(told))

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        some = [counted(n, level) for level in LEVELS[:2] if (n := sum(f.level == level for f in self.findings))]
        rest = f" ({', '.join(some)})" if some else ""
        return f"Training {'would work' if self.ok else 'would fail'} on {self.name}{rest}."

    def summary(self) -> list[tuple[str, str]]:
        """The figures in words: pairs of a name and a text."""
        f, unit = self.figures, self.unit
        if "series" not in f:
            return [("table", counted(int(f["rows"]), "row"))] if "rows" in f else []
        lines = [
            (
                "table",
                f"{counted(int(f['rows']), 'row')}, {counted(int(f['series']), 'series')}, "
                f"{counted(int(f['channels']), 'channel')}",
            ),
            ("observed", f"{number(f['observations'])} values, {percent(f['observed_share'])} of all cells"),
            (
                "lengths",
                f"median {number(f['length_median'])}, 99th percentile {number(f['length_p99'])}, "
                f"maximum {number(f['length_max'])} rows",
            ),
        ]
        if "gap_median" in f:
            lines.append(
                (
                    "gaps",
                    f"median {span(f['gap_median'], unit)}, 99th percentile {span(f['gap_p99'], unit)}, maximum "
                    f"{span(f['gap_max'], unit)} ({number(f['gap_ratio'])} times the median)",
                )
            )
        lines.append(
            (
                "padding",
                f"{percent(f['padding_random'])} in random batches of {number(f['batch_size'])}, "
                f"{percent(f['padding_by_length'])} in batches of similar length",
            )
        )
        return lines

    def rate_unit(self) -> tuple[float, str]:
        """Factor and words that make rates of calendar time readable: per second, minute, hour or day."""
        if self.unit != "s":
            return 1.0, f"per {self.unit}" if self.unit else "per unit of time"
        usual = self.channels["rate"].median() if len(self.channels) else 1.0
        for factor, name in ((1.0, "s"), (60.0, "min"), (3600.0, "h")):
            if usual * factor >= 0.5:
                return factor, f"per {name}"
        return 86400.0, "per d"

    def channel_rows(self) -> tuple[list[str], list[list[str]]]:
        """The table of channels as text: header and rows."""
        factor, per = self.rate_unit()
        header = ["channel", "values", "missing", per, "minimum", "median", "maximum", "spread", "outliers"]
        rows = [
            [
                str(row["channel"]), number(row["observations"]), percent(row["missing"]), number(factor * row["rate"]),
                *(number(row[name]) for name in ("minimum", "median", "maximum", "spread", "outliers")),
            ]
            for row in self.channels.to_dict("records")
        ]  # fmt: skip
        return header, rows

    def text(self, width: int = 100) -> str:
        """The report for a terminal, as plain text."""
        lines = [self.verdict, ""]
        lines += [f"  {name:<9} {what}" for name, what in self.summary()]
        for finding in self.findings:
            lines += ["", f"{finding.level}: {finding.title}"]
            lines += textwrap.wrap(finding.detail, width, initial_indent="  ", subsequent_indent="  ")
            lines += textwrap.wrap(finding.advice, width, initial_indent="  → ", subsequent_indent="    ")
        if len(self.channels):
            header, rows = self.channel_rows()
            cut = [header, *rows[:LISTED]]
            cut = [[row[0] if len(row[0]) <= 24 else row[0][:23] + "…", *row[1:]] for row in cut]
            wide = [max(len(row[i]) for row in cut) for i in range(len(header))]
            lines += [""]
            lines += [
                "  "
                + "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, wide, strict=True)))
                for row in cut
            ]
            if len(rows) > LISTED:
                lines.append(f"  and {counted(len(rows) - LISTED, 'more channel')}")
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.text()

    def __rich__(self) -> Text:
        """The report in colour, for a terminal that supports it."""
        from rich.text import Text

        text = Text(self.text())
        text.highlight_regex(r"(?m)^error:.*$", "bold red")
        text.highlight_regex(r"(?m)^warning:.*$", "bold yellow")
        text.highlight_regex(r"(?m)^info:.*$", "bold cyan")
        text.highlight_regex(r"\A[^\n]*", "bold green" if self.ok else "bold red")
        return text

    def html(self, path: str | Path) -> Path:
        """Write the report to a single HTML file; returns its path."""
        from lformer.doctor.page import page

        path = Path(path)
        path.write_text(page(self), encoding="utf-8")
        return path
