"""aeon's and sktime's own checks of estimators; docs/adapters.md says how many there are and which do not pass."""

import re
from pathlib import Path
from typing import Any

import pytest

NEEDS = "the extra `adapters` is not installed here; make test installs it"
pytest.importorskip("aeon", reason=NEEDS)
pytest.importorskip("sktime", reason=NEEDS)

from lformer.adapters.aeon import AeonClassifier, AeonRegressor  # noqa: E402
from lformer.adapters.sktime import SktimeClassifier, SktimeRegressor  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def run(kind: Any) -> dict[str, Any]:
    """How every check of its project ended."""
    if kind in (AeonClassifier, AeonRegressor):
        from aeon.testing.estimator_checking import check_estimator

        return check_estimator(kind)
    from sktime.utils.estimator_checks import check_estimator

    return check_estimator(kind, verbose=False)


def counts() -> dict[str, tuple[int, int]]:
    """The rows of the page: checks, and how many pass."""
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| (\d+) \| (\d+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    return {name: (int(all_), int(passed)) for name, all_, passed in rows}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings
@pytest.mark.parametrize("kind", [AeonClassifier, AeonRegressor, SktimeClassifier, SktimeRegressor])
def test_the_checks_of_the_project_pass_as_the_page_says(kind: Any) -> None:
    found = run(kind)
    failed = {name: str(how)[:300] for name, how in found.items() if str(how) != "PASSED"}
    assert failed == {}
    assert (len(found), len(found)) == counts()[kind.__name__]
