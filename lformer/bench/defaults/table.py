"""Records to tables: the score of every method on every set with its rank, the seconds it took, and who wins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from lformer.bench.defaults import options
from lformer.bench.defaults.measures import MEASURES, Measure
from lformer.bench.defaults.methods import METHODS, OURS
from lformer.bench.defaults.problem import CLASSES, NUMBERS, VALUES
from lformer.bench.defaults.records import Cell, PartName, Record
from lformer.bench.defaults.sets import DEFAULTS_SETS
from lformer.bench.layout import NONE, markdown, ranks
from lformer.bench.marks import fill

MARK, OPTIONS_MARK = "defaults", "options"
KINDS = {"Classes": CLASSES, "Numbers": NUMBERS, "Values": VALUES}
PARTS: dict[PartName, str] = {"test": "test part", "folds": "validation folds of the training part"}
LEGEND = (
    "The mean over seeds ± its standard error, and in brackets the rank in the row; the best in bold. The error is "
    "that of drawing other test series and, where a method is random, other seeds. *lformer − best* is how far the "
    "defaults are from the best of the others, in the good direction: ✓ if they are ahead, ≈ if the two are closer "
    "than the standard error of their difference, ✗ if they are behind. A dash: it cannot answer, or is too slow."
)


@dataclass(frozen=True)
class Entry:
    """A method on a set, over the seeds: mean and standard error in the units of the table, and seconds of a seed."""

    mean: float
    error: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """A set with what was run on it."""

    name: str
    measure: Measure
    entries: dict[str, Entry]

    @property
    def ranks(self) -> dict[str, float]:
        """1 for the best; those that are printed alike share theirs."""
        sign, digits = self.measure.sign, self.measure.digits
        return ranks({method: -sign * round(entry.mean, digits) for method, entry in self.entries.items()})

    @property
    def verdict(self) -> str:
        """How far our defaults are from the best of the others; a dash if one of the two is missing."""
        others = [entry for method, entry in self.entries.items() if method != OURS]
        if OURS not in self.entries or not others:
            return NONE
        ours, best = self.entries[OURS], max(others, key=lambda entry: self.measure.sign * entry.mean)
        gain = self.measure.sign * (ours.mean - best.mean)
        close = abs(gain) <= math.hypot(ours.error, best.error)  # two that never err are alike
        return f"{'≈' if close else '✓' if gain > 0 else '✗'} {gain:+.{self.measure.digits}f}".replace("-", "−")


def rows(records: Iterable[Record]) -> list[Row]:
    """Sets in the order of the bench, from records of one part."""
    found: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        found.setdefault(record["cell"]["set"], {}).setdefault(record["cell"]["method"], []).append(record)
    made = []
    for name in _in_order(found, DEFAULTS_SETS):
        _check_data(name, [record for own in found[name].values() for record in own])
        measure = next(iter(found[name].values()))[0]["measure"]
        entries = {method: _entry(found[name][method], measure) for method in _in_order(found[name], METHODS)}
        made.append(Row(name, MEASURES[measure], entries))
    return made


def _in_order(found: Iterable[str], known: Iterable[str]) -> list[str]:
    order = {name: place for place, name in enumerate(known)}
    return sorted(found, key=lambda name: (order.get(name, len(order)), name))


def _entry(own: list[Record], measure: str) -> Entry:
    factor = MEASURES[measure].factor
    scores = [factor * record["scores"][measure] for record in own]
    drawn = fmean((factor * record["errors"][measure]) ** 2 for record in own)
    redrawn = len({record["data"] for record in own})  # seeds with test series of their own
    between = stdev(scores) ** 2 / len(own) if redrawn == 1 and len(own) > 1 else 0.0
    seconds = fmean(record["fit_seconds"] + record["predict_seconds"] for record in own)
    return Entry(fmean(scores), math.sqrt(drawn / redrawn + between), seconds)


def _check_data(name: str, own: list[Record]) -> None:
    """Refuse to compare methods on different data."""
    seen: dict[int, dict[str, Cell]] = {}
    redrawn = name in DEFAULTS_SETS and DEFAULTS_SETS[name].redrawn
    for record in own:
        cell = Cell(**record["cell"])
        seen.setdefault(cell.seed if redrawn else 0, {}).setdefault(record["data"], cell)
    for cells in seen.values():
        if len(cells) > 1:
            raise ValueError(
                f"records of {name} are of different data: {'; '.join(map(str, cells.values()))}. Delete the older "
                "ones, and run their cells again."
            )


def table(found: list[Row]) -> str:
    """Scores with ranks, and the mean ranks."""
    methods = _in_order({method for row in found for method in row.entries}, METHODS)
    body = [["set", "measure", *methods, f"{OURS} − best"]]
    for row in found:
        arrow, digits = "↑" if row.measure.sign > 0 else "↓", row.measure.digits
        shown = []
        for method in methods:
            if method not in row.entries:
                shown.append(NONE)
                continue
            entry, rank, first = row.entries[method], row.ranks[method], min(row.ranks.values())
            figure = f"{entry.mean:.{digits}f}"
            shown.append(f"{f'**{figure}**' if rank == first else figure} ±{entry.error:.{digits}f} ({rank:g})")
        body.append([row.name, f"{row.measure.words} {arrow}", *shown, row.verdict])
    places = {method: [row.ranks[method] for row in found if method in row.entries] for method in methods}
    body.append(["mean rank (rows)", "", *(f"{fmean(p):.2f} ({len(p)})" for p in places.values()), ""])
    return markdown(body)


def seconds(found: list[Row]) -> str:
    """Seconds of fit and answers together, the mean over seeds; on folds, of all folds."""
    methods = _in_order({method for row in found for method in row.entries}, METHODS)
    body = [["set", *methods]]
    body += [
        [row.name, *(_time(row.entries[m].seconds) if m in row.entries else NONE for m in methods)] for row in found
    ]
    return markdown(body)


def _time(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"


def tables(records: Iterable[Record]) -> str:
    """All tables: classes, numbers and values, on the test part and on the folds, each with its seconds."""
    found = list(records)
    if not found:
        raise ValueError("no records, so no tables: run `lformer bench defaults` first, or name their folder.")
    parts = [LEGEND]
    for part, words in PARTS.items():
        for title, kinds in KINDS.items():
            own = [record for record in found if record["cell"]["part"] == part and record["kind"] in kinds]
            if own:
                made = rows(own)
                parts += [
                    f"**{title}, {words}**",
                    table(made),
                    "Seconds to fit and to answer, of the CPU or, on a GPU, by the clock:",
                    seconds(made),
                ]
    machines = sorted({record["versions"]["machine"] for record in found})
    return "\n\n".join([*parts, f"Machines: {'; '.join(machines)}."])


def filled(text: str, records: Iterable[Record], changed: Iterable[Record] = ()) -> str:
    """The page with the tables of these records between its marks; that of changed options if it has marks for it."""
    found, changes = list(records), list(changed)
    text = fill(text, MARK, tables(found))
    wanted = changes and f"<!-- {OPTIONS_MARK} -->" in text
    return fill(text, OPTIONS_MARK, options.table(found, changes)) if wanted else text
