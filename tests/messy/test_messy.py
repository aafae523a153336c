"""Messy files: no traceback, the same exit code of every command, and a message that names file, place and option."""

from __future__ import annotations

from pathlib import Path

import pytest
from messy.files import MESSY, Messy
from messy.page import PAGE, call, doctor, filled, message

QUICK = ("--epochs", "1", "--width", "4", "--quiet", "--out", "model")
CASES = pytest.mark.parametrize("case", MESSY, ids=[case.name for case in MESSY])


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@CASES
def test_the_doctor_says_what_is_the_matter_and_what_helps(case: Messy) -> None:
    result = doctor(case)
    assert result.exit_code == case.code, result.output
    assert "Traceback" not in result.output
    told = " ".join(result.output.split())
    assert [part for part in (case.name, *case.says) if part not in told] == []
    if case.cure:
        cured = doctor(case, *case.cure)
        assert cured.exit_code == 0, cured.output
        assert "Training would work" in cured.output
        assert message(cured) != message(result)


@CASES
def test_fit_ends_as_the_doctor_says(case: Messy) -> None:
    Path(case.name).write_bytes(case.content)
    result = call("fit", case.name, *case.options, *QUICK)
    assert result.exit_code == case.code, result.output
    assert "Traceback" not in result.output
    assert Path("model").exists() == (case.code == 0)
    if case.code:
        (line,) = (line for line in result.output.splitlines() if line.startswith("error: "))
        assert case.name in line


def test_there_are_many_files_of_every_kind() -> None:
    assert len({case.name for case in MESSY}) == len(MESSY) >= 30
    assert {case.code for case in MESSY} == {0, 1, 2}


def test_the_page_of_messy_files_is_what_the_code_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text) == text
