"""README.md of an exported folder: how to call the graphs, and how dates and covariates are encoded as numbers."""

from __future__ import annotations

from typing import Any

PHASES = {
    "hour": "the share of the day that has passed",
    "weekday": "the day of the week, Monday 0, divided by 7",
    "year": "the share of the year that has passed, including hours",
}


WHAT = {
    "batch": "whole series",
    "step": "one row of each series, and their states",
    "ask": "at any times, from the states of series",
}


def readme(about: dict[str, Any], to: str) -> str:
    """The page, from the content of `export.json`."""
    needs = "numpy and onnxruntime" if to == "onnx" else "torch"
    parts = [
        f"# {about['estimator']}, exported by lformer {about['versions']['lformer']}",
        f"`python run.py` predicts for the series in `example.json` and only needs {needs}"
        + (" (`node run.mjs` does the same with onnxruntime-node)." if to == "onnx" else ".")
        + " You can also pass a file of your own in the same format: `python run.py mine.json`."
        + " `example.json` also contains PyTorch's predictions for comparison. Everything that a program must know is"
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
        kind = f"state, returned as `{port['next']}`" if "next" in port else "state"
        lines.append(f"| {kind} | {_port(port)} | |")
    lines.append("\nA named axis may have any length of at least 1.")
    return "\n".join([lines[0], "", *lines[1:]])


def _port(port: dict[str, Any]) -> str:
    return f"`{port['name']}` | {port['dtype']} | ({', '.join(map(str, port['axes']))})"


def _values(about: dict[str, Any]) -> str:
    channels = ", ".join(about["channels"])
    marks = f" {about['missing_values']} also counts as missing." if about["missing_values"] is not None else ""
    return (
        f"## Values\n\nIn their original units, one column for each of: {channels}. NaN means not observed.{marks} A "
        "row holds everything observed at one time stamp. Series shorter than the longest of a batch are padded at "
        "the end with arbitrary values; `lengths` gives their number of valid rows."
    )


def _times(about: dict[str, Any]) -> str:
    unit = about["unit"]
    how = (
        f"Give dates and durations in `{unit}` since any moment, such as the beginning of 1970 in UTC; use the same "
        "moment for a series and its queries."
        if about["dates"]
        else f"Numbers as in training{f', in {unit}' if unit else ''}."
    )
    return (
        f"## Times\n\n{how} They must not decrease along a series. The graph subtracts the first one in float64, so "
        "large time stamps lose no precision. Nothing is checked: sort the rows before you call."
    )


def _covariates(columns: dict[str, dict[str, Any]]) -> str:
    lines = ["## Static covariates\n\n`static` holds, in this order:\n"]
    for name, coding in columns.items():
        if "categories" in coding:
            lines.append(f"- {name}: one-hot encoded, one number for each of {coding['categories']}")
        else:
            mean, deviation = coding["mean"], coding["deviation"]
            lines.append(f"- {name}: two numbers, (x - {mean!r}) / {deviation!r} and 1; 0 and 0 if it is missing")
    return "\n".join(lines)


def _marks(calendar: dict[str, Any]) -> str:
    waves = "sin 2πp, sin 4πp, … and then cos 2πp, cos 4πp, …"
    clock = calendar.get("clock")
    if clock:
        return (
            f"## Marks\n\nWith p = (time - {clock['begins']!r}) / {clock['length']!r}, `marks` holds 2p - 1, clipped "
            f"to [-{clock['bound']:g}, {clock['bound']:g}], and then {waves}, {clock['harmonics']} of each."
        )
    zone = f"in the time zone {calendar['zone']}" if calendar["zone"] else "of the dates as they are"
    lines = [
        f"- {name}, p = {PHASES[name]}: {2 * count} numbers, {count} sines and {count} cosines"
        for name, count in calendar["harmonics"].items()
    ]
    return f"## Marks\n\n`marks` holds {waves}, computed from the local time {zone}:\n\n" + "\n".join(lines)


def _answers(about: dict[str, Any]) -> str:
    where = {"series": "for each series", "step": "for each row", "query": "at each of `query_times`"}[about["answer"]]
    if about["classes"] is not None:
        what = f"probabilities of the classes {about['classes']}, in this order"
    elif about["answer"] == "query":
        what = "the values of the channels, in their units"
    else:
        what = "numbers in the units of the targets"
    text = f"## Predictions\n\n`answers` holds, {where}, {what}. Ignore those of padded rows."
    if about["reach"] is not None:
        text += (
            f" In training, queries were up to {about['reach']:g} {about['unit'] or 'units of time'} after the last "
            "row, and never before it; unlike `predict`, the graph does not refuse other times."
        )
    return text


def _sureness(about: dict[str, Any]) -> str:
    parts = ["## Uncertainty\n"]
    if about["distribution"] == "gaussian":
        parts.append(
            "The model predicts the mean of a normal distribution and, in `deviations`, its standard deviation."
        )
    elif about["distribution"] == "quantiles":
        levels = ", ".join(f"{level:g}" for level in about["levels"])
        parts.append(f"The model predicts the median and `quantiles`, along their last axis at the levels {levels}.")
    calibration = about["calibration"]
    if calibration is None:
        parts.append("They come without a guarantee: this model was not calibrated.")
        return "\n".join(parts)
    what = (
        "`sets` tells for each class whether it is in the prediction set. For series from the same distribution as "
        "the calibration series, the set contains the true class with probability at least `coverage`. "
        "`sets_by_class` guarantees this within each class. The most likely class is always included."
        if about["classes"] is not None
        else "For series from the same distribution as the calibration series, the true value lies between `low` and "
        "`high` with probability at least `coverage`. This is an average over series and times, for each output."
    )
    parts.append(
        f"{what} The model was calibrated on {calibration['series']} series. Coverage is rounded up to thousandths; "
        "beyond `largest_coverage` in `export.json` there were too few series, and "
        + ("sets contain all classes." if about["classes"] is not None else "intervals are infinite.")
    )
    if calibration["edges"]:
        ends = ", ".join(f"{edge:g}" for edge in calibration["edges"])
        parts.append(f"Intervals may widen with the time since the last row, in bins with edges at {ends}.")
    return "\n".join(parts)


def _asking() -> str:
    return (
        "## At any time\n\n`ask` takes the part of the state that is listed in its table and does not change it, so "
        "you can call it as often as you like. A prediction before the last row of a series, or before its first row, "
        "is NaN; to predict for the past, keep the state of that time. Rows without observations do not change a state."
    )


def _streams() -> str:
    return (
        "## Row by row\n\nA series begins with the state in which every tensor is filled with its `initial` value in "
        "`export.json`, a number or one for each position of the last axis. Each call takes the state that the "
        "previous call returned. A batch only needs the series that have new rows: states are rows of tensors, which "
        "you can select and write back. If more values arrive for the last time stamp, call again with the state "
        "before it and all values of that time stamp. States can be stored and copied."
    )
