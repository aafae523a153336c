"""Every figure the paper prints, laid out as on its pages, to stand beside ours.

Rows carry the paper's names for data sets; `MEASURES` says which data set, task and metric of ours a row is. A figure
is a mean and a standard deviation over five seeds. "OOM" is out of memory, "inf" a training that ended in inf or nan,
"≈" a figure that follows from the text but is not printed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LARGE_IS_GOOD = {"accuracy", "auroc", "auprc"}  # of all other metrics a small value is


class Measure(NamedTuple):
    """What a row of a table measures; the paper prints `factor` times our metric."""

    dataset: str
    task: str
    metric: str
    factor: float

    @property
    def sign(self) -> int:
        """1 if a large value is good, -1 if a small one is."""
        return 1 if self.metric in LARGE_IS_GOOD else -1

    @property
    def percent(self) -> bool:
        """Whether it is printed as a percentage: of right answers, or of the area under a curve."""
        return self.sign > 0 and self.factor == 100


class Figure(NamedTuple):
    """A printed figure; `mean` is nan where a word stands in its place, `deviation` where none is printed."""

    text: str
    mean: float
    deviation: float

    @property
    def digits(self) -> int:
        """Decimals of the mean."""
        return len(self.text.partition("±")[0].partition(".")[2])


Figures = dict[Measure, dict[str, Figure]]  # row -> model (or ablation) -> figure


class Printed(NamedTuple):
    """A table of the paper."""

    title: str
    figures: Figures
    note: str

    @property
    def columns(self) -> list[str]:
        """Models, or the full model and its ablations, in the paper's order."""
        return list(dict.fromkeys(column for row in self.figures.values() for column in row))


MODELS = [
    "gru", "gru-dt", "gru-d", "transformer", "lru", "s6", "mamba", "rkn-dt", "node", "r-ode", "o-ode", "lsde", "ncde",
    "nrde", "logncde", "contiformer", "cru", "gru-ode-b", "cfc", "rformer", "mtand", "s5", "acssm", "lformer",
]  # fmt: skip

FULL = "full"
ABLATIONS = [
    "softmax_attention", "feed_forward", "no_output_gate", "shared_mu", "fixed_mu", "time_only", "no_normalisation",
]  # fmt: skip


def _measures(text: str) -> dict[str, Measure]:
    rows = [line.split() for line in text.strip().splitlines()]
    return {name: Measure(dataset, task, metric, float(factor)) for name, dataset, task, metric, factor in rows}


def _figure(text: str) -> Figure:
    """45.3±3.5, ≈91.4, OOM or inf."""
    if text in ("OOM", "inf"):
        return Figure({"inf": "collapse"}.get(text, text), math.nan, math.nan)
    mean, _, deviation = text.removeprefix("≈").partition("±")
    return Figure(text, float(mean), float(deviation or "nan"))


def _block(text: str) -> dict[str, dict[str, Figure]]:
    """Lines of figures under a line of column names: line -> column -> figure."""
    (_, *columns), *lines = [line.split() for line in text.strip().splitlines()]
    return {name: dict(zip(columns, map(_figure, words), strict=True)) for name, *words in lines}


def _turned(block: dict[str, dict[str, Figure]]) -> dict[str, dict[str, Figure]]:
    """Column -> line -> figure."""
    columns = next(iter(block.values()))
    return {column: {name: line[column] for name, line in block.items()} for column in columns}


def _rows(block: dict[str, dict[str, Figure]]) -> Figures:
    return {MEASURES[name]: row for name, row in block.items()}


# the paper's name, ours: data set, task, metric; the paper prints so many times our metric
MEASURES = _measures("""
EC             ethanol        classify         accuracy            100
EW             eigenworms     classify         accuracy            100
HB             heartbeat      classify         accuracy            100
MI             motor-imagery  classify         accuracy            100
SCP1           scp1           classify         accuracy            100
SCP2           scp2           classify         accuracy            100
HR-MAE         bidmc-hr       regress          mae                 1
HR-RMSE        bidmc-hr       regress          rmse                1
RR-MAE         bidmc-rr       regress          mae                 1
RR-RMSE        bidmc-rr       regress          rmse                1
SpO2-MAE       bidmc-spo2     regress          mae                 1
SpO2-RMSE      bidmc-spo2     regress          rmse                1
HA             activity       classify-points  accuracy            100
PDL            pendulum       regress-points   mse                 1000
PHY-I          physionet      reconstruct      mse                 100
USH-I          ushcn          reconstruct      mse                 100
PHY-E          physionet      extrapolate      mse                 100
USH-E          ushcn          extrapolate      mse                 100
2DS2-I-MAE     spiral-2       trajectory       interpolation_mae   100
2DS2-I-RMSE    spiral-2       trajectory       interpolation_rmse  100
2DS0.2-I-MAE   spiral-0.2     trajectory       interpolation_mae   100
2DS0.2-I-RMSE  spiral-0.2     trajectory       interpolation_rmse  100
2DS0.02-I-MAE  spiral-0.02    trajectory       interpolation_mae   100
2DS0.02-I-RMSE spiral-0.02    trajectory       interpolation_rmse  100
2DS2-E-MAE     spiral-2       trajectory       extrapolation_mae   100
2DS2-E-RMSE    spiral-2       trajectory       extrapolation_rmse  100
2DS0.2-E-MAE   spiral-0.2     trajectory       extrapolation_mae   100
2DS0.2-E-RMSE  spiral-0.2     trajectory       extrapolation_rmse  100
2DS0.02-E-MAE  spiral-0.02    trajectory       extrapolation_mae   100
2DS0.02-E-RMSE spiral-0.02    trajectory       extrapolation_rmse  100
""")

LTS_C = Printed(
    "Classification of series (LTS-C)",
    _rows(_block("""
row  lru      s5       s6        mamba     ncde     nrde     logncde  transformer rformer  lformer
EC   21.5±2.1 24.1±4.3 26.4±6.4  27.9±4.5  29.9±6.5 25.3±1.8 34.4±6.4 40.5±6.3    34.7±4.1 45.3±3.5
EW   87.8±2.8 81.1±3.7 85.0±16.1 70.9±15.8 75.0±3.9 83.9±7.3 85.6±5.1 OOM         90.3±0.1 89.4±3.2
HB   78.4±6.7 77.7±5.5 76.5±8.3  76.2±3.8  73.9±2.6 72.9±4.8 75.2±4.6 70.5±0.1    72.5±0.1 81.6±1.6
MI   48.4±5.0 47.7±5.5 51.3±4.7  47.7±4.5  49.5±2.8 47.0±5.7 53.7±5.3 50.5±3.0    55.8±6.6 65.3±4.1
SCP1 82.6±3.4 89.9±4.6 82.8±2.7  80.7±1.4  79.8±5.6 80.9±2.5 83.1±2.8 84.3±6.3    81.2±2.8 84.5±1.7
SCP2 51.2±3.6 50.5±2.6 49.9±9.5  48.2±3.9  53.0±2.8 53.7±6.9 53.7±4.1 49.1±2.5    52.3±3.7 61.8±3.0
""")),
    "The paper's baselines are quoted from the RFormer paper.",
)  # fmt: skip

LTS_R = Printed(
    "Regression of series (LTS-R)",
    _rows(_block("""
row       gru        mamba     transformer r-ode      ncde       nrde      cfc        rformer   lformer
HR-MAE    9.64±0.61  1.97±0.39 9.82±0.19   12.11±0.00 9.20±0.08  2.74±0.13 9.77±0.31  2.37±0.17 1.03±0.04
HR-RMSE   13.01±0.69 2.75±0.70 13.22±0.16  15.17±0.00 11.41±0.12 3.45±0.22 13.12±0.39 3.09±0.23 1.52±0.07
RR-MAE    1.79±0.36  0.93±0.60 1.45±0.22   1.85±0.00  2.27±0.03  1.20±0.04 2.15±0.12  1.06±0.04 0.74±0.04
RR-RMSE   2.51±0.47  1.32±0.10 1.94±0.25   2.32±0.35  2.84±0.04  1.51±0.06 2.98±0.16  1.46±0.05 0.97±0.02
SpO2-MAE  2.46±0.03  1.08±0.49 2.45±0.03   2.71±0.00  2.46±0.12  1.02±0.09 2.46±0.03  1.38±0.15 0.29±0.03
SpO2-RMSE 3.28±0.08  1.41±0.71 3.28±0.08   3.41±0.02  2.83±0.18  1.28±0.13 3.28±0.08  1.80±0.22 0.42±0.02
""")),
    "",
)  # fmt: skip

POINTS = Printed(
    "Classification and regression of points (PTS-C, PTS-R)",
    _rows(_block("""
row acssm lformer
HA  ≈91.4 92.87±0.16
PDL ≈2.98 2.05±0.25
""")),
    "The paper draws bars. Its text gives LFormer, and ACSSM only as 1.6 % and 31.2 % behind it.",
)  # fmt: skip

RECORDS = Printed(
    "Climate and clinical records (TS-I, TS-E)",
    _rows(_turned(_block("""
model     PHY-I       USH-I       PHY-E       USH-E
mtand     0.208±0.025 1.766±0.009 0.340±0.020 2.360±0.038
rkn-dt    0.186±0.030 0.009±0.002 0.703±0.050 1.491±0.272
gru-dt    0.271±0.057 0.090±0.059 0.870±0.077 2.081±0.054
gru-d     0.338±0.027 0.944±0.011 0.873±0.071 1.718±0.015
node      0.212±0.027 1.798±0.009 0.725±0.072 2.034±0.005
r-ode     0.236±0.009 0.831±0.008 0.467±0.006 1.955±0.466
gru-ode-b 0.521±0.038 0.841±0.142 0.798±0.071 5.437±1.020
cru       0.182±0.091 0.016±0.006 0.629±0.093 1.273±0.066
acssm     0.116±0.011 0.006±0.001 0.627±0.019 0.941±0.014
lformer   0.040±0.009 0.001±0.000 0.372±0.002 0.840±0.018
"""))),
    "The paper's baselines are quoted from the ACSSM paper. Its TS-I is reconstruction of what was given; over which "
    "points its TS-E is, it does not say: read as over all.",
)  # fmt: skip

SPIRALS = Printed(
    "Curves (TS-I, TS-E)",
    _rows(_block("""
row            transformer node      r-ode     o-ode     ncde      contiformer lformer
2DS2-I-MAE     2.33±0.60   2.49±0.30 2.88±0.54 4.12±1.00 2.96±0.23 0.41±0.07   0.40±0.06
2DS2-I-RMSE    3.75±0.50   2.10±0.21 3.04±0.48 4.49±1.26 2.92±0.32 0.45±0.11   0.43±0.09
2DS0.2-I-MAE   1.75±0.18   1.58±0.12 3.16±0.43 4.73±1.21 4.58±0.93 0.42±0.01   0.33±0.02
2DS0.2-I-RMSE  2.30±0.51   1.88±0.09 3.34±0.10 4.82±1.97 4.60±1.08 0.42±0.04   0.34±0.02
2DS0.02-I-MAE  1.42±0.14   1.90±0.17 1.95±0.26 4.25±1.48 5.12±0.47 0.53±0.07   0.33±0.09
2DS0.02-I-RMSE 1.37±0.15   1.90±0.17 2.09±0.22 4.53±1.34 4.80±0.50 0.50±0.06   0.31±0.06
2DS2-E-MAE     4.48±0.82   4.84±0.43 4.46±0.60 4.29±1.34 3.32±0.85 0.69±0.07   0.53±0.06
2DS2-E-RMSE    5.36±0.97   6.02±0.58 5.70±0.57 4.68±1.70 3.44±1.06 0.75±0.07   0.52±0.06
2DS0.2-E-MAE   2.79±1.11   3.35±0.43 4.02±0.59 4.72±1.96 3.37±0.78 0.69±0.09   0.44±0.04
2DS0.2-E-RMSE  2.96±1.46   4.38±0.35 4.78±0.15 5.03±1.97 3.81±1.02 0.74±0.10   0.45±0.06
2DS0.02-E-MAE  1.49±0.12   2.02±0.07 1.52±0.09 2.83±0.88 2.38±0.04 0.65±0.08   0.34±0.08
2DS0.02-E-RMSE 1.37±0.11   2.07±0.02 1.59±0.05 2.69±0.82 2.24±0.03 0.64±0.10   0.32±0.06
""")),
    "The paper's baselines are quoted from the ContiFormer paper, which has 50 observed points and half the noise.",
)  # fmt: skip

ABLATION = Printed(
    "Ablation of LFormer",
    _rows(_block(" ".join(["row", FULL, *ABLATIONS]) + """
HR-RMSE        1.52±0.07   1.93±0.20   1.55±0.15   1.57±0.20   1.50±0.11   1.60±0.17   1.68±0.10   1.52±0.06
RR-RMSE        0.97±0.02   1.16±0.04   1.04±0.05   1.06±0.09   1.06±0.04   1.05±0.07   1.19±0.02   1.14±0.06
SpO2-RMSE      0.42±0.02   0.48±0.02   0.41±0.01   0.42±0.03   0.44±0.03   0.42±0.01   0.48±0.05   0.45±0.02
EC             45.30±3.50  39.70±2.60  41.80±5.40  42.00±5.20  40.30±4.40  40.30±4.40  41.00±4.10  39.70±4.60
EW             89.40±3.20  83.30±1.80  87.20±2.20  86.70±4.10  88.90±4.60  88.90±4.60  88.90±1.80  88.30±4.40
HB             81.60±1.60  80.30±1.60  80.00±1.60  81.00±2.10  80.30±0.60  80.30±0.60  80.30±3.30  82.30±2.30
MI             65.30±7.00  63.50±5.80  61.40±6.30  59.60±6.40  60.40±6.00  60.40±6.00  61.80±5.50  60.00±4.10
SCP1           84.50±1.70  89.20±4.00  84.90±3.70  85.20±3.50  84.00±3.80  84.50±3.70  86.40±3.50  86.40±3.50
SCP2           61.80±3.00  63.20±3.30  62.80±2.60  66.00±2.40  62.10±2.90  61.80±3.40  63.50±3.60  61.80±3.40
PHY-I          0.040±0.015 0.070±0.028 0.033±0.005 0.042±0.003 0.044±0.004 0.047±0.018 0.047±0.007 0.132±0.053
USH-I          0.001±0.000 0.003±0.002 0.001±0.000 0.001±0.000 0.001±0.000 0.001±0.000 0.001±0.000 inf
2DS2-I-RMSE    0.43±0.09   0.48±0.07   0.50±0.19   0.45±0.07   0.42±0.09   0.46±0.10   0.52±0.18   0.45±0.02
2DS0.2-I-RMSE  0.34±0.02   0.45±0.09   0.38±0.05   0.38±0.04   0.39±0.07   0.37±0.05   0.39±0.10   0.39±0.07
2DS0.02-I-RMSE 0.31±0.06   0.42±0.04   0.37±0.08   0.40±0.06   0.31±0.04   0.30±0.04   0.32±0.06   0.34±0.04
PHY-E          0.372±0.002 0.379±0.002 0.370±0.003 0.375±0.005 0.370±0.005 0.374±0.006 0.373±0.004 0.370±0.002
USH-E          0.840±0.018 0.884±0.007 0.835±0.010 0.836±0.005 0.890±0.116 0.837±0.014 0.842±0.004 inf
2DS2-E-RMSE    0.52±0.06   0.56±0.08   0.51±0.08   0.55±0.10   0.49±0.05   0.52±0.08   0.57±0.08   0.51±0.08
2DS0.2-E-RMSE  0.45±0.06   0.50±0.02   0.47±0.04   0.49±0.09   0.47±0.04   0.47±0.07   0.44±0.07   0.46±0.06
2DS0.02-E-RMSE 0.32±0.06   0.43±0.01   0.43±0.10   0.50±0.21   0.33±0.05   0.33±0.04   0.35±0.06   0.37±0.05
HA             92.87±0.16  89.94±0.76  90.87±0.49  91.72±0.35  91.83±0.17  91.81±0.17  91.80±0.38  20.49±0.00
PDL            2.05±0.25   inf         inf         inf         inf         1.56±0.36   2.85±0.26   inf
""")),
    "The paper's deviations of the full model are those of this table; two differ from its other tables. It prints the "
    "same figures for shared_mu and fixed_mu on four data sets.",
)  # fmt: skip

MAIN = (LTS_C, LTS_R, POINTS, RECORDS, SPIRALS)

# Parameters and inference, series of 4,096 rows and 12 channels per second, batch 16, on an RTX 4090.
PARAMETERS = {"lformer": 103_860, "transformer": 101_380, "mamba": 66_690, "r-ode": 34_560}
THROUGHPUT = {"lformer": 4652.90, "transformer": 257.95, "mamba": 8974.65, "r-ode": 2.46}


def lformer(dataset: str) -> dict[Measure, Figure]:
    """What the paper prints of LFormer on a data set, its ablations aside.

    Example:
        >>> [figure.text for figure in lformer("bidmc-hr").values()]
        ['1.03±0.04', '1.52±0.07']
    """
    rows = [(measure, row["lformer"]) for table in MAIN for measure, row in table.figures.items()]
    return {measure: figure for measure, figure in rows if measure.dataset == dataset}
