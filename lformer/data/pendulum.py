"""Angle of a pendulum from images that are covered by noise at times (row regression benchmark). Nothing to download.

The task is that of the recurrent Kalman networks (Becker et al. 2019) in the irregular form of the continuous recurrent
units (Schirmer et al. 2022): 100 frames of a swinging pendulum, 50 of which are kept at random, and for each of these
the sine and cosine of the angle are to be predicted. 2,000 series are for training, 1,000 for test, 1,000 for
validation.

Motion: a rod of mass 1 and length 1 starts at rest at an angle uniform over the circle. `angle'' = 29.43 sin(angle) -
0.1 angle'`, by semi-implicit Euler with a step of 1e-4 s; there is a frame every 0.01 s, after which N(0, 0.1²) is
added to the speed. Upright is 0 here; what is stored is the angle minus π, in [-π, π), which is 0 when the rod hangs
down.

Image: `image[row, column]`, with rows downwards and columns to the right. On 128 x 128 pixels, pixel k covering
[k, k + 1], a rod of width 8 runs from the centre (64, 64) to column 64 + 55 sin, row 64 + 55 cos of the angle (plus
N(0, 1e-5²)): at 0 it points down, a quarter turn later to the right. It is reduced to 24 x 24 by a Lanczos filter,
clipped to [0, 1] and stored in 8 bits; the model sees `value / 255`.

Noise: a random walk per series over all 100 frames determines how much of the image is visible, `frame = weight * image
+ (1 - weight) * noise`, with uniform noise for each pixel; the first 5 of the 100 frames are clean. So the noise is
correlated in time, but not in space.

Differences from the published generator:

* The rod is drawn with smooth edges; the published code draws it without (and half a pixel off the centre), so that its
  outline jumps from pixel to pixel as the angle grows. The Lanczos filter is a matrix, which needs no imaging library.
* Frames are rounded to 8 bits once, after noise was added.
* There is a validation set. CRU and ACSSM have none and read the test error in every epoch; LatentSDE-HS draws one
  after the test set, as here.
* The frames of a validation series are chosen with the seed 4000 + i, so that they repeat those of no other part;
  LatentSDE-HS uses i, which repeats those of the test set. Training uses 2000 + i and test i, as published.
* All draws use numpy's `RandomState`, whose stream will never change, in the order given at `draw`; so the motions are
  different draws of the same process from those of the published code.

The set is a single fixed draw: it does not depend on the seed of the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from lformer.data.dataset import Card, Dataset, Raw, Request
from lformer.panel import Panel
from lformer.parts import Prepared, Targets

Array = np.ndarray[Any, Any]

TRAIN, TEST, VALIDATION = 2000, 1000, 1000
SEED = 42
KEPT_SEEDS = {"train": 2000, "test": 0, "validation": 4000}  # of the first series of each part

FRAMES, KEPT, CLEAN = 100, 50, 5
PULL, FRICTION = 9.81 / (1 / 3), 0.1  # g l m over the inertia m l² / 3 of a rod
STEP, STEPS = 1e-4, 100  # seconds, and number per frame
SPEED_NOISE, ANGLE_NOISE = 0.1, 1e-5

CANVAS, SIZE = 128, 24  # pixels
WIDTH, REACH = 8.0, 55.0  # of the rod on the canvas
FINE = 3  # oversampling of the canvas along each axis; within 1.1 grey levels of the limit
VIEWS = 8192  # angles at which the rod is drawn; within 0.3 grey levels of drawing each angle separately


@dataclass(frozen=True, eq=False)
class Swings:
    """Motion and noise of n series, frame by frame.

    Attributes:
        angle: (n, 100) true angle in [-π, π), 0 = hanging down.
        drawn: (n, 100) angle shown by the image.
        weight: (n, 100) share of the image in the frame; the rest is noise.
    """

    angle: Array
    drawn: Array
    weight: Array


def draw(count: int, rng: np.random.RandomState) -> Swings:
    """Draw some series; the parts of the set are drawn one after the other from the same stream.

    Order of the draws: first angles (n,), changes of speed (n, 99), errors of the drawn angle (n, 100), then `weights`.
    """
    start = rng.uniform(0, 2 * np.pi, count)
    kicks = rng.normal(0, SPEED_NOISE, (count, FRAMES - 1))
    errors = rng.normal(0, ANGLE_NOISE, (count, FRAMES))
    angle = swing(start, kicks)[0] - np.pi
    return Swings(angle=angle, drawn=angle + errors, weight=weights(count, rng))


def swing(start: Array, kicks: Array, friction: float = FRICTION) -> tuple[Array, Array]:
    """Motion from rest, where upright is angle 0.

    Args:
        start: (n,) angles of the first frame.
        kicks: (n, F - 1) changes of the speed after each step from one frame to the next.
        friction: friction per second.

    Returns:
        angle (n, F) in [0, 2π) and speed (n, F).
    """
    angle, speed = start % (2 * np.pi), np.zeros(len(start))
    path = [(angle.copy(), speed.copy())]
    for kick in kicks.T:
        for _ in range(STEPS):
            speed += STEP * (PULL * np.sin(angle) - friction * speed)
            angle += STEP * speed
        speed += kick
        angle %= 2 * np.pi
        path.append((angle.copy(), speed.copy()))
    angles, speeds = zip(*path, strict=True)
    return np.stack(angles, axis=1), np.stack(speeds, axis=1)


def weights(count: int, rng: np.random.RandomState) -> Array:
    """(n, 100) share of the image in each frame: 1 in the first five, then a random walk between two thresholds.

    Order of the draws: start of the walk (n,), its steps (n, 99), lower threshold (n,), upper threshold (n,).
    """
    walk = [rng.uniform(0, 1, count)]
    for step in rng.uniform(-0.2, 0.2, (count, FRAMES - 1)).T:
        walk.append(np.clip(walk[-1] + step, 0, 1))
    low, high = rng.uniform(0, 0.25, (count, 1)), rng.uniform(0.75, 1, (count, 1))
    weight = np.clip((np.stack(walk, axis=1) - low) / (high - low), 0, 1)
    weight[:, :CLEAN] = 1
    return weight


def kept(seed: int) -> Array:
    """(50,) the frames that a series keeps out of 100, in order."""
    return np.sort(np.random.RandomState(seed).choice(FRAMES, KEPT, replace=False))


# -- images


def lanczos(large: int, small: int, lobes: int = 3) -> Array:
    """(small, large) the matrix that reduces one axis of an image, as in imaging libraries."""
    factor = large / small
    middle = (np.arange(small) + 0.5) * factor
    offset = (np.arange(large) + 0.5 - middle[:, None]) / factor
    weight = np.where(np.abs(offset) < lobes, np.sinc(offset) * np.sinc(offset / lobes), 0)
    return weight / weight.sum(axis=1, keepdims=True)


def canvas(angles: Array, fine: int = FINE) -> Array:
    """(n, 128 fine, 128 fine) float32 share of each pixel that the rod covers, by distance from its nearest edge."""
    place = (np.arange(CANVAS * fine) + 0.5 - CANVAS * fine / 2).astype(np.float32)  # in fine pixels, as all below
    right, down = place, place[:, None]
    sin, cos = (f(angles).astype(np.float32)[:, None, None] for f in (np.sin, np.cos))
    width, reach = np.float32(WIDTH * fine), np.float32(REACH * fine)
    inside_sides = width / 2 - np.abs(cos * right - sin * down)
    inside_ends = reach / 2 - np.abs(sin * right + (cos * down - reach / 2))
    return np.clip(np.minimum(inside_sides, inside_ends) + np.float32(0.5), 0, 1)


def reduced(angles: Array, fine: int = FINE) -> Array:
    """(n, 24, 24) float32 the rod at each angle, not yet clipped: Lanczos goes a little below 0 and above 1."""
    matrix = (lanczos(CANVAS, SIZE).repeat(fine, axis=1) / fine).astype(np.float32)  # also averages the fine pixels
    images = np.empty((len(angles), SIZE, SIZE), np.float32)
    for start in range(0, len(angles), 16):  # a few at a time fit into the processor's cache
        some = slice(start, start + 16)
        narrow = np.tensordot(canvas(angles[some], fine), matrix, (2, 1))  # (16, rows, 24); one product, not 16
        images[some] = np.tensordot(narrow, matrix, (1, 1)).transpose(0, 2, 1)
    return images


def views() -> Array:
    """(8193, 24, 24) float32 the rod at angles spread evenly over [0, 2π], not yet clipped."""
    quarter = reduced(np.linspace(0, np.pi / 2, VIEWS // 4, endpoint=False))
    turned = [np.rot90(quarter, turns, axes=(1, 2)) for turns in range(4)]  # the canvas is symmetric
    return np.concatenate([*turned, quarter[:1]])


def picture(angles: Array, views: Array) -> Array:
    """(n, 24, 24) float32 in [0, 1]: the rod at each angle, interpolated between the two nearest views."""
    place = angles % (2 * np.pi) / (2 * np.pi) * (len(views) - 1)
    before = np.minimum(place.astype(np.int64), len(views) - 2)
    share = (place - before).astype(np.float32)[:, None, None]
    first = views[before]
    return np.clip(first + share * (views[before + 1] - first), 0, 1)


def film(angles: Array, weight: Array, views: Array, rng: np.random.RandomState) -> Array:
    """(n, 24, 24) uint8 frames of one series; the noise takes n x 24 x 24 numbers from `rng`."""
    image = picture(angles, views)
    noise = rng.random_sample(image.shape)
    frames = noise + weight[:, None, None] * (image - noise)
    return np.rint(255 * frames).astype(np.uint8)


# -- the set


def generate(train: int, test: int, validation: int, *, progress: bool = False) -> Prepared:
    """Generate a set of any size.

    Series are in the order training, test, validation. The noise of the k-th series has its own stream, seeded by
    (42, k), and is drawn only for its 50 kept frames.

    Args:
        train, test, validation: number of series of each part.
        progress: show a progress bar if this runs in a terminal.
    """
    rng = np.random.RandomState(SEED)
    counts = {"train": train, "test": test, "validation": validation}
    parts = [draw(count, rng) for count in counts.values()]
    frame = np.stack([kept(KEPT_SEEDS[part] + i) for part, count in counts.items() for i in range(count)])  # (n, 50)
    angle, drawn, weight = (
        np.take_along_axis(np.concatenate([getattr(part, name) for part in parts]), frame, axis=1)
        for name in ("angle", "drawn", "weight")
    )

    n = train + test + validation
    rod = views()
    frames = np.empty((n, KEPT, SIZE, SIZE), np.uint8)
    console = Console(stderr=True)
    for k in track(
        range(n), "pendulum", console=console, transient=True, disable=not (progress and console.is_terminal)
    ):
        frames[k] = film(drawn[k], weight[k], rod, np.random.RandomState([SEED, k]))

    panel = Panel.build(
        frame.ravel() / 10,
        frames.reshape(-1, SIZE, SIZE),
        np.full(n, KEPT),
        channels=[f"column {c}" for c in range(SIZE)],
        scale=1 / 255,
    )
    asked = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(-1, 2).astype(np.float32)
    members = np.split(np.arange(n), [train, train + test])
    return Prepared(
        panel=panel,
        targets=Targets(values=asked, at="rows"),
        train=members[0],
        test=members[1],
        validation=members[2],
    )


def prepare(raw: Raw, request: Request, *, progress: bool = True) -> Prepared:
    """The 4,000 series; `raw` is empty, and the seed of the request has no effect.

    Values are 8-bit frames (200,000, 24, 24) in units of 1/255, times are frame numbers x 0.1 as in ACSSM (CRU has the
    number itself), and targets (200,000, 2) are the sine and cosine of the true angle.
    """
    return generate(TRAIN, TEST, VALIDATION, progress=progress)


CARD = Card(
    name="pendulum",
    title="Pendulum (angle from noisy images)",
    page="https://github.com/boschresearch/Continuous-Recurrent-Units",
    licence="generated by this package, under its own licence",
    citation=(
        "P. Becker, H. Pandya, G. Gebhardt, C. Zhao, J. Taylor, G. Neumann: Recurrent Kalman Networks: Factorized "
        "Inference in High-Dimensional Deep Feature Spaces. ICML 2019. Irregular form: M. Schirmer, M. Eltayeb, "
        "S. Lessmann, M. Rudolph: Modeling Irregular Time Series with Continuous Recurrent Units. ICML 2022."
    ),
    series=TRAIN + TEST + VALIDATION,
    length="50 of 100 frames",
    channels="24 x 24 pixels, 8 bits each",
    tasks=("regress-points",),
)

DATASET = Dataset(card=CARD, prepare=prepare, pack=None)
