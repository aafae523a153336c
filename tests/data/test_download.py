"""Downloads against a server of our own: resumed, verified, never half done."""

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lformer.data import download as module
from lformer.data import store
from lformer.data.dataset import Remote
from lformer.data.download import download
from lformer.data.files import DataError

CONTENT = bytes(range(256)) * 4000  # about a megabyte
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves one file, and does what a test tells it to."""

    daemon_threads = True
    content = CONTENT
    etag = '"v1"'
    cuts: list[int]  # after how many bytes the next answers break off
    failures: list[int]  # status codes of the next answers
    ranges = True  # whether parts can be asked for
    asked: list[str]  # the Range header of each request


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append(wanted)
        if self.server.failures:
            self.send_error(self.server.failures.pop(0))
            return
        begin = 0
        if wanted and self.server.ranges and self.headers.get("If-Range") == self.server.etag:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(self.server.content):
                self.send_error(416)
                return
        body = self.server.content[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", self.server.etag)
        self.end_headers()
        self.wfile.write(body[: self.server.cuts.pop(0)] if self.server.cuts else body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with Server(("127.0.0.1", 0), Handler) as http:
        http.cuts, http.failures, http.asked = [], [], []
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield http
        http.shutdown()
        thread.join()


def remote(server: Server, **hashes: str) -> Remote:
    return Remote(url=f"http://127.0.0.1:{server.server_port}/folder/set-a.bin?download=1", **hashes)


def test_a_file_arrives_whole_and_the_first_hash_is_recorded(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    file, how = download(remote(server), tmp_path / "d", lambda done, total: seen.append((done, total)))
    assert file == tmp_path / "d" / "set-a.bin"
    assert file.read_bytes() == CONTENT
    assert how == "first"
    assert store.recorded(remote(server).url) == SHA256
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in file.parent.iterdir()] == ["set-a.bin"]
    assert download(remote(server), tmp_path / "d")[1] == "recorded"
    assert len(server.asked) == 1  # the second call asked for nothing


def test_a_broken_connection_is_resumed_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, 500_000]
    file, how = download(remote(server, sha256=SHA256), tmp_path)
    assert file.read_bytes() == CONTENT
    assert how == "published"
    assert server.asked == ["", "bytes=300000-", "bytes=800000-"]


def test_a_later_run_goes_on_where_an_earlier_one_gave_up(server: Server, tmp_path: Path) -> None:
    server.cuts = [100_000] + [0] * (module.TRIES - 1)
    with pytest.raises(DataError, match=r"could not be downloaded in 5 tries.*Run the command again"):
        download(remote(server), tmp_path)
    assert (tmp_path / "set-a.bin.part").stat().st_size == 100_000
    assert not (tmp_path / "set-a.bin").exists()
    server.asked.clear()
    file, _ = download(remote(server), tmp_path)
    assert file.read_bytes() == CONTENT
    assert server.asked == ["bytes=100000-"]


@pytest.mark.parametrize("reason", ["no ranges", "changed"])
def test_a_server_that_cannot_resume_sends_it_all_again(server: Server, tmp_path: Path, reason: str) -> None:
    server.cuts = [100_000] + [0] * (module.TRIES - 1)
    with pytest.raises(DataError):
        download(remote(server), tmp_path)
    if reason == "no ranges":
        server.ranges = False
    else:
        server.etag, server.content = '"v2"', CONTENT[::-1]
    file, _ = download(remote(server), tmp_path)
    assert file.read_bytes() == server.content


def test_leftovers_as_long_as_the_file_are_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set-a.bin.part").write_bytes(b"x" * len(CONTENT))
    (tmp_path / "set-a.bin.part.etag").write_text('"v1"')
    assert download(remote(server, sha256=SHA256), tmp_path)[0].read_bytes() == CONTENT


def test_a_server_that_stumbles_is_asked_again_and_one_that_refuses_is_not(server: Server, tmp_path: Path) -> None:
    server.failures = [503, 500]
    assert download(remote(server), tmp_path)[0].read_bytes() == CONTENT
    server.failures = [404]
    with pytest.raises(DataError, match=r"404.*may have moved"):
        download(remote(server), tmp_path / "other")
    assert len(server.asked) == 4


@pytest.mark.parametrize("hashes", [{"sha256": "0" * 64}, {"md5": "0" * 32}])
def test_a_wrong_hash_removes_the_file(server: Server, tmp_path: Path, hashes: dict[str, str]) -> None:
    with pytest.raises(DataError, match="the published one is 0000"):
        download(remote(server, **hashes), tmp_path)
    assert not list(tmp_path.glob("set-a.bin"))
    assert not list(tmp_path.glob("*.part"))
    assert store.recorded(remote(server).url) is None


def test_the_right_md5_is_accepted(server: Server, tmp_path: Path) -> None:
    assert download(remote(server, md5=hashlib.md5(CONTENT).hexdigest()), tmp_path)[1] == "published"


def test_a_file_that_changed_since_it_was_recorded_is_refused(server: Server, tmp_path: Path) -> None:
    download(remote(server), tmp_path / "a")
    server.content = CONTENT[:-1]
    with pytest.raises(DataError, match="the recorded one is"):
        download(remote(server), tmp_path / "b")


def test_two_may_fetch_at_once(server: Server, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        files = [f.result()[0] for f in [pool.submit(download, remote(server), tmp_path) for _ in range(4)]]
    assert {f.read_bytes() for f in files} == {CONTENT}
    assert len(server.asked) == 1


def test_only_web_addresses_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="only http"):
        download(Remote(url="file:///etc/passwd"), tmp_path)
