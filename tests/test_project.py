"""The files that an open project has: hooks, templates and the workflow agree with the Makefile and pyproject.toml."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra `docs`")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_the_workflow_runs_ci_on_every_python_that_is_promised() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    promised = [text.rsplit(" ", 1)[1] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == [*promised, "3.13"]  # tried before it is promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert [step["run"] for step in jobs["tests"]["steps"] if "run" in step] == [".ci/run"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert [step["run"].removeprefix("make ") in targets for step in jobs["extras"]["steps"] if "run" in step] == [True]


def test_the_hooks_are_the_linters_of_ci_from_the_pinned_environment() -> None:
    (repo,) = read(".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    tools = {hook["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude") for hook in repo["hooks"]}
    assert tools == {"ruff check", "ruff format", "mypy"}
    makefile = (ROOT / "Makefile").read_text()
    assert [tool for tool in tools if f"$(BIN)/{tool}" not in makefile] == []


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_a_template_asks_for_what_is_needed(name: str) -> None:
    form = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    assert any(part.get("validations", {}).get("required") for part in form["body"])
    ids = [part["id"] for part in form["body"]]
    assert len(set(ids)) == len(ids)


def test_the_checklist_names_commands_that_exist() -> None:
    text = (ROOT / "docs" / "release.md").read_text()
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    asked = re.findall(r"`make ([\w-]+)", text)
    assert asked
    assert set(asked) <= set(targets)
    assert (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").exists()
