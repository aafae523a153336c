"""From a server to the raw file: what cannot be read does not stay, and nothing that went wrong once lasts."""

import hashlib
import io
import os
import resource
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import toy

from lformer import sealed
from lformer.data import DataError, manage, store
from lformer.data.dataset import Dataset, Remote


def archive(text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("toy-1.txt", text)
    return buffer.getvalue()


GOOD = archive(toy.original(range(20)))
OTHER = archive(toy.original(range(9)))
BAD = {
    "text": b"Service temporarily unavailable. Try again later.",
    "cut": GOOD[:-80],
    "another archive": archive(""),
    "other lines": archive("1,2\n"),
    "no numbers": archive("a,b,c,d\n"),
    "not its own": archive("<html>"),
}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    content = GOOD
    asked = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(200)  # no length: what is cut cannot be told from what is whole
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "data"))
    with Server(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield http
        http.shutdown()
        thread.join()


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can grow beyond a size, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def dataset(server: Server) -> Dataset:
    return toy.dataset(f"http://127.0.0.1:{server.server_port}/toy.zip")


def address(server: Server) -> str:
    return dataset(server).card.remotes[0].url


def downloads() -> list[str]:
    return sorted(path.name for path in (store.cache_home() / "downloads" / "toy").iterdir())


def fetch(server: Server, again: bool = False) -> list[str]:
    said: list[str] = []
    manage.fetch(dataset(server), said.append, again=again)
    return said


def test_a_hash_is_recorded_once_the_file_was_read(server: Server) -> None:
    said = fetch(server)
    sha256 = hashlib.sha256(GOOD).hexdigest()
    assert "could not be verified; its sha256 is recorded now: " + sha256 in said[-1]
    assert store.recorded(address(server)) == sha256
    assert manage.status(dataset(server)).state == "complete"
    (store.raw_home() / "toy/toy.npz").unlink()
    assert "toy.zip agrees with the recorded hash" in fetch(server)
    assert server.asked == 1


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_read_does_not_stay(server: Server, kind: str) -> None:
    server.content = BAD[kind]
    with pytest.raises(DataError, match=r"Removed: toy\.zip\. Run the command again.*By hand: Download toy\.zip"):
        fetch(server)
    assert downloads() == []
    assert store.recorded(address(server)) is None
    assert not store.raw_home().exists()
    server.content = GOOD
    fetch(server)
    assert manage.status(dataset(server)).state == "complete"


def test_a_file_with_a_published_hash_stays_even_if_it_cannot_be_read(server: Server) -> None:
    server.content = BAD["other lines"]
    remote = Remote(url=address(server), sha256=hashlib.sha256(server.content).hexdigest())
    plain = dataset(server)
    with pytest.raises(DataError, match="expected id,time,value,label"):
        manage.fetch(replace(plain, card=replace(plain.card, remotes=(remote,))), print)
    assert downloads() == ["toy.zip"]


def test_a_file_that_changed_is_taken_when_one_says_so(server: Server) -> None:
    fetch(server)
    folder = store.cache_home() / "downloads" / "toy"
    (folder / "toy.zip").unlink()
    (store.raw_home() / "toy/toy.npz").unlink()
    server.content = OTHER
    with pytest.raises(DataError, match=r"hashes\.json.*`lformer data fetch toy --again`"):
        fetch(server)
    assert downloads() == []
    fetch(server, again=True)
    assert manage.status(dataset(server)).note == "9 of 20 series"
    assert store.recorded(address(server)) == hashlib.sha256(OTHER).hexdigest()


def test_again_means_from_the_start(server: Server) -> None:
    fetch(server)
    folder = store.cache_home() / "downloads" / "toy"
    (folder / "toy.zip.part").write_bytes(GOOD[:100])
    sealed.write_json(folder / "toy.zip.part.json", {"url": address(server), "version": "1"})
    server.content = OTHER
    fetch(server)
    assert server.asked == 1  # the complete set is here
    fetch(server, again=True)
    assert server.asked == 2
    assert downloads() == ["toy.zip"]
    assert (folder / "toy.zip").read_bytes() == OTHER


def test_a_failed_download_again_leaves_the_raw_file(server: Server) -> None:
    fetch(server)
    raw = (store.raw_home() / "toy/toy.npz").read_bytes()
    server.content = BAD["text"]
    with pytest.raises(DataError, match="Removed"):
        fetch(server, again=True)
    assert (store.raw_home() / "toy/toy.npz").read_bytes() == raw


def test_only_what_was_downloaded_is_read(server: Server) -> None:
    folder = store.cache_home() / "downloads" / "toy"
    folder.mkdir(parents=True)
    for name in ("toy.zip.part", "toy.zip.abcdefgh.part", "old-toy.zip"):
        (folder / name).write_bytes(GOOD)  # whole archives: read along, every row would be there twice
    fetch(server)
    with store.open_raw(store.raw_home() / "toy/toy.npz") as raw:
        assert len(raw["id"]) == toy.original(range(20)).count("\n") - 1


@pytest.mark.parametrize("size", [0, 300])
def test_a_disk_that_is_full_while_downloading(server: Server, tmp_path: Path, size: int) -> None:
    with full_disk(size), pytest.raises(OSError, match=r"toy\.zip\.part"):
        fetch(server)
    assert server.asked == 1  # asking the server again would not help
    assert not (store.cache_home() / "downloads/toy/toy.zip").exists()
    fetch(server)
    assert manage.status(dataset(server)).state == "complete"
    assert downloads() == ["toy.zip"]


def test_a_disk_that_is_full_while_packing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    write = store._save_npz

    def crowded(part: Path, arrays: dict[str, np.ndarray]) -> None:
        with full_disk(500):
            write(part, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_save_npz", crowded)
        with pytest.raises(OSError, match="File too large"):
            fetch(server)
    assert list((store.raw_home() / "toy").iterdir()) == []
    assert downloads() == ["toy.zip"]  # it is not to blame
    assert store.recorded(address(server)) is None
    fetch(server)
    assert server.asked == 1
    assert manage.status(dataset(server)).state == "complete"


def test_what_a_killed_writer_left_is_no_raw_file(server: Server) -> None:
    folder = store.raw_home() / "toy"
    folder.mkdir(parents=True)
    (folder / "toy.npz.abcdefgh.part").write_bytes(b"half")
    os.utime(folder / "toy.npz.abcdefgh.part", (0, 0))
    assert manage.status(dataset(server)).state == "absent"
    fetch(server)
    assert manage.status(dataset(server)).state == "complete"


def full(*args: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_hash_that_cannot_be_recorded_does_not_blame_the_file(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(server)
    with monkeypatch.context() as patch:
        patch.setattr(store, "record", full)
        with pytest.raises(OSError, match="No space left"):
            fetch(server, again=True)
    assert manage.verify(dataset(server), lambda text: None)
