"""Downloads against a server of our own: resumed, verified, never half done."""

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lformer import sealed
from lformer.data import download as module
from lformer.data import store
from lformer.data.dataset import Remote
from lformer.data.download import Downloaded, Report, download
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
        if begin:
            whole = len(self.server.content)
            self.send_header("Content-Range", f"bytes {begin}-{whole - 1}/{whole}")
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
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield http
        http.shutdown()
        thread.join()


def remote(server: Server, **hashes: str) -> Remote:
    return Remote(url=f"http://127.0.0.1:{server.server_port}/folder/set-a.bin?download=1", **hashes)


def get(remote: Remote, folder: Path, report: Report = lambda done, total: None) -> Downloaded:
    return download(remote, folder, "toy", report)


def begin(server: Server, folder: Path, content: bytes = b"x" * 100, **note: object) -> None:
    """What an earlier try may have left."""
    (folder / "set-a.bin.part").write_bytes(content)
    sealed.write_json(folder / "set-a.bin.part.json", {"url": remote(server).url, "version": '"v1"', **note})


def test_a_file_arrives_whole_and_its_hash_is_not_recorded_before_it_is_read(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    came = get(remote(server), tmp_path / "d", lambda done, total: seen.append((done, total)))
    assert came.path == tmp_path / "d" / "set-a.bin"
    assert came.path.read_bytes() == CONTENT
    assert (came.verified, came.sha256) == ("first", SHA256)
    assert store.recorded(remote(server).url) is None
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in came.path.parent.iterdir()] == ["set-a.bin"]
    store.record(remote(server).url, SHA256)
    assert get(remote(server), tmp_path / "d").verified == "recorded"
    assert len(server.asked) == 1  # the second call asked for nothing


def test_a_broken_connection_is_resumed_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, 500_000]
    came = get(remote(server, sha256=SHA256), tmp_path)
    assert came.path.read_bytes() == CONTENT
    assert came.verified == "published"
    assert server.asked == ["", "bytes=300000-", "bytes=800000-"]


def test_a_later_run_goes_on_where_an_earlier_one_gave_up(server: Server, tmp_path: Path) -> None:
    server.cuts = [100_000] + [0] * (module.TRIES - 1)
    with pytest.raises(DataError, match=r"could not be downloaded in 5 tries.*Run the command again"):
        get(remote(server), tmp_path)
    assert (tmp_path / "set-a.bin.part").stat().st_size == 100_000
    assert not (tmp_path / "set-a.bin").exists()
    server.asked.clear()
    assert get(remote(server), tmp_path).path.read_bytes() == CONTENT
    assert server.asked == ["bytes=100000-"]


@pytest.mark.parametrize("reason", ["no ranges", "changed"])
def test_a_server_that_cannot_resume_sends_it_all_again(server: Server, tmp_path: Path, reason: str) -> None:
    server.cuts = [100_000] + [0] * (module.TRIES - 1)
    with pytest.raises(DataError):
        get(remote(server), tmp_path)
    if reason == "no ranges":
        server.ranges = False
    else:
        server.etag, server.content = '"v2"', CONTENT[::-1]
    assert get(remote(server), tmp_path).path.read_bytes() == server.content


def test_leftovers_as_long_as_the_file_are_thrown_away(server: Server, tmp_path: Path) -> None:
    begin(server, tmp_path, b"x" * len(CONTENT))
    assert get(remote(server, sha256=SHA256), tmp_path).path.read_bytes() == CONTENT


@pytest.mark.parametrize("fault", ["no note", "damaged note", "another address", "no version", "wrong version"])
def test_leftovers_of_which_nobody_knows_what_they_are_are_not_continued(
    server: Server, tmp_path: Path, fault: str
) -> None:
    changes: dict[str, dict[str, object]] = {
        "another address": {"url": "http://127.0.0.1:1/"},
        "no version": {"version": ""},
        "wrong version": {"version": 1},
    }
    begin(server, tmp_path, **changes.get(fault, {}))
    note = tmp_path / "set-a.bin.part.json"
    if fault == "no note":
        note.unlink()
    elif fault == "damaged note":
        note.write_text(note.read_text().replace("v1", "v2\\r\\nHost: elsewhere"))
    assert get(remote(server), tmp_path).path.read_bytes() == CONTENT
    assert server.asked == [""]
    assert [p.name for p in tmp_path.glob("set-a*")] == ["set-a.bin"]


def test_a_file_that_was_damaged_on_this_disk_comes_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set-a.bin").write_bytes(CONTENT[:-1])
    assert get(remote(server, sha256=SHA256), tmp_path).path.read_bytes() == CONTENT
    store.record(remote(server).url, SHA256)
    (tmp_path / "set-a.bin").write_bytes(CONTENT[:-1])
    assert get(remote(server), tmp_path).path.read_bytes() == CONTENT


def test_a_server_that_stumbles_is_asked_again_and_one_that_refuses_is_not(server: Server, tmp_path: Path) -> None:
    server.failures = [503, 500, 429]
    assert get(remote(server), tmp_path).path.read_bytes() == CONTENT
    server.failures = [404]
    with pytest.raises(DataError, match=r"404.*may have moved"):
        get(remote(server), tmp_path / "other")
    assert len(server.asked) == 5


@pytest.mark.parametrize("hashes", [{"sha256": "0" * 64}, {"md5": "0" * 32}])
def test_a_wrong_hash_removes_the_file(server: Server, tmp_path: Path, hashes: dict[str, str]) -> None:
    with pytest.raises(DataError, match="the published one is 0000"):
        get(remote(server, **hashes), tmp_path)
    assert not list(tmp_path.glob("set-a.bin"))
    assert not list(tmp_path.glob("*.part"))
    assert store.recorded(remote(server).url) is None


def test_the_right_md5_is_accepted(server: Server, tmp_path: Path) -> None:
    assert get(remote(server, md5=hashlib.md5(CONTENT).hexdigest()), tmp_path).verified == "published"


def test_a_file_that_changed_since_it_was_recorded_is_refused(server: Server, tmp_path: Path) -> None:
    store.record(remote(server).url, SHA256)
    server.content = CONTENT[:-1]
    with pytest.raises(DataError) as error:
        get(remote(server), tmp_path)
    assert f"{SHA256} was recorded in {store.hashes_file()}" in str(error.value)
    assert "`lformer data fetch toy --again`" in str(error.value)
    assert not list(tmp_path.glob("set-a*"))


def test_two_may_fetch_at_once(server: Server, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        files = [f.result().path for f in [pool.submit(get, remote(server), tmp_path) for _ in range(4)]]
    assert {f.read_bytes() for f in files} == {CONTENT}
    assert len(server.asked) == 1


def test_only_web_addresses_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="only http"):
        get(Remote(url="file:///etc/passwd"), tmp_path)
