"""The bar of a training run: a line in a terminal, one element that is replaced in a notebook, nothing elsewhere."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from estimators.every_estimator import fitted

from lformer import LFormerRegressor
from lformer.train import progress


class Notebook:
    """IPython's display, as far as it goes: everything that came on the page."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.pictures: list[dict[str, str]] = []

    def display(self, picture: Any, **how: Any) -> Any:
        assert how == {"raw": True, "display_id": True}
        self.shown.append(picture)
        return self

    def update(self, picture: Any, **how: Any) -> None:
        assert how == {"raw": True}
        self.pictures.append(picture)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    page = Notebook()
    module = ModuleType("IPython.display")
    module.display = page.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(progress, "Console", lambda: SimpleNamespace(is_jupyter=True))
    return page


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_notebook_gets_one_element_that_is_replaced_now_and_then(notebook: Notebook, clock: list[float]) -> None:
    with progress.TrainingBar("wards & co", 1000, done=200) as bar:
        for _ in range(400):
            clock[0] += 0.01
            bar.step(0.25)
        bar.validated("mse", 0.5)
    assert len(notebook.shown) == 1
    assert 15 <= len(notebook.pictures) <= 21  # five per second, not one per step
    last = notebook.pictures[-1]
    assert last["text/plain"] == "wards & co  600/1000  loss 2.50e-01  val mse 0.5  0:04 left"
    assert "wards &amp; co" in last["text/html"]
    assert '<progress value="600" max="1000">' in last["text/html"]


def test_a_bar_that_ends_says_how_long_it_took(notebook: Notebook, clock: list[float]) -> None:
    with progress.TrainingBar("ward", 2) as bar:
        clock[0] += 75
        bar.step(1.0)
        bar.step(1.0)
    assert notebook.shown[0]["text/plain"] == "ward  0/2  loss nan"
    assert notebook.pictures[-1]["text/plain"].endswith("2/2  loss 1.00e+00  1:15 in all")


def test_verbose_of_an_estimator_is_that_bar(notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    fitted(LFormerRegressor, verbose=1)
    assert len(notebook.shown) == 1
    assert "LFormerRegressor" in notebook.pictures[-1]["text/plain"]
    fitted(LFormerRegressor)
    assert len(notebook.shown) == 1
    assert capsys.readouterr().out == ""
