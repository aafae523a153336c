"""README.md of an exported folder: how the graphs are called, and how dates and covariates become numbers."""

from __future__ import annotations

from typing import Any

PHASES = {
    "hour": "the share of the day that has passed",
    "weekday": "the day of the week, Monday 0, divided by 7",
    "year": "the share of the year that has passed, hours included",
}


WHAT = {
    "batch": "whole series",
    "step": "one row of each series, and their states",
    "ask": "at any times, from the states of series",
}


def readme(about: dict[str, Any], to: str) -> str:
    """The page, from what `export.json` holds."""
    needs = "numpy and onnxruntime" if to == "onnx" else "torch"
    parts = [
        f"# {about['estimator']}, exported by lformer {about['versions']['lformer']}",
        f"`python run.py` answers for the series in `example.json` and needs {needs} alone"
        + (" (`node run.mjs` does the same with onnxruntime-node)." if to == "onnx" else ".")
        + " Give it a file of your own in the same form: `python run.py mine.json`."
        + " `example.json` also holds the answers that PyTorch gave, to compare with. All that a program must know is"
        + " in `export.json`.",
        *(_graph(name, graph) for name, graph in about["graphs"].items()),
        _values(about),
        _times(about),
    ]
    if about["covariates"]:
        parts.append(_covariates(about["covariates"]))
    if about["calendar"].get("clock") or about["calendar"].get("harmonics"):
        parts.append(_marks(about["calendar"]))
    parts.append(_answers(about))
    if about["distribution"] != "point" or about["calibration"] is not None:
        parts.append(_sureness(about))
    if "step" in about["graphs"]:
        parts.append(_streams())
    if "ask" in about["graphs"]:
        parts.append(_asking())
    return "\n\n".join(parts) + "\n"


def _graph(name: str, graph: dict[str, Any]) -> str:
    what = WHAT[name]
    lines = [f"## {graph['file']}: {what}", "| | name | type | axes | |", "|---|---|---|---|---|"]
    for kind in ("inputs", "outputs"):
        lines += [f"| {kind[:-1]} | {_port(port)} | {port['about']} |" for port in graph[kind]]
    for port in graph.get("state", []):
        kind = f"state, out as `{port['next']}`" if "next" in port else "state"
        lines.append(f"| {kind} | {_port(port)} | |")
    lines.append("\nAn axis with a name may have any length, from 1 up.")
    return "\n".join([lines[0], "", *lines[1:]])


def _port(port: dict[str, Any]) -> str:
    return f"`{port['name']}` | {port['dtype']} | ({', '.join(map(str, port['axes']))})"


def _values(about: dict[str, Any]) -> str:
    channels = ", ".join(about["channels"])
    marks = f" {about['missing_values']} counts as missing, too." if about["missing_values"] is not None else ""
    return (
        f"## Values\n\nIn their own units, one column for each of: {channels}. NaN is what was not observed.{marks} A "
        "row holds all that was observed at one stamp. Series shorter than the longest of a batch are filled up at "
        "their end with anything; `lengths` says how many rows count."
    )


def _times(about: dict[str, Any]) -> str:
    unit = about["unit"]
    how = (
        f"Dates and durations are counted in `{unit}` from any moment, such as the beginning of 1970 in UTC, the same "
        "for a series and what is asked of it."
        if about["dates"]
        else f"Numbers as in training{f', in {unit}' if unit else ''}."
    )
    return (
        f"## Times\n\n{how} They must not decrease along a series. The graph subtracts the first one in float64, so "
        "large stamps lose nothing. Nothing is checked: sort before you call."
    )


def _covariates(columns: dict[str, dict[str, Any]]) -> str:
    lines = ["## Static covariates\n\n`static` holds, one after the other:\n"]
    for name, coding in columns.items():
        if "categories" in coding:
            lines.append(f"- {name}: one number for each of {coding['categories']}, 1 for the one it is, else 0")
        else:
            mean, deviation = coding["mean"], coding["deviation"]
            lines.append(f"- {name}: two numbers, (x - {mean!r}) / {deviation!r} and 1; 0 and 0 where it is not known")
    return "\n".join(lines)


def _marks(calendar: dict[str, Any]) -> str:
    waves = "sin 2πp, sin 4πp, … and then cos 2πp, cos 4πp, …"
    clock = calendar.get("clock")
    if clock:
        return (
            f"## Marks\n\nWith p = (stamp - {clock['begins']!r}) / {clock['length']!r}, `marks` holds 2p - 1, at least "
            f"-{clock['bound']:g} and at most {clock['bound']:g}, and then {waves}, {clock['harmonics']} of each."
        )
    zone = f"in the time zone {calendar['zone']}" if calendar["zone"] else "as the dates say"
    lines = [
        f"- {name}, p = {PHASES[name]}: {2 * count} numbers, {count} sines and {count} cosines"
        for name, count in calendar["harmonics"].items()
    ]
    return f"## Marks\n\n`marks` holds {waves}, of what a clock on the wall shows {zone}:\n\n" + "\n".join(lines)


def _answers(about: dict[str, Any]) -> str:
    where = {"series": "for each series", "step": "for each row", "query": "at each of `query_times`"}[about["answer"]]
    if about["classes"] is not None:
        what = f"probabilities of the classes {about['classes']}, in this order"
    elif about["answer"] == "query":
        what = "the values of the channels, in their units"
    else:
        what = "numbers in the units of the targets"
    text = f"## Answers\n\nThere are, {where}, {what}. Those of padded rows mean nothing."
    if about["reach"] is not None:
        text += (
            f" Training asked up to {about['reach']:g} {about['unit'] or 'units of time'} after the last row, and "
            "never before it; the graph does not refuse what lies beyond, as `predict` does."
        )
    return text


def _sureness(about: dict[str, Any]) -> str:
    parts = ["## How sure\n"]
    if about["distribution"] == "gaussian":
        parts.append("The model says a mean and, in `deviations`, the deviation of a normal distribution.")
    elif about["distribution"] == "quantiles":
        levels = ", ".join(f"{level:g}" for level in about["levels"])
        parts.append(f"The model says a median and `quantiles`, along their last axis at the shares {levels}.")
    calibration = about["calibration"]
    if calibration is None:
        parts.append("Nobody promises that they are right: this model was not calibrated.")
        return "\n".join(parts)
    what = (
        "`sets` says of each class whether it is in; of series like those of calibration, the right one is in it with "
        "the probability `coverage`, at least. `sets_by_class` promises the same for the series of each class. The "
        "likeliest class is always in."
        if about["classes"] is not None
        else "Of series like those of calibration, the truth lies between `low` and `high` with the probability "
        "`coverage`, at least. This is an average over series and times, for each number of an answer."
    )
    parts.append(
        f"{what} It was calibrated on {calibration['series']} series. Coverage counts in thousandths; where that asks "
        "for more series than there were, beyond `largest_coverage` in `export.json`, "
        + ("sets hold all classes." if about["classes"] is not None else "intervals are infinite.")
    )
    if calibration["edges"]:
        ends = ", ".join(f"{edge:g}" for edge in calibration["edges"])
        parts.append(f"Intervals may widen with the time since the last row, in bins that meet at {ends}.")
    return "\n".join(parts)


def _asking() -> str:
    return (
        "## At any time\n\n`ask` takes of the state what its table names, and leaves it as it is: ask as often as you "
        "like. An answer before the last row of a series, or before any, is NaN; to ask about the past, keep the state "
        "of that time. Rows in which nothing was observed leave a state as it is."
    )


def _streams() -> str:
    return (
        "## Row by row\n\nA series begins with the state in which every tensor is filled with its `initial` of "
        "`export.json`, a number or one for each place of the last axis. Each call takes the state that the call "
        "before gave out. Only series with news need to be in a batch: states are rows of tensors, to be picked and "
        "put back. If more values come at a stamp that was given already, call again with the state before it and all "
        "values of the stamp. A state may be kept as it is, and copied."
    )
