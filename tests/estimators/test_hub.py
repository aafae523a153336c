"""Estimators to and from the Hub, with a client that keeps its repositories in a folder."""

import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from estimators.every_estimator import SIX, answers, fitted, records, same

from lformer import LFormerClassifier, LFormerRegressor


class Client:
    """The four functions of huggingface_hub that are used, with their names of arguments."""

    def __init__(self, home: Path) -> None:
        self.home, self.calls = home, []  # type: ignore[var-annotated]

    def HfApi(self, token: str | None = None) -> "Client":
        self.calls.append(("HfApi", token))
        return self

    def create_repo(self, repo_id: str, *, private: bool | None = None, exist_ok: bool = False) -> str:
        self.calls.append(("create_repo", private))
        (self.home / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        return f"https://huggingface.co/{repo_id}"

    def file_exists(self, repo_id: str, filename: str) -> bool:
        return (self.home / repo_id / filename).exists()

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, commit_message: str, delete_patterns: list[str]
    ) -> None:
        self.calls.append(("upload_folder", commit_message))
        for file in (self.home / repo_id).iterdir():
            if matches(file, delete_patterns):
                file.unlink()
        shutil.copytree(folder_path, self.home / repo_id, dirs_exist_ok=True)

    def snapshot_download(
        self, repo_id: str, *, revision: Any, token: Any, cache_dir: Any, allow_patterns: list[str]
    ) -> str:
        self.calls.append(("snapshot_download", (repo_id, revision, token, cache_dir)))
        folder = self.home / "cache" / repo_id
        folder.mkdir(parents=True, exist_ok=True)
        for file in (self.home / repo_id).iterdir():
            if matches(file, allow_patterns):
                shutil.copy(file, folder)
        return str(folder)


def matches(file: Path, patterns: list[str]) -> bool:
    return any(fnmatch(file.name, pattern) for pattern in patterns)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client(tmp_path / "hub")
    names = ("HfApi", "snapshot_download")
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(**{n: getattr(client, n) for n in names}))
    return client


@pytest.mark.parametrize("kind", SIX)
def test_there_and_back(kind: Any, hub: Client) -> None:
    model = fitted(kind)
    address = model.push_to_hub("ward/early", private=True, token="secret", message="First")
    assert address == "https://huggingface.co/ward/early"
    assert hub.calls == [("HfApi", "secret"), ("create_repo", True), ("upload_folder", "First")]
    names = {file.name for file in (hub.home / "ward/early").iterdir()}
    assert names == {"README.md", "estimator.json", "model.safetensors"}
    again = kind.from_pretrained("ward/early", revision="v1", token="t", cache=hub.home / "c")
    assert hub.calls[-1] == ("snapshot_download", ("ward/early", "v1", "t", hub.home / "c"))
    assert same(answers(again, records(seed=1)), answers(model, records(seed=1)))


def test_the_card_says_how_to_use_it_and_one_that_is_there_stays(hub: Client) -> None:
    model = fitted(LFormerClassifier)
    model.push_to_hub("ward/early")
    card = hub.home / "ward/early/README.md"
    assert 'LFormerClassifier.from_pretrained("ward/early")' in card.read_text(encoding="utf-8")
    assert "`k`, `na`" in card.read_text(encoding="utf-8")
    card.write_text("mine")
    model.push_to_hub("ward/early")
    assert card.read_text() == "mine"


def test_weights_that_the_new_model_does_not_name_leave_the_repository(hub: Client, tmp_path: Path) -> None:
    """A folder that was saved into twice and uploaded by hand has its weights under another name."""
    model = fitted(LFormerClassifier)
    for _ in range(2):
        model.save(tmp_path / "m")
    shutil.copytree(tmp_path / "m", hub.home / "ward/early")
    for name in ("notes.txt", "model-00001-of-00002.safetensors"):
        (hub.home / "ward/early" / name).touch()
    assert same(answers(LFormerClassifier.from_pretrained("ward/early"), records()), answers(model, records()))
    model.push_to_hub("ward/early")
    assert {file.name for file in (hub.home / "ward/early").iterdir()} == {
        "README.md", "estimator.json", "model.safetensors", "notes.txt", "model-00001-of-00002.safetensors",
    }  # fmt: skip
    shutil.rmtree(hub.home / "cache")
    assert same(answers(LFormerClassifier.from_pretrained("ward/early"), records()), answers(model, records()))


def test_a_folder_needs_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model = fitted(LFormerClassifier)
    model.save(tmp_path / "m")
    again = LFormerClassifier.from_pretrained(tmp_path / "m")
    assert same(answers(again, records()), answers(model, records()))
    for call in (lambda: LFormerClassifier.from_pretrained("ward/early"), lambda: model.push_to_hub("ward/early")):
        with pytest.raises(ImportError, match=r'pip install "lformer\[hub\]"'):
            call()


def test_another_class_and_a_mistyped_folder_are_named(tmp_path: Path, hub: Client) -> None:
    fitted(LFormerClassifier).save(tmp_path / "m")
    with pytest.raises(ValueError, match=r"holds a LFormerClassifier, not a LFormerRegressor\. Load it with LFormerCl"):
        LFormerRegressor.from_pretrained(tmp_path / "m")
    for place in ("models/ward/early", "./early", "early", tmp_path / "n"):
        with pytest.raises(
            FileNotFoundError, match=r'is neither a folder nor a repository of the Hub, .* "owner/name"'
        ):
            LFormerClassifier.from_pretrained(place)
    assert hub.calls == []
