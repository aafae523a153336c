"""Write the facts as one page: a single HTML file that loads nothing from elsewhere."""

from __future__ import annotations

import numpy as np

from lformer.doctor.words import counted, number, percent
from lformer.drawing import clean, short
from lformer.report.charts import BARS, Chart, cloud, curve, errors, losses, ranges, reliability
from lformer.report.coverage import THOUGHT, coverage_chart, size_chart
from lformer.report.facts import Example, Facts, Score
from lformer.report.records import LARGEST, STRIPS, record
from lformer.report.style import SCRIPT, STYLE

CLASSES = 12  # in the confusion matrix
OUTPUTS = 6  # that have charts
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
ROLES = {"best": "Predicted well", "typical": "Typical", "worst": "Largest error"}


def page(facts: Facts) -> str:
    """The whole page."""
    sections = [
        ("scores", "Scores", _scores(facts)),
        ("training", "Training", _training(facts)),
        ("answers", "Predictions", _answers(facts)),
        ("channels", "Channels and time", _importance(facts)),
        ("memory", "Memory", _memory(facts)),
        ("examples", "Examples", _examples(facts)),
        ("settings", "Settings", _settings(facts)),
    ]
    filled = [(name, title, body) for name, title, body in sections if body]
    links = "".join(f'<li><a href="#{name}">{clean(title)}</a></li>' for name, title, _ in filled)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>',
            f"<title>{clean(facts.title)} · report</title><style>{STYLE}</style></head><body>",
            '<a class="skip" href="#main">Skip to the report</a>',
            f'<nav aria-label="Sections"><ul>{links}<li><button id="theme" type="button" hidden="hidden">'
            "Dark page</button></li></ul></nav>",
            '<main id="main">',
            _head(facts),
            *(
                f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{clean(title)}</h2>'
                f"{body}</section>"
                for name, title, body in filled
            ),
            f"<footer>{clean(' · '.join(f'{k} {v}' for k, v in facts.versions.items()))}</footer>",
            f"</main><script>{SCRIPT}</script></body></html>\n",
        ]
    )


# -- the sections


def _head(facts: Facts) -> str:
    about = {
        "task": facts.question,
        "model": facts.kind,
        "trained on": facts.trained_on,
        "report on": facts.looked_at,
    }
    words = "".join(f"<dt>{clean(k)}</dt><dd>{clean(v)}</dd>" for k, v in about.items() if v)
    notes = "".join(f'<p class="soft">{clean(note)}</p>' for note in facts.notes)
    verdict, kind = _verdict(facts)
    tiles = "".join(_tile(score) for score in facts.scores[:4])
    return (
        f'<h1>{clean(facts.title)}</h1><p class="lead {kind}">{clean(verdict)}</p>{notes}<dl>{words}</dl>'
        f'<div class="tiles">{tiles}</div>'
    )


def _verdict(facts: Facts) -> tuple[str, str]:
    """One sentence on the most important score, and its colour."""
    first = next((score for score in facts.scores if score.metric.startswith("AUC")), facts.scores[0])
    name, value = _best(first)
    how, kind = ("Better than", "good") if first.wins else ("No better than", "bad")
    where = f"on these {counted(facts.series, 'series')}"
    return f"{how} {name} {where}: {first.metric} {number(first.model)} versus {number(value)}.", kind


def _best(score: Score) -> tuple[str, float]:
    """The best of the baselines."""
    return (max if score.higher else min)(score.others.items(), key=lambda pair: pair[1])


def _tile(score: Score) -> str:
    name, value = _best(score)
    kind = "good" if score.wins else "bad"
    return (
        f'<div class="tile"><span>{clean(score.metric)}</span><b>{number(score.model)}</b>'
        f'<span class="{kind}">{clean(name)}: {number(value)}</span></div>'
    )


def _scores(facts: Facts) -> str:
    parts = ['<p class="soft">The best score is bold. Simple baselines show what the model has to beat.</p>']
    for title, scores in (
        ("On the series of this report", facts.scores),
        ("On the validation series", facts.validation),
    ):
        if scores:
            names = list(dict.fromkeys(name for score in scores for name in score.others))
            rows = [_score_row(score, names) for score in scores]
            head = "".join(f'<th scope="col">{clean(name)}</th>' for name in ("metric", facts.kind, *names))
            parts.append(
                f'<h3>{title}</h3><div class="wide" tabindex="0" role="region" aria-label="{title}"><table><thead>'
                f"<tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
            )
    return "".join(parts)


def _score_row(score: Score, names: list[str]) -> str:
    values = [score.model, *(score.others.get(name, np.nan) for name in names)]
    known = [value for value in values if np.isfinite(value)]
    best = (max if score.higher else min)(known, default=np.nan)
    mark = ' class="best-of"'
    cells = [
        f"<td{mark if value == best else ''}>{number(value) if np.isfinite(value) else ''}</td>" for value in values
    ]
    arrow = "higher is better" if score.higher else "lower is better"
    return f'<tr><th scope="row">{clean(score.metric)} <span class="soft">({arrow})</span></th>{"".join(cells)}</tr>'


def _training(facts: Facts) -> str:
    if not facts.history:
        return '<p class="soft">The model was loaded from a folder, which keeps no history of its training.</p>'
    validation = curve(facts.history, "validation", facts.monitor, facts.naive, facts.lower_is_better)
    loss = curve(facts.history, "loss", "loss", None, True)
    return (
        '<p class="soft">The epoch with the best validation score is kept.</p><div class="pair">'
        + _figure(f"Validation: {facts.monitor}, {_at_best(facts)}", validation)
        + _figure("Training: loss", loss)
        + "</div>"
    )


def _at_best(facts: Facts) -> str:
    best = (min if facts.lower_is_better else max)(facts.history, key=lambda row: row["validation"])
    return f"{number(best['validation'])} at best, in epoch {int(best['epoch']) + 1}"


def _answers(facts: Facts) -> str:
    if facts.probabilities is not None and facts.labels is not None:
        two = len(facts.classes) == 2
        said = facts.probabilities[:, 1] if two else facts.probabilities.max(axis=1)
        happened = facts.labels == 1 if two else facts.probabilities.argmax(axis=1) == facts.labels
        of = f"Calibration: probability of {facts.classes[1]!r}" if two else "Calibration: highest class probability"
        return (
            '<p class="soft">On the dashed line, probabilities are calibrated: of the events predicted with a '
            "probability of 70 %, 70 % occur. Each point stands for about the same number of predictions; whiskers are "
            "95 % intervals.</p>"
            '<div class="pair">'
            + _figure(of, reliability(said, happened))
            + _matrix(facts.classes, facts.labels, facts.probabilities.argmax(axis=1))
            + "</div>"
            + _coverage(facts)
        )
    parts = ['<p class="soft">Predicted against true values, and the distribution of the errors.</p>']
    parts += [
        '<div class="pair">'
        + _figure(f"{one.name}: predicted against true", cloud(one.told, one.truth, one.name))
        + _figure(f"{one.name}: error", errors(one.told, one.truth, one.name))
        + "</div>"
        for one in facts.numbers[:OUTPUTS]
    ]
    if len(facts.numbers) > OUTPUTS:
        rows = [
            [n.name, number(float(np.sqrt(np.square(n.told - n.truth).mean()))), f"{len(n.told):,}"]
            for n in facts.numbers[OUTPUTS:]
        ]
        parts.append(
            f'<p class="soft">And {len(rows):,} more:</p>'
            + _table(["name", "RMSE", "predictions"], rows, "Errors of the others")
        )
    return "".join(parts) + _coverage(facts) if facts.numbers else ""


def _coverage(facts: Facts) -> str:
    """Observed against nominal coverage of intervals or sets, if there are any."""
    if not facts.coverage:
        return ""
    sets = "prediction sets contain the true class" if facts.classes else "intervals contain the true value"
    own = any(one.name == THOUGHT for one in facts.coverage)
    title = "Prediction sets" if facts.classes else "Prediction intervals"
    return (
        f'<h3>{title}</h3><p class="soft">On the dashed line, {sets} exactly as often as they should. Coverage is '
        "computed per series, then averaged over series; whiskers are two standard errors."
        + (" Without calibration, the intervals of the model have no guarantee." if own else "")
        + '</p><div class="pair">'
        + _figure("Observed against nominal coverage", coverage_chart(facts.coverage))
        + _figure(f"{title}: {facts.coverage[0].what}", size_chart(facts.coverage))
        + "</div>"
    )


def _matrix(classes: list[object], truth: np.ndarray, told: np.ndarray) -> str:
    """Confusion matrix, with true classes as rows and predicted ones as columns; only the most frequent if many."""
    kept = np.argsort(-np.bincount(truth, minlength=len(classes)), kind="stable")[:CLASSES]
    kept.sort()
    names = [clean(short(str(classes[k]), 16)) for k in kept]
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = []
    for k, name in zip(kept, names, strict=True):
        counts = np.array([int(((truth == k) & (told == j)).sum()) for j in kept])
        whole = max(int((truth == k).sum()), 1)
        cells = "".join(f'<td style="--share:{n / whole:.3f}">{n:,}<br/>{percent(n / whole)}</td>' for n in counts)
        body.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    more = f" Only the {CLASSES} most frequent of {len(classes)} classes are shown." if len(classes) > CLASSES else ""
    return (
        '<figure><figcaption>Confusion matrix</figcaption><p class="soft">Rows are true classes, columns are predicted '
        f"classes; percentages are of the row.{more}</p>"
        '<div class="wide" tabindex="0" role="region" aria-label="Confusion matrix">'
        f'<table class="matrix"><thead><tr><th scope="col">true \\ predicted</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div></figure>"
    )


def _importance(facts: Facts) -> str:
    if facts.stamps is None:
        return ""
    what = facts.lost
    parts = [
        f'<p class="soft">The bars show the {clean(what)} when a channel is exchanged between series, or when time '
        f"stamps are made less informative. Measured on {clean(facts.importance_on)}. Channels with the same "
        'information can replace one another, and then neither seems important.</p><div class="pair">'
    ]
    if facts.channels is not None:
        more = f", {BARS} of {len(facts.channels)}" if len(facts.channels) > BARS else ""
        parts.append(_figure(f"Channels{more}", losses(facts.channels, "channel", what, facts.stamps)))
    parts.append(_figure("Time stamps, on the same scale", losses(facts.stamps, "stamps", what, facts.channels)))
    return "".join(parts) + "</div>"


def _memory(facts: Facts) -> str:
    if facts.half_lives is None:
        return ""
    return (
        '<p class="soft">The time after which the weight of an observation in the memory has fallen to one half, from '
        f"the gates of later rows: median and quartiles on {clean(facts.half_lives_on)}. If a record ends earlier, the "
        f"half-life is not reached, and counts as longer than the remaining time.{clean(facts.memory)}</p>"
        + _figure("Half-lives", ranges(facts.half_lives))
    )


def _examples(facts: Facts) -> str:
    if not facts.examples:
        return ""
    parts = [
        '<p class="soft">Each triangle is an observation; its size is that of its contribution. '
        '<span class="up">▲ raises</span> the explained number, <span class="down">▼ lowers</span> it, and a dot does '
        f"neither. Up to {STRIPS} channels with the largest contributions are shown.</p>"
    ]
    return "".join(parts) + "".join(map(_example, facts.examples))


def _example(example: Example) -> str:
    why, chart = example.explanation, record(example)
    if why.baseline is None:
        how = "Each contribution is the change relative to a prediction without the observation; they do not add up."
    else:
        how = (
            f"The contributions add up from {number(why.baseline)}, the prediction for typical values at the same "
            f"times, to {number(why.answer)}; {number(abs(why.gap or 0.0))} is left unexplained."
        )
    return (
        f'<article><h3><span class="role">{ROLES[example.role]}</span>{clean(why.id)}</h3>'
        f"<dl><dt>prediction</dt><dd>{clean(example.answer)}</dd><dt>truth</dt><dd>{clean(example.truth)}</dd>"
        f"<dt>explained</dt><dd>{clean(why.what)}: {number(why.answer)}</dd></dl>{chart.picture}"
        f'<p class="soft">{clean(how)}</p>'
        f"<details><summary>The {min(LARGEST, len(chart.rows))} largest contributions</summary>"
        f"{_table(chart.header, chart.rows, 'Largest contributions')}</details></article>"
    )


def _settings(facts: Facts) -> str:
    changed = {k: v for k, v in facts.settings.items() if not v.endswith("(default)")}
    others = [[k, v.removesuffix(" (default)")] for k, v in facts.settings.items() if k not in changed]
    words = "".join(f"<dt>{clean(k)}</dt><dd>{clean(v)}</dd>" for k, v in changed.items())
    return (
        f"<dl>{words}</dl><details><summary>{len(others)} arguments at their defaults</summary>"
        f"{_table(['argument', 'value'], others, 'Arguments')}</details>"
    )


# -- pieces


def _figure(title: str, chart: Chart) -> str:
    return (
        f"<figure><figcaption>{clean(title)}</figcaption>{chart.picture}<details><summary>Numbers</summary>"
        f"{_table(chart.header, chart.rows, title)}</details></figure>"
    )


def _table(header: list[str], rows: list[list[str]], title: str) -> str:
    """A table that scrolls if it is too large for the screen, also by keyboard."""
    head = "".join(f'<th scope="col">{clean(name)}</th>' for name in header)
    body = "".join("<tr>" + "".join(f"<td>{clean(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{clean(title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
