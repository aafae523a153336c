"""A folder holds one whole model at every moment, whoever saves, loads or is killed meanwhile."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimators.every_estimator import SMALL, fitted, records

from lformer import LFormerClassifier
from lformer.estimators import artefact, folder, load

X = records()


def trained(seed: int) -> LFormerClassifier:
    return fitted(LFormerClassifier, X, random_state=seed)


@pytest.fixture(scope="module")
def old() -> LFormerClassifier:
    return trained(1)


@pytest.fixture(scope="module")
def new() -> LFormerClassifier:
    return trained(2)


@pytest.fixture
def saved(old: LFormerClassifier, tmp_path: Path) -> Path:
    old.save(tmp_path / "model")
    return tmp_path / "model"


def names(place: Path) -> set[str]:
    return {entry.name for entry in place.iterdir()}


def require_whole(place: Path, *models: LFormerClassifier) -> int:
    """The folder holds one of the models, description and weights; tells which."""
    again = load(place)
    which = [model.random_state for model in models].index(again.random_state)
    assert np.array_equal(again.predict_proba(X), models[which].predict_proba(X))
    return which


# -- one save after the other


def test_saving_again_replaces_and_leaves_nothing_beside(
    saved: Path, old: LFormerClassifier, new: LFormerClassifier
) -> None:
    for model in (new, old, new, new):
        model.save(saved)
        require_whole(saved, model)
        assert names(saved) == {"estimator.json", _weights(saved)}
        assert names(saved.parent) == {"model"}


def _weights(place: Path) -> str:
    return artefact._described(artefact._read(place), place).weights.file


def test_other_files_are_never_deleted(old: LFormerClassifier, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"contains files that do not belong to a model \(notes.txt\)"):
        old.save(tmp_path)
    with pytest.raises(ValueError, match=r"notes.txt is a file"):
        old.save(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    old.save(tmp_path / "empty")
    assert load(tmp_path / "empty").width == SMALL["width"]
    (tmp_path / "strange/model.safetensors").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"contains files that do not belong to a model \(model.safetensors\)"):
        old.save(tmp_path / "strange")


@pytest.mark.parametrize("name", ["model-0.safetensors", "Model.safetensors", "estimator.json.bak", "x.part", "a.json"])
def test_only_names_of_ours_are_ours(saved: Path, old: LFormerClassifier, name: str) -> None:
    (saved / name).touch()
    with pytest.raises(ValueError, match="contains files that do not belong to a model"):
        old.save(saved)
    assert load(saved).width == SMALL["width"]


LEFT = ["estimator.json.abcd_123.part", "model.safetensors.zzzzzzzz.part", "model-0123456789ab.safetensors"]


def test_leftovers_of_killed_saves_do_no_harm_and_go_with_the_next_save(
    saved: Path, old: LFormerClassifier, new: LFormerClassifier
) -> None:
    for name in LEFT:
        (saved / name).write_bytes(b"half of someth")
    require_whole(saved, old)
    new.save(saved)
    require_whole(saved, new)
    assert names(saved) == {"estimator.json", _weights(saved)}


def test_leftovers_of_a_first_save_do_no_harm(tmp_path: Path, old: LFormerClassifier) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(FileNotFoundError, match=r"estimator\.json is missing"):
        load(tmp_path)
    old.save(tmp_path)
    require_whole(tmp_path, old)
    assert names(tmp_path) == {"estimator.json", _weights(tmp_path)}


# -- a save that does not come to its end

OPERATIONS = ("mkdir", "open", "chmod", "fsync", "replace", "unlink", "rmdir")


class Killed(BaseException):
    """The process is no more: nothing that it would still do happens."""


def failing(patch: pytest.MonkeyPatch, at: int, error: BaseException, dead: bool, names: tuple[str, ...]) -> list[str]:
    """Let the operation `at` on files fail, and every later one too if the process is dead; returns those so far."""
    done: list[str] = []

    def counted(name: str, act: Callable[..., Any], half: Callable[..., Any] | None = None) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            done.append(name)
            if len(done) == at and half is not None:
                half(*arguments, **options)
            if len(done) == at or (dead and len(done) > at):
                raise error
            return act(*arguments, **options)

        return run

    for name in names:
        patch.setattr(os, name, counted(name, getattr(os, name)))
    write_bytes, write_text = Path.write_bytes, Path.write_text
    patch.setattr(
        Path, "write_bytes", counted("write", write_bytes, lambda path, content: write_bytes(path, content[:1000]))
    )
    patch.setattr(
        Path, "write_text",
        counted("write", write_text, lambda path, text, **options: write_text(path, text[:300], **options)),
    )  # fmt: skip
    return done


@pytest.mark.parametrize("before", [0, 1, 2], ids=["new", "once", "twice"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_model(
    tmp_path: Path, old: LFormerClassifier, new: LFormerClassifier, before: int
) -> None:
    """`before` saves of the old model came first, so the names of its weights differ."""
    seen, step, finished = set(), 0, False
    while not finished:
        step += 1
        place = tmp_path / str(step)
        for _ in range(before):
            old.save(place)
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, step, Killed(), True, OPERATIONS)
            try:
                new.save(place)
                finished = True
            except Killed:
                pass
        try:
            seen.add(require_whole(place, old, new))
        except FileNotFoundError:
            assert before == 0
            seen.add(-1)
        old.save(place)
        require_whole(place, old)
        assert names(place) == {"estimator.json", _weights(place)}
    assert step > 10
    assert seen == ({-1, 1} if before == 0 else {0, 1})


@pytest.mark.parametrize("before", [0, 1, 2], ids=["new", "once", "twice"])
def test_an_error_at_any_step_leaves_the_old_model_and_no_rest(
    tmp_path: Path, old: LFormerClassifier, new: LFormerClassifier, before: int
) -> None:
    full = OSError(errno.ENOSPC, "no space left on device")
    writing = tuple(name for name in OPERATIONS if name not in ("unlink", "rmdir"))
    step, finished, failures = 0, False, 0
    while not finished:
        step += 1
        place = tmp_path / str(step) / "model"
        place.parent.mkdir()
        for _ in range(before):
            old.save(place)
        there = names(place) if before else set()
        with pytest.MonkeyPatch.context() as patch:
            done = failing(patch, step, full, False, writing)
            try:
                new.save(place)
                finished = len(done) < step
            except OSError as error:
                assert error is full  # noqa: PT017
                failures += 1
                patch.undo()
                assert (names(place) if place.exists() else set()) == there
                assert not before or require_whole(place, old, new) == 0
                continue
        require_whole(place, new)
    assert failures > 5


def test_an_interrupt_after_the_change_keeps_the_new_model(
    saved: Path, new: LFormerClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the change and the end: the weights just named must not be taken for those of a failed save."""
    write = artefact.write_text

    def interrupted(*arguments: Any) -> None:
        write(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(artefact, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        new.save(saved)
    require_whole(saved, new)
    assert names(saved) == {"estimator.json", _weights(saved)}


# -- several at once


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("before", [0, 1], ids=["new", "again"])
def test_a_save_spares_what_another_one_is_writing(
    tmp_path: Path,
    old: LFormerClassifier,
    new: LFormerClassifier,
    monkeypatch: pytest.MonkeyPatch,
    locks: bool,
    before: int,
) -> None:
    """A whole save happens between the weights and the description of another; the last one stays."""
    place = tmp_path / "model"
    if not locks:
        monkeypatch.setattr(folder, "_share", lambda folder: None)
    for _ in range(before):
        old.save(place)
    write, others = artefact.write_text, [new]

    def late(*arguments: Any) -> None:
        if others:
            others.pop().save(place)
            require_whole(place, new)
        write(*arguments)

    monkeypatch.setattr(artefact, "write_text", late)
    old.save(place)
    require_whole(place, old)
    new.save(place)
    require_whole(place, new)
    assert not locks or names(place) == {"estimator.json", _weights(place)}


def test_without_locks_leftovers_go_when_they_are_an_hour_old(
    saved: Path, new: LFormerClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_share", lambda folder: None)
    long_ago = time.time() - 2 * folder.HOUR
    (saved / LEFT[0]).touch()
    (saved / LEFT[1]).touch()
    os.utime(saved / LEFT[1], (long_ago, long_ago))
    new.save(saved)
    assert names(saved) == {"estimator.json", _weights(saved), LEFT[0]}


def test_a_load_begins_again_when_another_version_takes_the_place(
    saved: Path, old: LFormerClassifier, new: LFormerClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is replaced, and its weights deleted, between the description and the weights."""
    described, others = artefact._described, [new, old, new]

    def late(*arguments: Any) -> Any:
        found = described(*arguments)
        if others:
            others.pop().save(saved)
        return found

    monkeypatch.setattr(artefact, "_described", late)
    require_whole(saved, new)
    assert not others


def test_a_load_gives_up_in_the_end(saved: Path, old: LFormerClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    described = artefact._described

    def late(*arguments: Any) -> Any:
        found = described(*arguments)
        old.save(saved)
        return found

    monkeypatch.setattr(artefact, "_described", late)
    monkeypatch.setattr(artefact, "TRIES", 3)
    with pytest.raises(ValueError, match="was saved again 3 times while it was read"):
        load(saved)


def test_a_damaged_model_is_not_read_again_and_again(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (saved / "model.safetensors").unlink()
    read, count = artefact._read, []
    monkeypatch.setattr(artefact, "_read", lambda folder: (count.append(1), read(folder))[1])
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is missing"):
        load(saved)
    assert len(count) == 2


def test_loads_beside_looping_saves_always_find_a_whole_model(
    saved: Path, old: LFormerClassifier, new: LFormerClassifier
) -> None:
    stop, errors = threading.Event(), []

    def loop(model: LFormerClassifier) -> None:
        try:
            while not stop.is_set():
                model.save(saved)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(model,)) for model in (old, new)]
    for thread in threads:
        thread.start()
    loads, end = 0, time.monotonic() + 2
    try:
        while time.monotonic() < end:
            require_whole(saved, old, new)
            loads += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert loads
    require_whole(saved, old, new)
    old.save(saved)
    assert names(saved) == {"estimator.json", _weights(saved)}
