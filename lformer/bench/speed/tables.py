"""The studies as tables: rows of text, Markdown, and the part of them that docs/speed.md shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lformer.bench.layout import markdown
from lformer.bench.speed import anchors
from lformer.bench.speed.cells import REPLAY, WORKS, Cell, Work, growth_exponent, pick
from lformer.bench.speed.floor import Distance
from lformer.bench.speed.machine import Precision
from lformer.bench.speed.throughput import MODES, Rate

Rows = list[list[str]]
SHOWN = (1024, 4096, 16_384, 32_768, 131_072)  # lengths that docs/speed.md has room for
PRECISION: dict[Precision, str] = {"tf32": "TF32", "bf16": "bf16"}


def table(cells: Sequence[Cell], work: Work, batch: int, shown: Iterable[int] = ()) -> Rows:
    """One row per model: milliseconds at each length with the ratio to non-causal LFormer, exponent, peak memory."""
    chosen = pick(cells, work=work, batch=batch)
    lengths = sorted({c.length for c in chosen})
    longest, base = lengths[-1], {c.length: c.seconds for c in chosen if c.model == "lformer"}
    lengths = [n for n in lengths if n in shown] or lengths
    result = [["model", *(f"{n:,}" for n in lengths), "exponent", f"MiB at {longest:,}"]]
    for model in dict.fromkeys(c.model for c in chosen):
        own = {c.length: c for c in chosen if c.model == model}
        row = [model, *(_entry(own.get(n), None if model == "lformer" else base.get(n)) for n in lengths)]
        exponent, peak = growth_exponent(list(own.values())), own[longest].peak_bytes if longest in own else None
        row += ["" if math.isnan(exponent) else f"{exponent:.2f}", "" if peak is None else f"{peak / 2**20:,.0f}"]
        result.append(row)
    return result


def _entry(cell: Cell | None, reference: float | None) -> str:
    if cell is None:
        return ""
    if cell.seconds is None:
        return short(cell.note)
    return f"{ms(cell.seconds)} ms" + (f" ({cell.seconds / reference:.1f}×)" if reference else "")


def throughput_table(rates: Sequence[Rate]) -> Rows:
    """One row per model: series per second in every precision and mode, and the paper's."""
    columns = [(p, m) for p in PRECISION for m in MODES]
    result = [["model", "parameters", *(f"{PRECISION[p]}, {m}" for p, m in columns), "paper, RTX 4090"]]
    for model in dict.fromkeys(r.model for r in rates):
        own = {(r.precision, r.mode): r for r in rates if r.model == model}
        size = next((r.parameters for r in own.values()), None)
        figures = ["" if r is None else _per_second(r) for r in (own.get(c) for c in columns)]
        printed = anchors.PAPER.get(model.removesuffix(anchors.MARK))
        result.append([
            model, "" if size is None else f"{size:,}", *figures,
            "" if printed is None else _rate(printed.series_per_second),
        ])  # fmt: skip
    return result


def _per_second(rate: Rate) -> str:
    return short(rate.note) if rate.series_per_second is None else _rate(rate.series_per_second)


def _rate(per_second: float) -> str:
    """Whole numbers, or three digits of what is slow."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def floor_table(distances: Sequence[Distance]) -> Rows:
    """Measured beside counted: how many times the floor."""
    header = ["what", "model", "batch", "length", "measured", "FLOP alone", "bytes alone", "times the floor"]
    body = [
        [
            f"{d.what}, {PRECISION[d.precision]}", d.model, str(d.batch), f"{d.length:,}", f"{ms(d.seconds)} ms",
            f"{ms(d.compute)} ms", f"{ms(d.move)} ms", f"{d.times:.1f}×",
        ]
        for d in distances
    ]  # fmt: skip
    return [header, *body]


def million_table(cells: Sequence[Cell]) -> Rows:
    """One very long series: milliseconds and memory of a training step."""
    result = [["model", "rows", "training step", "peak memory"]]
    for c in cells:
        time = short(c.note) if c.seconds is None else f"{ms(c.seconds)} ms"
        memory = "" if c.peak_bytes is None else f"{c.peak_bytes / 2**30:.2f} GiB"
        result.append([c.model, f"{c.length:,}", time, memory])
    return result


def page(record: dict[str, Any]) -> str:
    """Everything that was measured on a GPU."""
    cells, rates = lengths_of(record), throughput_of(record)
    found = record["rates"]
    parts = [f"# Speed on {record['machine'].get('device', record['machine']['cpu'])}", _words(record)]
    if not record["finished"]:
        parts.append("**The run was cut short; what it had measured is here.**")
    if cells:
        parts += [f"## {work.capitalize()}, batch {cells[0].batch}\n\n" + _table(cells, work) for work in _works(cells)]
    if record["million"]:
        parts.append("## One series\n\n" + markdown(million_table([Cell(**c) for c in record["million"]])))
    if rates:
        first = rates[0]
        title = f"## Inference, batch {first.batch}, {first.length:,} rows, series per second"
        parts.append(f"{title}\n\n{markdown(throughput_table(rates))}")
    if record["anchors"]:
        parts.append(anchors.NOTE)
    if found:
        parts.append(
            f"## Floor\n\nOne copy moves {found['copy'] / 1e12:.3g} TB/s; matrix products reach "
            f"{found['tf32'] / 1e12:.3g} TFLOP/s in TF32 and {found['bf16'] / 1e12:.3g} in bf16.\n\n"
            + markdown(floor_table(_telling(record)))
        )
    failed = [f"- {what}" for what in failures(record)]
    if failed:
        parts.append("## Failed\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def highlights(record: dict[str, Any]) -> str:
    """The part of it that docs/speed.md shows."""
    cells, rates = lengths_of(record), throughput_of(record)
    batch = cells[0].batch
    near = [d for d in _telling(record) if not d.model.startswith("lformer-plain") and "eager" not in d.what]
    steps = [work for work in _works(cells) if work != "forward"]
    parts = [
        _words(record),
        *(f"**{work}, batch {batch}**\n\n{markdown(table(cells, work, batch, SHOWN))}" for work in steps),
        f"**inference, batch {rates[0].batch}, {rates[0].length:,} rows, series per second**\n\n"
        + markdown(throughput_table(rates)),
        "**one series**\n\n" + markdown(million_table([Cell(**c) for c in record["million"]])),
        "**distance from the floor**\n\n" + markdown(floor_table(near)),
    ]
    if record["anchors"]:
        parts.append(anchors.NOTE)
    return "\n\n".join(parts)


def failures(record: dict[str, Any]) -> list[str]:
    """What failed for another reason than time and memory, in full."""
    entries = [*record["lengths"], *record["million"], *record["throughput"]]
    found = [e for e in entries if e["note"].startswith("failed")]
    where = ("work", "precision", "mode", "batch", "length")
    return [f"{e['model']}, {', '.join(str(e[w]) for w in where if w in e)}: {e['note']}" for e in found]


def lengths_of(record: dict[str, Any]) -> list[Cell]:
    """The cells of the study against length, and the anchors beside them."""
    beside = [a for a in record["anchors"] if "work" in a]
    return [Cell(**c) for c in (*record["lengths"], *(beside if record["lengths"] else ()))]


def throughput_of(record: dict[str, Any]) -> list[Rate]:
    """Likewise of the study of throughput."""
    beside = [a for a in record["anchors"] if "mode" in a]
    return [Rate(**r) for r in (*record["throughput"], *(beside if record["throughput"] else ()))]


def _telling(record: dict[str, Any]) -> list[Distance]:
    """Distances of inference and of the longest series: short ones are all launches."""
    longest = max((c["length"] for c in record["lengths"]), default=0)
    found = [Distance(**d) for d in record["distances"]]
    return [d for d in found if d.length >= longest or d.what.startswith("inference")]


def _works(cells: Sequence[Cell]) -> list[Work]:
    return [work for work in (*WORKS, REPLAY) if pick(cells, work=work)]


def _table(cells: Sequence[Cell], work: Work) -> str:
    return markdown(table(cells, work, cells[0].batch))


def _words(record: dict[str, Any]) -> str:
    machine, setting = record["machine"], record["setting"]
    return (
        f"{machine.get('device', machine['cpu'])}, torch {machine['torch']}; width {setting['width']}, depth "
        f"{setting['depth']}, heads {setting['heads']}, {setting['features']} features. {setting['float32']} "
        f"{setting['timing']} {setting['peak memory']}"
    )


def machine_words(found: dict[str, Any]) -> str:
    """Device and version, of a CPU also the threads."""
    cores = "" if "device" in found else f", {found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    return f"{found.get('device', found['cpu'])}{cores}, torch {found['torch']}"


def size_words(setting: dict[str, Any]) -> str:
    """Width and depth, and the models that have sizes of their own beside them."""
    own = [f"{name} with {' and '.join(f'{k} {v}' for k, v in s.items())}" for name, s in setting["sizes"].items()]
    but = f" ({', '.join(own)})" if own else ""
    return f"width {setting['width']}, depth {setting['depth']}, other sizes as each configuration has them{but}"


def ms(seconds: float) -> str:
    """Milliseconds, in four digits."""
    return f"{1e3 * seconds:.4g}"


def short(note: str) -> str:
    """A note that fits a table; failures are listed in full below."""
    return note.split(":")[0]
