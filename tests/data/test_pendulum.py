"""The pendulum benchmark: physics, images and noise of the protocol, and a draw that stays the same for ever."""

import hashlib
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from lformer.data import pendulum
from lformer.data.dataset import Array, Request
from lformer.data.pendulum import DATASET, canvas, draw, film, generate, kept, lanczos, picture, reduced, swing, weights
from lformer.parts import Prepared, splits_of

REST = np.zeros((1, 99))
KEPT_0 = [1, 2, 3, 4, 5, 6, 7, 8, 13, 15, 16, 17]
KEPT_2000 = [0, 3, 6, 9, 10, 11, 13, 17, 18, 19, 22, 25]
ROWS = "bdafc1cf6242182c5d788011a8ec36934f79bd9754aaaa913fbcd29ee329537c"
TARGETS = "aee04e702adf0cc0bbf20121111512eec4dbff1f71aea1cce85448944e258927"
MEAN = 61.2667  # grey levels
ANGLES = np.linspace(-math.pi, math.pi, 181)


@pytest.fixture(scope="module", autouse=True)
def views() -> Iterator[Array]:
    """Made once for all sets of this file."""
    made = pendulum.views()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pendulum, "views", lambda: made)
        yield made


@pytest.fixture(scope="module")
def small() -> Prepared:
    return generate(6, 4, 3)


@pytest.fixture(scope="module")
def full() -> Prepared:
    return pendulum.prepare({}, Request(task="regress-points", seed=1, split="published", scaling="published"))


# -- physics


def test_without_friction_and_noise_energy_is_kept() -> None:
    start = np.linspace(0.1, 6.2, 9)
    angle, speed = swing(start, np.zeros((9, 99)), friction=0.0)
    energy = speed**2 / 2 + 29.43 * np.cos(angle)
    assert np.ptp(speed, axis=1).min() > 0.05  # it does move
    np.testing.assert_allclose(energy, np.broadcast_to(energy[:, :1], energy.shape), atol=0.03)


@pytest.mark.parametrize("friction", [0.0, 0.1, 2.0])
def test_a_small_swing_about_the_lower_rest_is_the_damped_cosine(friction: float) -> None:
    angle, _ = swing(np.array([math.pi + 1e-3]), REST, friction)
    t = 0.01 * np.arange(100)
    decay = friction / 2
    omega = math.sqrt(29.43 - decay**2)  # a period of 1.16 s without friction
    expected = 1e-3 * np.exp(-decay * t) * (np.cos(omega * t) + decay / omega * np.sin(omega * t))
    np.testing.assert_allclose(angle[0] - math.pi, expected, atol=1e-6)


def test_large_swings_are_those_of_a_precise_solver() -> None:
    start = np.array([0.5, 1.5, 3.0, 4.0, 5.9])
    angle, speed = swing(start, np.zeros((5, 99)))
    times = 0.01 * np.arange(100)
    for i, first in enumerate(start):
        exact = solve_ivp(
            lambda _, s: [s[1], 29.43 * math.sin(s[0]) - 0.1 * s[1]], (0, 1), [first, 0.0], t_eval=times, rtol=1e-10
        )
        np.testing.assert_allclose(angle[i], exact.y[0] % (2 * math.pi), atol=1e-3)
        np.testing.assert_allclose(speed[i], exact.y[1], atol=5e-3)


def test_a_kick_changes_the_speed_at_its_frame_and_the_angle_from_the_next_on() -> None:
    kicks = REST.copy()
    kicks[0, 9] = 0.5
    angle, speed = swing(np.array([math.pi]), kicks)
    assert np.abs(angle[0, :11] - math.pi).max() < 1e-12
    assert speed[0, 9] == pytest.approx(0, abs=1e-12)
    assert speed[0, 10] == pytest.approx(0.5)
    assert angle[0, 11] - math.pi == pytest.approx(0.005, rel=0.01)


def test_draws_follow_the_process() -> None:
    swings = draw(1000, np.random.RandomState(0))
    assert swings.angle.shape == swings.drawn.shape == swings.weight.shape == (1000, 100)
    assert swings.angle.min() >= -math.pi
    assert swings.angle.max() < math.pi
    quarters = np.histogram(swings.angle[:, 0], bins=4, range=(-math.pi, math.pi))[0]
    assert quarters.min() > 200  # of 250; started anywhere on the circle
    error = swings.drawn - swings.angle
    assert error.std() == pytest.approx(1e-5, rel=0.01)

    speed = np.diff(np.unwrap(swings.angle), axis=1) / 0.01
    pull = 29.43 * np.sin(swings.angle[:, 1:-1] + math.pi) - 0.1 * speed[:, :-1]
    kicks = np.diff(speed, axis=1) - 0.01 * pull  # what gravity and friction do not explain
    assert kicks.std() == pytest.approx(0.1, rel=0.02)
    assert abs(np.corrcoef(kicks[:, :-1].ravel(), kicks[:, 1:].ravel())[0, 1]) < 0.02


# -- images


def test_lanczos_is_that_of_pillow() -> None:
    Image = pytest.importorskip("PIL.Image")
    image = np.random.RandomState(0).random_sample((128, 128)).astype(np.float32)
    matrix = lanczos(128, 24)
    ours = matrix @ image @ matrix.T
    theirs = np.asarray(Image.fromarray(image).resize((24, 24), Image.Resampling.LANCZOS))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    rod = canvas(np.array([0.7]), fine=1)[0]
    theirs = np.asarray(Image.fromarray(rod).resize((24, 24), Image.Resampling.LANCZOS))
    np.testing.assert_allclose(reduced(np.array([0.7]), fine=1)[0], theirs, atol=1e-6)


def test_the_canvas_shows_a_rod_of_the_right_size_and_place() -> None:
    down, right = canvas(np.array([0.0, math.pi / 2]), fine=1)
    expected = np.zeros((128, 128))
    expected[64:119, 60:68] = 1  # rows 64 to 64 + 55, columns 64 - 4 to 64 + 4
    np.testing.assert_allclose(down, expected, atol=1e-4)
    np.testing.assert_allclose(right, expected.T, atol=1e-4)


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 4, 2.0])
def test_coverage_is_the_share_of_a_pixel_inside_the_rod(angle: float) -> None:
    fine = (np.arange(128 * 16) + 0.5) / 16 - 64
    across = math.cos(angle) * fine - math.sin(angle) * fine[:, None]
    along = math.sin(angle) * fine + math.cos(angle) * fine[:, None]
    inside = (np.abs(across) < 4) & (along > 0) & (along < 55)
    share = inside.reshape(128, 16, 128, 16).mean(axis=(1, 3))
    drawn = canvas(np.array([angle]))[0].reshape(128, pendulum.FINE, 128, pendulum.FINE).mean(axis=(1, 3))
    np.testing.assert_allclose(drawn, share, atol=0.06)
    assert drawn.sum() == pytest.approx(440, rel=0.003)


def test_brightness_does_not_depend_on_the_angle() -> None:
    brightness = reduced(ANGLES).sum(axis=(1, 2))
    assert np.ptp(brightness) < 0.01 * brightness.mean()
    assert brightness.mean() == pytest.approx(440 * (24 / 128) ** 2, rel=0.01)


def test_a_quarter_turn_of_the_angle_is_a_quarter_turn_of_the_image() -> None:
    angles = np.array([0.0, 0.2, 0.9, 1.4])
    np.testing.assert_allclose(reduced(angles + math.pi / 2), np.rot90(reduced(angles), axes=(1, 2)), atol=1e-5)


def test_the_rod_points_where_the_angle_says(views: Array) -> None:
    image = picture(ANGLES, views)
    place = np.arange(24) - 11.5
    right, down = (image * place).sum(axis=(1, 2)), (image * place[:, None]).sum(axis=(1, 2))
    off = np.angle(np.exp(1j * (np.arctan2(right, down) - ANGLES)))
    assert np.abs(off).max() < 0.015  # radians; 0 is down, a quarter turn is to the right
    hanging = image[90]  # angle 0
    assert hanging[12:22, 11:13].min() > 0.7  # from the middle to 55 of 64 pixels down
    assert hanging[23:].max() < 0.05
    assert hanging[:11].max() < 0.05


def test_pictures_between_two_views_are_as_if_drawn(views: Array) -> None:
    rng = np.random.RandomState(0)
    angles = np.concatenate([rng.uniform(-10, 10, 100), rng.normal(0, 0.03, 50), math.pi / 4 + rng.normal(0, 0.02, 50)])
    drawn = np.clip(reduced(angles), 0, 1)
    assert 255 * np.abs(picture(angles, views) - drawn).max() < 0.4  # grey levels
    seam = np.array([0.0, 2 * math.pi, -1e-20, np.nextafter(2 * math.pi, 0)])  # all the same to the eye
    assert 255 * np.abs(picture(seam, views) - np.clip(reduced(np.zeros(1)), 0, 1)).max() < 0.01


def test_the_image_moves_a_little_with_a_small_angle() -> None:
    """Without smooth edges a turn of a tenth of a degree changes nothing, or a whole pixel of the canvas."""
    step = math.radians(0.1)
    angles = 0.6 + step * np.arange(40)
    change = np.abs(np.diff(reduced(angles), axis=0)).sum(axis=(1, 2))
    assert change.min() > 0.6 * change.mean()
    assert change.max() < 1.5 * change.mean()


# -- noise


def test_the_first_five_frames_are_clean_and_weights_are_shares() -> None:
    weight = weights(500, np.random.RandomState(0))
    assert bool((weight[:, :5] == 1).all())
    assert not bool((weight[:, 5] == 1).all())
    assert weight.min() == 0
    assert weight.max() == 1


def test_weights_are_0_and_1_as_often_as_the_process_says() -> None:
    weight = weights(4000, np.random.RandomState(3))[:, 5:]
    zero, one = _expected_shares()
    assert (weight == 0).mean() == pytest.approx(zero, abs=0.01)
    assert (weight == 1).mean() == pytest.approx(one, abs=0.01)
    assert 0.15 < zero < 0.25
    assert zero == pytest.approx(one)  # the walk and its thresholds are symmetric


def _expected_shares(cells: int = 400) -> tuple[float, float]:
    """How often the clipped walk lies below the lower and above the upper threshold, from its exact distribution."""
    reach = cells // 5  # 0.2
    kernel = np.full(2 * reach + 1, 1.0)
    kernel[[0, -1]] = 0.5
    kernel /= kernel.sum()
    place = np.linspace(0, 1, cells + 1)
    chance = np.full(cells + 1, 1.0)
    chance[[0, -1]] = 0.5
    chance /= chance.sum()
    below, above = np.clip(1 - place / 0.25, 0, 1), np.clip((place - 0.75) / 0.25, 0, 1)  # that a threshold is beyond
    shares = []
    for frame in range(1, 100):
        wide = np.convolve(chance, kernel)  # from -0.2 to 1.2
        chance = wide[reach:-reach]
        chance[0] += wide[:reach].sum()
        chance[-1] += wide[-reach:].sum()
        if frame >= 5:
            shares.append((float(chance @ below), float(chance @ above)))
    zero, one = np.mean(shares, axis=0)
    return float(zero), float(one)


def test_weights_have_a_memory_in_time() -> None:
    weight = weights(2000, np.random.RandomState(1))[:, 5:]
    near = np.corrcoef(weight[:, :-1].ravel(), weight[:, 1:].ravel())[0, 1]
    far = np.corrcoef(weight[:, :-50].ravel(), weight[:, 50:].ravel())[0, 1]
    assert 0.9 < near < 1
    assert far < 0.3
    assert 0.3 < np.abs(np.diff(weight, axis=1)).max() <= 0.2 / (0.75 - 0.25)  # a step of 0.2, stretched


def test_noise_is_uniform_and_white_in_space(views: Array) -> None:
    frames = film(np.zeros(200), np.zeros(200), views, np.random.RandomState(0)).astype(np.float64)
    assert frames.mean() == pytest.approx(127.5, abs=1)
    assert frames.std() == pytest.approx(255 / math.sqrt(12), rel=0.01)
    assert frames.min() == 0
    assert frames.max() == 255
    centred = frames - 127.5
    for shifted, still in (
        (centred[:, 1:], centred[:, :-1]),
        (centred[:, :, 1:], centred[:, :, :-1]),
        (centred[1:], centred[:-1]),
    ):
        assert abs((shifted * still).mean()) / centred.var() < 0.02


def test_a_frame_is_image_and_noise_by_weight(views: Array) -> None:
    angles = np.array([0.3, 0.3, 0.3])
    frames = film(angles, np.array([1.0, 0.25, 0.0]), views, np.random.RandomState(5))
    noise = np.random.RandomState(5).random_sample((3, 24, 24))
    image = picture(angles, views)
    assert np.abs(frames[0] - 255.0 * image[0]).max() <= 0.501
    assert np.abs(frames[1] - 255 * (0.25 * image[1] + 0.75 * noise[1])).max() <= 0.501
    assert np.abs(frames[2] - 255 * noise[2]).max() <= 0.501


# -- the set


def test_kept_frames_never_change() -> None:
    assert kept(0)[:12].tolist() == KEPT_0
    assert kept(2000)[:12].tolist() == KEPT_2000
    for seed in (0, 2000, 4000):
        frames = kept(seed)
        assert len(np.unique(frames)) == 50
        assert bool((np.diff(frames) > 0).all())
        assert 0 <= frames[0] < frames[-1] < 100


def test_a_small_set_never_changes(small: Prepared) -> None:
    rows = np.rint(10 * small.panel.times).astype("<i8")
    targets = np.rint(1e4 * small.targets.values.astype(np.float64)).astype("<i8")  # the last bits vary by machine
    assert hashlib.sha256(rows.tobytes()).hexdigest() == ROWS
    assert hashlib.sha256(targets.tobytes()).hexdigest() == TARGETS
    assert small.panel.values.mean() == pytest.approx(MEAN, abs=0.01)


def test_each_part_keeps_frames_by_its_own_seeds(small: Prepared) -> None:
    frames = np.rint(10 * small.panel.times).astype(int).reshape(13, 50)
    for members, first in ((small.train, 2000), (small.test, 0), (small.validation, 4000)):
        for i, k in enumerate(members):
            assert frames[k].tolist() == kept(first + i).tolist()


def test_parts_are_drawn_one_after_the_other_from_one_stream(small: Prepared) -> None:
    rng = np.random.RandomState(42)
    targets = small.targets.values.reshape(13, 50, 2)
    for members, first in ((small.train, 2000), (small.test, 0), (small.validation, 4000)):
        angle = draw(len(members), rng).angle
        for i, k in enumerate(members):
            np.testing.assert_allclose(targets[k, :, 0], np.sin(angle[i, kept(first + i)]), atol=1e-6)
            np.testing.assert_allclose(targets[k, :, 1], np.cos(angle[i, kept(first + i)]), atol=1e-6)
    assert np.array_equal(generate(6, 4, 0).panel.values, small.panel.values[: 10 * 50])  # later ones move nothing


def test_clean_frames_show_their_target(small: Prepared) -> None:
    clean = np.flatnonzero(small.panel.times < 0.45)  # frames 0 to 4
    assert len(clean) > 20
    place = np.arange(24) - 11.5
    image = small.panel.values[clean].astype(np.float64)
    right, down = (image * place).sum(axis=(1, 2)), (image * place[:, None]).sum(axis=(1, 2))
    shown = np.stack([right, down], axis=-1) / np.hypot(right, down)[:, None]
    np.testing.assert_allclose(shown, small.targets.values[clean], atol=0.02)


def test_the_full_set_has_the_published_size(full: Prepared) -> None:
    panel, card = full.panel, DATASET.card
    assert DATASET.prepare is pendulum.prepare
    assert [len(part) for part in (full.train, full.test, full.validation)] == [2000, 1000, 1000]
    assert np.array_equal(np.concatenate([full.train, full.test, full.validation]), np.arange(4000))
    assert len(panel) == card.series == 4000
    assert panel.values.shape == (200_000, 24, 24)
    assert panel.values.dtype == np.uint8
    assert panel.observed is None
    assert set(panel.lengths.tolist()) == {50}
    assert len(panel.channels) == 24
    assert panel.times.min() == 0
    assert panel.times.max() == 9.9
    assert full.targets.at == "rows"
    assert full.targets.values.dtype == np.float32
    np.testing.assert_allclose(np.square(full.targets.values).sum(axis=1), 1, atol=1e-6)
    assert full.targets.values.mean(axis=0)[1] > 0.05  # a pendulum hangs down more than it stands


def test_no_two_series_of_the_full_set_keep_the_same_frames_or_start_alike(full: Prepared) -> None:
    frames = np.rint(10 * full.panel.times).astype(np.uint8).reshape(4000, 50)
    assert len(np.unique(frames, axis=0)) == 4000
    assert len(np.unique(full.targets.values[::50], axis=0)) == 4000
    assert len(np.unique(full.panel.values[25::50].reshape(4000, -1), axis=0)) > 3500  # clean ones may be equal


def test_batches_are_scaled_and_carry_their_targets(full: Prepared) -> None:
    part = splits_of(full, "pendulum", "regress-points", seed=7).validation
    batch = part.batch(np.array([0, 3]))
    rows = slice(3003 * 50, 3004 * 50)
    assert batch.values.shape == (2, 50, 24, 24)
    np.testing.assert_allclose(batch.values[1].numpy(), full.panel.values[rows] / 255.0, atol=1e-6)
    assert batch.targets is not None
    assert torch.equal(batch.targets[1], torch.from_numpy(full.targets.values[rows]))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TRAIN": 3, "TEST": 2, "VALIDATION": 2}.items():
        monkeypatch.setattr(pendulum, name, value)


@pytest.mark.usefixtures("tiny")
def test_the_seed_of_a_request_moves_nothing() -> None:
    one, two = (
        pendulum.prepare({}, Request(task="regress-points", seed=seed, split="published", scaling="published"))
        for seed in (1, 2)
    )
    assert np.array_equal(one.panel.values, two.panel.values)
    assert np.array_equal(one.panel.times, two.panel.times)
    assert np.array_equal(one.targets.values, two.targets.values)
    assert (one.train.tolist(), one.test.tolist(), one.validation.tolist()) == ([0, 1, 2], [3, 4], [5, 6])


def test_the_frames_are_not_copied_on_their_way_into_the_panel(small: Prepared) -> None:
    assert small.panel.values.base is not None
    assert small.panel.values.base.shape == (13, 50, 24, 24)  # the array that was filled series by series


def test_the_bar_is_shown_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(1, 1, 1, progress=True)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for a terminal
    generate(1, 1, 1, progress=False)
    assert capsys.readouterr() == ("", "")
    generate(1, 1, 1, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "pendulum" in shown.err
