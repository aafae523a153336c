"""Servers that send what no server should: refused or asked again, never believed and never waited for."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lformer.data import download as module
from lformer.data import store, web
from lformer.data.dataset import Remote
from lformer.data.download import Downloaded, download
from lformer.data.files import DataError

CONTENT = bytes(range(256)) * 40
Send = Callable[[bytes], None]
Answer = Callable[[Send], None]


class Server(socketserver.ThreadingTCPServer):
    """Gives one scripted answer after the other; the last one again and again."""

    daemon_threads = True
    answers: list[Answer]
    asked: list[bytes]
    over: threading.Event


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        head = b""
        while line := self.rfile.readline().strip():
            head += line + b"\n"
        self.server.asked.append(head)
        answers = self.server.answers
        with suppress(OSError):  # the other side has had enough
            (answers.pop(0) if len(answers) > 1 else answers[0])(self.wfile.write)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with Server(("127.0.0.1", 0), Handler) as tcp:
        tcp.answers, tcp.asked, tcp.over = [], [], threading.Event()
        thread = threading.Thread(target=tcp.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield tcp
        tcp.over.set()
        tcp.shutdown()
        thread.join()


def get(server: Server, folder: Path, name: str = "set.bin") -> Downloaded:
    return download(Remote(url=f"http://127.0.0.1:{server.server_address[1]}/{name}"), folder / "d", "toy")


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "d").glob("*"))


def head(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


def answer(status: str, body: bytes, *headers: str) -> Answer:
    """An answer of that status and body."""
    return lambda send: send(head(status, f"Content-Length: {len(body)}", *headers) + body)


def exactly(text: bytes) -> Answer:
    return lambda send: send(text)


def endless(start: bytes, again: bytes) -> Answer:
    def write(send: Send) -> None:
        send(start)
        while True:
            send(again)

    return write


WHOLE = answer("200 OK", CONTENT, 'ETag: "v1"')
CUT = exactly(head("200 OK", f"Content-Length: {len(CONTENT)}", 'ETag: "v1"') + CONTENT[:100])


def piece(first: int, etag: str = '"v1"') -> Answer:
    """The rest of the file, said to begin at some byte."""
    rest = f"Content-Range: bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}"
    return answer("206 Partial Content", CONTENT[100:], rest, f"ETag: {etag}")


def test_a_part_as_asked_for_is_appended(server: Server, tmp_path: Path) -> None:
    server.answers = [CUT, piece(100)]
    assert get(server, tmp_path).path.read_bytes() == CONTENT
    assert b"Range: bytes=100-\n" in server.asked[1]


@pytest.mark.parametrize(
    "wrong",
    {
        "another start": piece(0),
        "another version": piece(100, '"v2"'),
        "no version": answer("206 Partial Content", CONTENT[100:], f"Content-Range: bytes 100-10239/{len(CONTENT)}"),
        "no range": answer("206 Partial Content", CONTENT[100:], 'ETag: "v1"'),
        "no numbers": answer("206 Partial Content", CONTENT[100:], 'ETag: "v1"', "Content-Range: bytes x-y/z"),
    }.items(),
    ids=lambda case: case[0],
)
def test_a_wrong_part_is_not_appended(server: Server, tmp_path: Path, wrong: tuple[str, Answer]) -> None:
    server.answers = [CUT, wrong[1], WHOLE]
    assert get(server, tmp_path).path.read_bytes() == CONTENT
    assert b"Range" not in server.asked[2]
    assert left(tmp_path) == ["set.bin"]


def test_a_part_that_nobody_asked_for_is_refused(server: Server, tmp_path: Path) -> None:
    server.answers = [piece(100)]
    with pytest.raises(DataError, match="bytes from 0 on were requested, but 'bytes 100-10239/10240' were sent"):
        get(server, tmp_path)
    assert left(tmp_path) == []


def test_less_than_promised_is_not_enough(server: Server, tmp_path: Path) -> None:
    server.answers = [CUT]
    with pytest.raises(DataError, match="ended after 100 of 10,240 bytes"):
        get(server, tmp_path)
    assert not (tmp_path / "d" / "set.bin").exists()
    server.answers = [WHOLE]
    assert get(server, tmp_path).path.read_bytes() == CONTENT


def test_a_web_page_is_no_file(server: Server, tmp_path: Path) -> None:
    server.answers = [answer("200 OK", b"\r\n<!DOCTYPE html><title>Please log in</title>")]
    with pytest.raises(DataError, match=r"set\.bin sent a web page instead of the file.*<!DOCTYPE html>"):
        get(server, tmp_path)
    assert left(tmp_path) == []
    server.answers = [WHOLE]
    assert get(server, tmp_path).verified == "first"


def test_an_empty_answer_is_no_file(server: Server, tmp_path: Path) -> None:
    server.answers = [answer("200 OK", b"")]
    with pytest.raises(DataError, match="the response was empty"):
        get(server, tmp_path)
    server.answers = [answer("204 No Content", b"")]
    with pytest.raises(DataError, match="answered 204 No Content instead of the file"):
        get(server, tmp_path)
    assert left(tmp_path) == []


def test_an_encoding_that_nobody_asked_for_is_refused(server: Server, tmp_path: Path) -> None:
    server.answers = [answer("200 OK", CONTENT, "Content-Encoding: gzip")]
    with pytest.raises(DataError, match="was sent as gzip, which was not requested"):
        get(server, tmp_path)
    assert left(tmp_path) == []
    server.answers = [answer("200 OK", CONTENT, "Content-Encoding: x-gzip")]  # some servers name the file's own so
    assert get(server, tmp_path, "set.tar.gz").path.read_bytes() == CONTENT


@pytest.mark.parametrize("length", ["ten", "-5", "1e3", "٣", "9" * 5000, ""])
def test_a_length_that_is_none_is_refused(server: Server, tmp_path: Path, length: str) -> None:
    server.answers = [exactly(head("200 OK", f"Content-Length: {length}") + CONTENT)]
    with pytest.raises(DataError, match="expected a number of bytes"):
        get(server, tmp_path)
    assert left(tmp_path) == []


def test_nothing_without_end_is_read_to_the_end(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 10**5)
    monkeypatch.setattr(module, "TRIES", 2)
    server.answers = [exactly(head("200 OK", "Content-Length: 100001"))]
    with pytest.raises(DataError, match="no file of a data set is that large"):
        get(server, tmp_path)
    server.answers = [endless(head("200 OK"), CONTENT)]
    with pytest.raises(DataError, match=r"sent more than .* GiB; no data set is that large"):
        get(server, tmp_path)
    chunk = b"%x\r\n%s\r\n" % (len(CONTENT), CONTENT)
    server.answers = [endless(head("200 OK", "Transfer-Encoding: chunked"), chunk)]
    with pytest.raises(DataError, match=r"sent more than .* GiB; no data set is that large"):
        get(server, tmp_path)
    server.answers = [endless(b"", head("100 Continue"))]
    with pytest.raises(DataError, match="headers of the response do not end"):
        get(server, tmp_path)
    assert left(tmp_path) == []
    server.answers = [endless(head("302 Found", "Location: /elsewhere"), CONTENT), WHOLE]
    assert get(server, tmp_path).path.read_bytes() == CONTENT


@pytest.mark.parametrize("place", ["headers", "body", "chunk"])
def test_a_byte_now_and_then_is_not_enough(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    start = {
        "headers": b"HTTP/1.1 200 ",
        "body": head("200 OK", "Content-Length: 1000000"),
        "chunk": head("200 OK", "Transfer-Encoding: chunked") + b"5;",
    }[place]

    def trickle(send: Send) -> None:
        send(start)
        while not server.over.wait(0.02):
            send(b"x")

    server.answers = [trickle]
    with monkeypatch.context() as impatient:
        impatient.setattr(web, "WINDOW", 0.2)
        impatient.setattr(module, "TRIES", 2)
        with pytest.raises(DataError, match=r"in 2 tries: only \d+ bytes arrived in \d+ seconds"):
            get(server, tmp_path)
    assert not (tmp_path / "d" / "set.bin").exists()
    server.answers = [WHOLE]
    assert get(server, tmp_path).path.read_bytes() == CONTENT


def test_a_connection_that_stays_open_is_not_waited_for(server: Server, tmp_path: Path) -> None:
    def hold(send: Send) -> None:
        WHOLE(send)
        server.over.wait(60)

    server.answers = [hold]
    assert get(server, tmp_path).path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("file:///etc/passwd", "302 .*not allowed"),
        ("ftp://127.0.0.1/set.bin", "only http and https addresses are supported; got ftp://"),
        ("http://[1", "leads to an address that cannot be opened"),
        ("/set.bin", "302 .*infinite loop"),
    ],
)
def test_a_redirect_leads_to_the_web_or_nowhere(server: Server, tmp_path: Path, place: str, says: str) -> None:
    server.answers = [answer("302 Found", b"", f"Location: {place}")]
    with pytest.raises(DataError, match=says):
        get(server, tmp_path)


def test_a_damaged_record_is_noticed_before_anything_is_downloaded(server: Server, tmp_path: Path) -> None:
    store.hashes_file().parent.mkdir(parents=True)
    store.hashes_file().write_text("[]")
    server.answers = [WHOLE]
    with pytest.raises(DataError, match=r"hashes\.json is damaged"):
        get(server, tmp_path)
    assert server.asked == []


@pytest.mark.parametrize("status", ["404 \x1b[2J\x1b[31mred", "500 " + "x" * 60_000, "404 a\x00b"])
def test_what_a_server_says_of_itself_is_one_short_line(server: Server, tmp_path: Path, status: str) -> None:
    server.answers = [answer(status, b"")]
    with pytest.raises(DataError) as error:
        get(server, tmp_path)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500
