"""A small data set of our own, in an original format of our own: one text file per half, `id,time,value,label`."""

import numpy as np

from lformer.data.dataset import Array, Card, Dataset, Raw, Remote, Request
from lformer.data.files import Files
from lformer.panel import Panel
from lformer.parts import Prepared, Targets
from lformer.splitting import cut

SERIES = 20


def original(series: range) -> str:
    """The owner's text: uneven times, ragged lengths, missing values."""
    rng = np.random.default_rng(7)
    lines = ["# id,time,value,label"]
    for i in range(SERIES):
        length = 2 + i % 4
        clock = np.sort(rng.exponential(1.0, length))
        for step in range(length):
            value = "?" if rng.random() < 0.3 else f"{rng.standard_normal():.6f}"
            if i in series:
                lines.append(f"{i},{clock[step]:.6f},{value},{i % 2}")
    return "\r\n".join(lines) + "\r\n"


def pack(files: Files) -> dict[str, Array]:
    columns: list[list[float]] = []
    for text in files.texts("toy-*.txt"):
        for n, line in enumerate(text.lines):
            if not line.startswith("#"):
                fields = line.split(",")
                if len(fields) != 4:
                    raise text.error(n, f"expected id,time,value,label; got {line!r}.")
                columns.append([float("nan") if f == "?" else float(f) for f in fields])
    table = np.array(columns)
    return {"id": table[:, 0].astype(np.int64), "time": table[:, 1], "value": table[:, 2].astype(np.float32),
            "label": table[:, 3].astype(np.int64)}  # fmt: skip


def prepare(raw: Raw, request: Request) -> Prepared:
    ids, first, lengths = np.unique(raw["id"], return_index=True, return_counts=True)
    panel = Panel.build(
        raw["time"], raw["value"][:, None] * request.options["factor"], lengths, ids=[f"s{i}" for i in ids],
        channels=["x"], unit="h",
    )  # fmt: skip
    train, validation, test = cut(len(ids), request.seed)
    labels = raw["label"][first]
    return Prepared(
        panel=panel, targets=Targets(values=labels, at="series"), train=train, validation=validation, test=test
    )


def missing(raw: Raw) -> str:
    count = len(np.unique(raw["id"]))
    return "" if count == SERIES else f"{count} of {SERIES} series"


def dataset(url: str = "http://127.0.0.1:1/toy.zip", **changes: object) -> Dataset:
    card = Card(
        name="toy", title="Toy", page="https://example.org", licence="CC0", citation="nobody", series=SERIES,
        length="2 to 5", channels="1", tasks=("classify", "regress"), splits=("published", "subject"),
        scalings=("published", "none"), options={"factor": (1.0, 2.0), "unobserved": ("rows", "query")},
        variants={"double": {"factor": 2.0}}, raw=("toy/toy.npz", "toy/toy_half.npz"), remotes=(Remote(url=url),),
        by_hand="Download toy.zip from the page, then `lformer data pack toy PATH`.",
    )  # fmt: skip
    return Dataset(card=card, prepare=prepare, pack=pack, missing=missing, **changes)  # type: ignore[arg-type]
