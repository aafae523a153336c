"""A table of results, our figures beside the printed ones, as Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from lformer.bench.paper import Figure, Measure

SEEDS = 5  # as many as the paper has; another number is shown
NONE, PARTIAL, SMOKE, TRIVIAL = "–", "‡", "§", "¶"
WORDS = {
    "mae": "MAE", "rmse": "RMSE", "mse": "MSE", "mse_unseen": "MSE, unseen points",
    "mse_channels": "MSE, unseen points, mean over channels", "auroc": "AUROC", "auprc": "AUPRC",
    "interpolation_mae": "MAE, interpolation", "interpolation_rmse": "RMSE, interpolation",
    "extrapolation_mae": "MAE, extrapolation", "extrapolation_rmse": "RMSE, extrapolation",
}  # fmt: skip
Kind = Literal["paper", "variant", "simple"]


@dataclass(frozen=True, kw_only=True)
class Ours:
    """Runs that differ in their seed alone.

    Attributes:
        values: of the seeds that finished, in the paper's units.
        failed: why the others did not: "OOM", "OOT" or "collapse".
        partial: what the data lacked; "" if nothing.
        smoke: whether training was cut short.
        trivial: whether the answers were among the inputs and handed back.
        kind: trained by the "paper"'s recipe or by a "variant" of ours, or a "simple" model that is fitted at once.
        validated: the mean on the validation part, which may choose between entries; nan if a seed has none.
    """

    values: tuple[float, ...] = ()
    failed: tuple[str, ...] = ()
    partial: str = ""
    smoke: bool = False
    trivial: bool = False
    kind: Kind = "paper"
    validated: float = math.nan

    @property
    def mean(self) -> float:
        """Over the seeds that finished; nan if there are none."""
        return fmean(self.values) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """Sample standard deviation, with n - 1; nan of a single seed."""
        return stdev(self.values) if len(self.values) > 1 else math.nan

    @property
    def comparable(self) -> bool:
        """Whether this may be compared: whole data, whole training, all seeds or none, answers that were not given."""
        return not (self.partial or self.smoke or self.trivial or (self.values and self.failed))

    def figure(self, digits: int) -> str:
        """45.3±3.5, or the reason why there is none, with a sign where it is not comparable."""
        signs = PARTIAL * bool(self.partial) + SMOKE * self.smoke + TRIVIAL * self.trivial
        if not self.values:
            return "/".join(sorted(set(self.failed))) + signs
        deviation = f"±{self.deviation:.{digits}f}" if len(self.values) > 1 else ""
        return f"{self.mean:.{digits}f}{deviation}{signs}"

    @property
    def remark(self) -> str:
        """(3 seeds, 2 OOM); "" where five seeds finished or none did."""
        if not self.values:
            return ""
        count = len(self.values)
        parts = [] if count == SEEDS else [f"{count} seed{'s' if count > 1 else ''}"]
        parts += [f"{self.failed.count(why)} {why}" for why in sorted(set(self.failed))]
        return f"({', '.join(parts)})" if parts else ""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model in one row.

    Attributes:
        ours, printed: None where there is none.
        digits: decimals of the paper in this row.
        sign: 1 if a large value is good, -1 if a small one is.
        rank: among the comparable models of the row that were trained by the paper's recipe, ties sharing theirs; None
            if this is not one of them.
        mark: whether it is the best or second best of all that is comparable of ours.
    """

    ours: Ours | None
    printed: Figure | None
    digits: int
    sign: int
    rank: float | None = None
    mark: Literal["", "best", "second"] = ""

    @property
    def shown_digits(self) -> int:
        """Decimals of ours: the paper's, or as many as two significant digits need, at most two more."""
        mean = abs(self.ours.mean) if self.ours else math.nan
        needed = 1 - math.floor(math.log10(mean)) if mean > 0 and math.isfinite(mean) else 0
        return max(self.digits, min(needed, self.digits + 2))

    @property
    def cost(self) -> float | None:
        """What ranks: small is good, a run that failed is last; None if it is not comparable."""
        if self.ours is None or not self.ours.comparable:
            return None
        return -self.sign * round(self.ours.mean, self.shown_digits) if self.ours.values else math.inf

    @property
    def choice(self) -> tuple[bool, bool, float]:
        """What chooses between entries, small is good: the validation part, or the test part if there is no other."""
        if self.ours is None:
            return True, True, math.inf
        unknown = math.isnan(self.ours.validated)
        figure = self.ours.mean if unknown else self.ours.validated
        return not self.ours.comparable, unknown, math.inf if math.isnan(figure) else -self.sign * figure

    @property
    def gain(self) -> float | None:
        """By how much ours beats the paper, both rounded as printed; -inf if ours failed, None if not comparable."""
        if self.ours is None or not self.ours.comparable or self.printed is None or math.isnan(self.printed.mean):
            return None
        if not self.ours.values:
            return -math.inf
        digits = self.printed.digits
        return round(self.sign * (round(self.ours.mean, digits) - self.printed.mean), digits) + 0.0

    @property
    def verdict(self) -> str:
        """✓ +0.8 if the printed figure is met, ✗ −0.8 if it is missed, "" if the two are not comparable."""
        if self.gain is None:
            return ""
        if math.isinf(self.gain):
            return "✗"
        digits = self.printed.digits if self.printed else 0
        return f"{'✓' if self.gain >= 0 else '✗'} {self.gain:+.{digits}f}".replace("-", "−")


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row: what is measured by which protocol, and an entry of every column."""

    measure: Measure
    split: str
    scaling: str
    entries: dict[str, Entry]

    @property
    def published(self) -> bool:
        """Whether the paper has this row."""
        return any(entry.printed is not None for entry in self.entries.values())

    def subject(self, with_task: bool) -> str:
        """Data set, task, and the protocol if it is not the published one."""
        parts = [self.measure.dataset] + [self.measure.task] * with_task
        other = [f"{k} {v}" for k, v in (("split", self.split), ("scaling", self.scaling)) if v != "published"]
        return ", ".join(parts + other)

    @property
    def metric(self) -> str:
        """MSE, all points ↓ (× 1e-2)."""
        name, unit = WORDS.get(self.measure.metric, self.measure.metric), self.measure.factor
        if self.measure.metric == "mse" and self.measure.task in ("interpolate", "extrapolate"):
            name += ", all points"
        units = "%" if self.measure.percent else "" if unit == 1 else f"× 1e-{round(math.log10(unit))}"
        return f"{name} {'↑' if self.measure.sign > 0 else '↓'}" + (f" ({units})" if units else "")


class Style(NamedTuple):
    """How a kind of text marks entries."""

    best: str
    second: str
    legend: str
    escape: Callable[[str], str]

    def cell(self, entry: Entry) -> str:
        """ours / paper verdict."""
        figure, remark = (entry.ours.figure(entry.shown_digits), entry.ours.remark) if entry.ours else (NONE, "")
        marked = {"": "{}", "best": self.best, "second": self.second}[entry.mark]
        words = [marked.format(self.escape(figure)), self.escape(remark)]
        if entry.printed is not None:
            words += ["/", self.escape(entry.printed.text), self.escape(entry.verdict)]
        return " ".join(word for word in words if word)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of results.

    Attributes:
        title: what of.
        columns: models and variants of them, or the full model and its ablations.
        lines: the rows.
        ranks: mean rank by column; empty if fewer than two columns can be ranked.
        ranked: over which rows, in words.
        notes: what a reader must know, one sentence or two each.
    """

    title: str
    columns: list[str]
    lines: list[Line]
    ranks: dict[str, float] = field(default_factory=dict)
    ranked: str = ""
    notes: tuple[str, ...] = ()

    def rows(self, style: Style) -> list[list[str]]:
        """Header, lines and mean ranks, as text."""
        tasks = len({line.measure.task for line in self.lines}) > 1
        rows = [["data set, task" if tasks else "data set", "metric", *map(style.escape, self.columns)]]
        for line in self.lines:
            labels = [style.escape(line.subject(tasks)), style.escape(line.metric)]
            rows.append(labels + [style.cell(line.entries[column]) for column in self.columns])
        if self.ranked:
            shown = {c: f"{self.ranks[c]:.2f}" if c in self.ranks else NONE for c in self.columns}
            best = f"{min(self.ranks.values(), default=0):.2f}"
            ranks = [style.best.format(text) if text == best else style.escape(text) for text in shown.values()]
            rows.append([style.escape("mean rank ↓"), self.ranked, *ranks])
        return rows

    def markdown(self, legend: bool = True) -> str:
        """Title, table and notes; the legend, which is the same for all tables, first among them."""
        notes = "\n".join(f"- {note}" for note in ([MARKDOWN.legend] * legend + list(self.notes)))
        return f"**{self.title}** (ours / paper)\n\n{markdown(self.rows(MARKDOWN))}\n\n{notes}\n"

    def latex(self) -> str:
        """A table environment; needs the packages booktabs, graphicx and pifont."""
        header, *body = [" & ".join(row) + r" \\" for row in self.rows(LATEX)]
        if self.ranked:
            body.insert(-1, r"\midrule")
        notes = [LATEX.escape(note) for note in (LATEX.legend, *self.notes)]
        return "\n".join([
            r"\begin{table*}", r"\centering", rf"\caption{{{LATEX.escape(self.title)} (ours / paper)}}",
            r"\resizebox{\linewidth}{!}{%", rf"\begin{{tabular}}{{ll{'r' * len(self.columns)}}}",
            r"\toprule", header, r"\midrule", *body, r"\bottomrule", r"\end{tabular}}",
            r"\par\footnotesize", " ".join(notes), r"\end{table*}",
        ]) + "\n"  # fmt: skip

    def csv(self) -> str:
        """One line per entry that has a figure of ours or of the paper, in the paper's units, unrounded."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_HEADER)
        for line in self.lines:
            for column, entry in line.entries.items():
                if entry.ours is not None or entry.printed is not None:
                    writer.writerow([*_protocol(line), column, *_numbers(entry)])
        return text.getvalue()


CSV_HEADER = (
    "dataset", "task", "split", "scaling", "metric", "unit", "column", "mean", "std", "seeds", "failed", "partial",
    "smoke", "trivial", "kind", "comparable", "rank", "paper", "paper_mean", "paper_std", "gain",
)  # fmt: skip


def _protocol(line: Line) -> list[object]:
    measure = line.measure
    return [measure.dataset, measure.task, line.split, line.scaling, measure.metric, f"{1 / measure.factor:g}"]


def _numbers(entry: Entry) -> list[object]:
    """As in `CSV_HEADER`, from mean to gain; empty where there is none."""
    ours, printed = entry.ours or Ours(), entry.printed or Figure("", math.nan, math.nan)
    rank, gain = (math.nan if x is None else x for x in (entry.rank, entry.gain))
    comparable = entry.ours is not None and ours.comparable
    return [
        *_known(ours.mean, ours.deviation), len(ours.values), " ".join(ours.failed), ours.partial, int(ours.smoke),
        int(ours.trivial), ours.kind, int(comparable), *_known(rank), printed.text,
        *_known(printed.mean, printed.deviation, gain),
    ]  # fmt: skip


def _known(*numbers: float) -> list[object]:
    return ["" if math.isnan(x) else x for x in numbers]


def ranks(costs: dict[str, float]) -> dict[str, float]:
    """1 for the smallest; equal ones share the mean of their places.

    Example:
        >>> ranks({"a": 0.5, "b": 0.1, "c": 0.5})
        {'a': 2.5, 'b': 1.0, 'c': 2.5}
    """
    values = list(costs.values())
    return {name: sum(v < cost for v in values) + (values.count(cost) + 1) / 2 for name, cost in costs.items()}


def markdown(rows: Iterable[list[str]]) -> str:
    """A header row and body rows; the first column to the left, the others to the right."""
    header, *body = rows
    rule = [":--", *["--:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *body])


_TEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "×": r"$\times$", "≈": r"$\approx$",
    "✓": r"\ding{51}", "✗": r"\ding{55}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": r"$-$", NONE: "--",
    PARTIAL: r"$^\ddagger$", SMOKE: r"$^\S$", TRIVIAL: r"$^\P$", "α": r"$\alpha$",
})  # fmt: skip

_LEGEND = (
    "✓ or ✗ with the difference in the good direction: ours, rounded as printed, meets or misses the paper. Ours is "
    "the mean ± the sample standard deviation (n − 1; the paper does not say which) over five seeds unless said. {}."
)

MARKDOWN = Style(
    "**{}**",
    "{}†",
    _LEGEND.format("Bold: the best of all we ran; †: the second best"),
    lambda text: text.replace("|", r"\|"),
)
LATEX = Style(
    r"\textbf{{{}}}",
    r"\underline{{{}}}",
    _LEGEND.format("Bold: the best of all we ran; underlined: the second best"),
    lambda text: text.translate(_TEX),
)
