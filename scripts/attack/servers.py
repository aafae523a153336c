"""Servers that send what no server should: refused in words, never believed, and forgotten once a good one answers.

All of them are one server on this machine, which answers as each case says. What was sent is an archive of a small data
set, so that not only the transfer but the whole way from an address to a raw file is gone, and can be compared.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import socket
import socketserver
import struct
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from kills import count_faults
from tally import Tally

from lformer.data import DataError, download, manage, store, web
from lformer.data.dataset import Array, Card, Dataset, Raw, Remote, Request
from lformer.data.files import Files
from lformer.panel import Panel
from lformer.parts import Prepared, Targets
from lformer.splitting import cut

NAME = "numbers.zip"
LONGEST = 20.0  # seconds that a case may take, whatever the server does
READABLE = 2000  # characters of an error that somebody will still read

Send = Callable[[bytes], object]
Draw = random.Random


# --- a small data set ---


def original(rng: Draw, series: int = 12) -> bytes:
    """An archive as its owner would publish it: one text, `id,time,value` in every line."""
    lines = []
    for i in range(series):
        now = 0.0
        for _ in range(rng.randint(2, 40)):
            now += rng.expovariate(1.0)
            lines.append(f"{i},{now:.6f},{rng.gauss(0, 1):.6f}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as packed:
        packed.writestr("numbers.txt", "\n".join(lines) + "\n")
    return buffer.getvalue()


def pack(files: Files) -> dict[str, Array]:
    """The arrays of the text."""
    text = files.only("numbers.txt")
    table = np.array([[float(field) for field in line.split(",")] for line in text.lines])
    return {"id": table[:, 0].astype(np.int64), "time": table[:, 1], "value": table[:, 2]}


def prepare(raw: Raw, request: Request) -> Prepared:
    """Every series says whether its number is even."""
    ids, lengths = np.unique(raw["id"], return_counts=True)
    panel = Panel.build(raw["time"], raw["value"][:, None], lengths, ids=[f"s{i}" for i in ids], channels=["x"])
    train, validation, test = cut(len(ids), request.seed)
    return Prepared(
        panel=panel, targets=Targets(values=ids % 2, at="series"), train=train, validation=validation, test=test
    )


def dataset(url: str, sha256: str | None = None) -> Dataset:
    """The data set at an address."""
    card = Card(
        name="numbers", title="Numbers", page="https://example.org", licence="CC0", citation="nobody", series=12,
        length="2 to 40", channels="1", tasks=("classify",), raw=("numbers/numbers.npz",),
        remotes=(Remote(url=url, sha256=sha256),), by_hand="There is none.",
    )  # fmt: skip
    return Dataset(card=card, prepare=prepare, pack=pack)


# --- a server ---


@dataclass
class Asked:
    """What was asked, and what an answer needs to know."""

    path: str
    first: int | None  # byte of a range, None if the whole file was asked for
    version: str  # of which the range is wanted
    send: Send
    reset: Callable[[], None]  # tears the connection
    over: threading.Event  # set when nobody waits any more


Answer = Callable[[Asked], None]


class Server(socketserver.ThreadingTCPServer):
    """Gives one answer after the other, the last one again and again."""

    daemon_threads = True
    request_queue_size = 64
    answers: list[Answer]
    over: threading.Event

    @property
    def url(self) -> str:
        """Of the file."""
        return f"http://127.0.0.1:{self.server_address[1]}/{NAME}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The other side has had enough."""


class Handler(socketserver.StreamRequestHandler):
    server: Server
    timeout = LONGEST

    def handle(self) -> None:
        """Read what is asked, and give the next answer."""
        lines = []
        while line := self.rfile.readline().strip():
            lines.append(line.decode("latin-1"))
        path = lines[0].split()[1] if lines else "/"
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        first = int(headers["range"].removeprefix("bytes=").rstrip("-")) if "range" in headers else None
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        with suppress(OSError):
            answer(Asked(path, first, headers.get("if-range", ""), self.wfile.write, self._reset, self.server.over))

    def _reset(self) -> None:
        """Close without a goodbye: what is on its way is lost."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a free port of this machine."""
    with Server(("127.0.0.1", 0), Handler) as server:
        server.answers, server.over = [], threading.Event()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


def head(status: str, *headers: str) -> bytes:
    """Status and headers."""
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode("latin-1", "replace")


def exactly(content: bytes) -> Answer:
    """Whatever is asked."""
    return lambda asked: asked.send(content)


def answer(status: str, body: bytes, *headers: str) -> Answer:
    """With the length of the body."""
    return exactly(head(status, f"Content-Length: {len(body)}", *headers) + body)


def good(content: bytes, etag: str = '"v1"') -> Answer:
    """As a server should: the file, or the part of it that was asked for."""

    def give(asked: Asked) -> None:
        if asked.first is None or asked.version != etag:
            asked.send(head("200 OK", f"Content-Length: {len(content)}", f"ETag: {etag}") + content)
        elif asked.first >= len(content):
            asked.send(head("416 Range Not Satisfiable", "Content-Length: 0"))
        else:
            rest = content[asked.first :]
            where = f"Content-Range: bytes {asked.first}-{len(content) - 1}/{len(content)}"
            asked.send(head("206 Partial Content", f"Content-Length: {len(rest)}", where, f"ETag: {etag}") + rest)

    return give


def cut_short(content: bytes, at: int, *, reset: bool = False, length: int | None = None, etag: str = '"v1"') -> Answer:
    """The beginning of the file, or of the rest that was asked for, and then the end of the connection."""

    def give(asked: Asked) -> None:
        first = asked.first or 0
        size = len(content) - first if length is None else length
        where = [f"Content-Range: bytes {first}-{len(content) - 1}/{len(content)}"] if first else []
        status = "206 Partial Content" if first else "200 OK"
        start = head(status, f"Content-Length: {size}", f"ETag: {etag}", *where)
        asked.send(start + content[first : max(first, at)])
        if reset:
            asked.reset()

    return give


def endless(start: bytes, again: bytes, pause: float = 0.0) -> Answer:
    """A beginning, and then the same until nobody listens any more."""

    def give(asked: Asked) -> None:
        asked.send(start)
        while not asked.over.wait(pause):
            asked.send(again)

    return give


# --- one case ---


@contextmanager
def home() -> Iterator[Path]:
    """An empty cache, where the library finds it."""
    before = {name: os.environ.get(name) for name in ("LFORMER_CACHE", "LFORMER_DATA")}
    with tempfile.TemporaryDirectory(prefix="lformer-attack-") as folder:
        os.environ["LFORMER_CACHE"] = folder
        os.environ.pop("LFORMER_DATA", None)
        try:
            yield Path(folder)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@contextmanager
def impatient(window: float, largest: int = 2**22) -> Iterator[None]:
    """Inside, nobody waits for long: no pause between tries, two of them, and a short patience with slow servers."""
    changes: list[tuple[Any, str, Any]] = [
        (web, "TIMEOUT", window), (web, "WINDOW", window), (download, "PAUSE", 0.0), (download, "TRIES", 2),
        (download, "LARGEST", largest),
    ]  # fmt: skip
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


Kind = Callable[[Draw, bytes, Server], list[Answer]]  # bad answers, in the order in which they are given


def attack(tally: Tally, cases: int, seed: int, name: str, kinds: dict[str, Kind], window: float) -> None:
    """Each case is a bad server, and then a good one."""
    with serving() as server:
        for number in count():
            if tally.cases >= cases or tally.over:
                return
            rng = Draw(f"{seed}/{number}")
            kind = list(kinds)[number % len(kinds)]
            faults = _case(server, kinds[kind], rng, window)
            count_faults(tally, f"servers.{name}, seed {seed}, case {number} ({kind})", faults)
            tally.case()


def _case(server: Server, kind: Kind, rng: Draw, window: float) -> Iterator[str]:
    content, began = original(rng), time.monotonic()
    sha256 = hashlib.sha256(content).hexdigest()
    known = dataset(server.url, sha256 if rng.random() < 0.3 else None)
    with home():
        again = rng.random() < 0.2  # the set is here already, and must stay
        server.answers = [good(content)]
        before = manage.fetch(known, _quiet).read_bytes() if again else None
        server.over.clear()
        server.answers = kind(rng, content, server)
        try:
            with impatient(window):
                manage.fetch(known, _quiet, again=again)
            yield "the answer was believed"
        except DataError as error:
            yield from _unreadable(str(error), server)
        except BaseException as error:
            yield f"no DataError but a {type(error).__name__}: {error}"
        finally:
            server.over.set()
        if (seconds := time.monotonic() - began) > LONGEST:
            yield f"it took {seconds:.0f} seconds"
        if store.recorded(server.url) is not None:
            yield "a hash was recorded"
        if (raw := store.find_raw(known.card)) is not None and raw.read_bytes() != before:
            yield "a raw file was written"
        if before is not None and raw is None:
            yield "the raw file that was there is lost"
        yield from _good_again(server, known, content, sha256)


def _quiet(line: str) -> None:
    """Where a command would print it."""


def _unreadable(text: str, server: Server) -> Iterator[str]:
    if NAME not in text and server.url not in text:
        yield f"the error does not name the file: {text}"
    if not text.isprintable():
        yield f"the error has characters that cannot be printed: {text!r}"
    if len(text) > READABLE:
        yield f"the error has {len(text):,} characters: {text[:200]}"


def _good_again(server: Server, known: Dataset, content: bytes, sha256: str) -> Iterator[str]:
    """With a good server, everything is as if nothing had happened."""
    server.answers = [good(content)]
    try:
        path = manage.fetch(known, _quiet, again=store.find_raw(known.card) is not None)
    except Exception as error:
        yield f"then a good server fails: {type(error).__name__}: {error}"
        return
    folder = store.cache_home() / "downloads" / "numbers"
    if [file.name for file in folder.iterdir()] != [NAME]:
        yield f"then a good server leaves {sorted(file.name for file in folder.iterdir())}"
    elif (folder / NAME).read_bytes() != content:
        yield "then a good server gives other bytes"
    elif known.card.remotes[0].sha256 is None and store.recorded(server.url) != sha256:
        yield "then a good server's hash is not recorded"
    with store.open_raw(path) as found:
        if any(not np.array_equal(found[name], array) for name, array in pack(Files(folder)).items()):
            yield "then the raw file holds other numbers"


# --- bodies ---


def _cut_at(rng: Draw, content: bytes) -> int:
    return rng.choice([0, 1, len(content) - 1, rng.randrange(len(content))])


def _page(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    start = rng.choice(["<!DOCTYPE html>", "<html>", "\r\n\t <HTML lang='en'>", "\ufeff<!doctype HTML>", "<?xml?>"])
    return [answer("200 OK", (start + "Please log in " * rng.randint(0, 1000)).encode())]


def _cut_with_length(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    return [cut_short(content, _cut_at(rng, content), length=len(content))] + [exactly(b"")] * rng.randint(0, 1)


def _cut_without_length(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    return [exactly(head("200 OK") + content[: _cut_at(rng, content)])]


def _reset(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    return [cut_short(content, _cut_at(rng, content) // 2, reset=True)]


def _empty(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    bare, chunked = rng.choice([["Content-Length: 0"], [], ["ETag: v"]]), ["Transfer-Encoding: chunked"]
    return [rng.choice([exactly(head("200 OK", *bare)), exactly(head("200 OK", *chunked) + b"0\r\n\r\n")])]


def _wrong_length(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    size = len(content)
    lengths = [
        size - rng.randint(1, size), size + rng.randint(1, 10**6), 10**17, -1, "1e3", "0x10", "ten", "", "٣", "1 2",
        "9" * rng.randint(20, 6000), f"{size}, {size}", "\x1b[31m5",
    ]  # fmt: skip
    return [exactly(head("200 OK", f"Content-Length: {rng.choice(lengths)}") + content)]


def _encoded(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    encoding = rng.choice(["gzip", "x-gzip", "GZIP", "br", "deflate", "gzip, gzip", "\x1b]0;title\x07"])
    return [answer("200 OK", gzip.compress(content), f"Content-Encoding: {encoding}")]


def _flipped(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    """A byte of the text itself, which the checksum in the archive gives away."""
    broken = bytearray(content)
    broken[rng.randrange(50, 150)] ^= 1 << rng.randrange(8)
    return [answer("200 OK", bytes(broken))]


def _garbage(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    return [answer("200 OK", rng.randbytes(rng.randint(1, 3000)))]


def _chunks(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    sizes = ["-5", "zz", "", "f" * 30, "5;" + "x" * 70_000, "1_0", "0x5", f"{len(content) + 5:x}", "+", "\x00"]
    start = b"%x\r\n%s\r\n" % (100, content[:100]) if rng.random() < 0.5 else b""
    return [
        exactly(head("200 OK", "Transfer-Encoding: chunked") + start + rng.choice(sizes).encode() + b"\r\n" + content)
    ]


def _too_large(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    chunk = b"%x\r\n%s\r\n" % (len(content), content)
    return rng.choice(
        [
            [endless(head("200 OK"), content * 20)],
            [endless(head("200 OK", "Transfer-Encoding: chunked"), chunk * 20)],
            [endless(head("200 OK", "Content-Length: 5000000"), content * 20)],
        ]
    )


BODIES: dict[str, Kind] = {
    "a web page": _page, "cut short": _cut_with_length, "cut short without a length": _cut_without_length,
    "a torn connection": _reset, "nothing": _empty, "a wrong length": _wrong_length, "encoded": _encoded,
    "a flipped bit": _flipped, "garbage": _garbage, "wrong chunks": _chunks, "without end": _too_large,
}  # fmt: skip


def bodies(tally: Tally, cases: int, seed: int) -> None:
    """Web pages for files, cut, empty, encoded, torn and endless bodies, lengths that are none."""
    attack(tally, cases, seed, "bodies", BODIES, window=2.0)


# --- statuses and headers ---


def _refusal(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    code = rng.choice([400, 401, 403, 404, 408, 410, 416, 418, 429, 451, 500, 502, 503, 504, 511, 599])
    return [answer(f"{code} Sorry", rng.choice([b"", b"<html>", content]))]


def _odd_status(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    return [answer(rng.choice(["201 Created", "202 Wait", "204 None", "205 Reset", "299 Odd", "304 Same"]), content)]


def _rude_reason(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    words = rng.choice(["\x1b[2J\x1b[31mowned", "no\x00thing", "x" * 60000, "\x9b31m", "\x07\x08\x08\x08", "a\rb", ""])
    return [answer(f"{rng.choice([404, 403, 500, 203])} {words}", b"")]


def _no_http(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    lines = [
        b"SSH-2.0-OpenSSH_9.0\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n" + content[:-1], b"\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n", b"HTTP/1.1 -1 OK\r\n\r\n", b"\x16\x03\x01\x00\x05hello", content, b"<html>",
        b"HTTP/1.1 200", b"\x1b[31m\x1b[2J\r\n\r\n", b"H" * 100_000,
    ]  # fmt: skip
    return [exactly(rng.choice([*lines, rng.randbytes(rng.randint(1, 500))]))]


def _odd_headers(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    """Headers that may mean anything, and half of the file: it must not be taken for the whole."""
    odd = [
        "no colon here", ": no name", "X:" + "y" * 70_000, "\x00: \x00", "Content-Length", " folded",
        "Content-Length: 5",
        *(f"X-{n}: y" for n in range(150 if rng.random() < 0.3 else 3)), "ETag: \x1b[31m", "Content-Range: bytes 0-5/6",
        "Transfer-Encoding: nonsense", "Connection: upgrade", "Last-Modified: yesterday",
    ]  # fmt: skip
    rng.shuffle(odd)
    return [exactly(head("200 OK", *odd[: rng.randint(1, len(odd))]) + content[: len(content) // 2])]


def _mutated(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    """Changed at random: headers anywhere, and the file cut."""
    sent = bytearray(head("200 OK", f"Content-Length: {len(content)}", 'ETag: "v1"', "Connection: close"))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(sent))
        match rng.randrange(3):
            case 0:
                sent[at] = rng.randrange(256)
            case 1:
                del sent[at : at + rng.randint(1, 8)]
            case _:
                sent[at:at] = rng.randbytes(rng.randint(1, 4))
    return [exactly(bytes(sent) + content[: rng.randrange(len(content))])]


HEADERS: dict[str, Kind] = {
    "refused": _refusal, "an odd status": _odd_status, "rude words": _rude_reason, "no HTTP": _no_http,
    "odd headers": _odd_headers, "changed headers": _mutated,
}  # fmt: skip


def headers(tally: Tally, cases: int, seed: int) -> None:
    """Refusals, statuses that are no answer, other protocols, control characters, headers changed at random."""
    attack(tally, cases, seed, "headers", HEADERS, window=2.0)


# --- resumed downloads ---


def _after_a_cut(rng: Draw, content: bytes, second: Callable[[int], Answer]) -> list[Answer]:
    """A beginning that can be gone on from, and then an answer to that."""
    at = rng.randrange(1, len(content) - 1)
    return [cut_short(content, at, etag='"v1"'), second(at)]


def _part(content: bytes, says: str, etag: str = 'ETag: "v1"', status: str = "206 Partial Content") -> Answer:
    return answer(status, content, *([f"Content-Range: {says}"] if says else []), etag)


def _wrong_range(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    size = len(content)

    def second(at: int) -> Answer:
        other = rng.choice([0, at - 1, at + 1, rng.randrange(size), size, 10**17])
        ranges = [
            f"bytes {other if other != at else 0}-{size - 1}/{size}", f"bytes {at}-{at - 1}/{size}", "", "bytes */5",
            f"bytes {at}-{size - 1}/{'9' * 30}", f"octets {at}-{size - 1}/{size}", "bytes x-y/z", "\x1b[31m",
            f"bytes {at}-{size + 5}/{size + 6}", f"bytes -{size - at}/{size}", "bytes " + "9" * 5000,
        ]  # fmt: skip
        return _part(content[at:], rng.choice(ranges))

    return _after_a_cut(rng, content, second)


def _other_version(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    etag = rng.choice(['ETag: "v2"', 'ETag: W/"v1"', "ETag: v1", "X: y", 'ETag: "\x1b[31m"'])
    size = len(content)
    return _after_a_cut(rng, content, lambda at: _part(content[at:], f"bytes {at}-{size - 1}/{size}", etag))


def _other_bytes(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    """The right range of the right version, but of another file, as only the checksum in the archive shows."""
    other, size = original(rng, series=30), len(content)
    return _after_a_cut(rng, content, lambda at: _part(other[: size - at], f"bytes {at}-{size - 1}/{size}"))


def _whole_instead(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    """The whole file was sent where a part was asked for, but not to its end; it must not be appended."""
    return _after_a_cut(rng, content, lambda at: _cut_always(content, rng.randrange(len(content)), rng))


def _cut_always(content: bytes, at: int, rng: Draw) -> Answer:
    """From the first byte whatever was asked, and not to the end."""
    length = [f"Content-Length: {len(content)}"] if rng.random() < 0.5 else []
    return exactly(head("200 OK", *length, 'ETag: "v3"') + content[:at])


def _nothing_more(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    status = rng.choice(["416 Range Not Satisfiable", "204 No Content", "206 Partial Content", "304 Not Modified"])
    return _after_a_cut(rng, content, lambda at: answer(status, b"", 'ETag: "v1"'))


def _cut_again(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    at = rng.randrange(1, len(content) - 2)
    return [cut_short(content, at), cut_short(content, rng.randint(at, len(content) - 2), reset=rng.random() < 0.5)]


def _unasked(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    first, size = rng.choice([0, 0, rng.randrange(len(content))]), len(content)
    return [_part(content[first:], f"bytes {first}-{size - 1}/{size}")]


RESUMES: dict[str, Kind] = {
    "another range": _wrong_range, "another version": _other_version, "other bytes": _other_bytes,
    "the whole for a part": _whole_instead, "nothing more": _nothing_more, "cut again": _cut_again,
    "a part nobody asked for": _unasked,
}  # fmt: skip


def resumes(tally: Tally, cases: int, seed: int) -> None:
    """Other ranges than asked for, other versions, the whole for a part, parts that are cut again."""
    attack(tally, cases, seed, "resumes", RESUMES, window=2.0)


# --- redirects ---


def _redirect(rng: Draw, place: str, body: bytes = b"") -> Answer:
    return answer(f"{rng.choice([301, 302, 303, 307, 308])} Elsewhere", body, f"Location: {place}")


def _loop(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    cycle = [f"/{n}" for n in range(rng.choice([1, 2, 3]))]

    def give(asked: Asked) -> None:
        here = cycle.index(asked.path) if asked.path in cycle else -1
        _redirect(rng, cycle[(here + 1) % len(cycle)])(asked)

    return [rng.choice([give, _redirect(rng, f"/{NAME}"), _redirect(rng, server.url)])]


def _never_there(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    """Always one further."""
    steps = count()
    return [lambda asked: _redirect(rng, f"/further/{next(steps)}/{NAME}")(asked)]


def _elsewhere(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    here = server.server_address[1]
    places = [
        "file:///etc/passwd", "FILE:///etc/hosts", "ftp://127.0.0.1/numbers.zip", "data:text/plain,hello",
        "javascript:1", "gopher://127.0.0.1/", "http://[1", "http://", "http:///numbers.zip", "://", "//", "?", "#", "",
        "http://127.0.0.1:99999/x", "http://127.0.0.1:-1/x", "http://127.0.0.1:abc/x", "http://127.0.0.1:٣/x",
        "http://127.0.0.1:0/", "http://127.0.0.1:1/x", "https://127.0.0.1:1/x", f"https://127.0.0.1:{here}/x",
        f"http://127.0.0.1:{here}\\@127.0.0.1/x", f"http://user:password@127.0.0.1:{here}/x y", "\x00", "\x1b[31m",
        "http://" + "a" * 100 + "/x", "x" * 60_000, "http://127.0.0.1:1/\r\tx", "ht tp://127.0.0.1/",
        "file:numbers.zip", "unix:/run/x", "jar:file:/x!/y",
    ]  # fmt: skip
    return [_redirect(rng, rng.choice(places))]


def _endless_redirect(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    return [endless(head("302 Found", f"Location: /{NAME}"), content)]


def _no_place(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    return [answer(f"{rng.choice([300, 301, 302, 305, 306, 307, 399])} Elsewhere", content)]


REDIRECTS: dict[str, Kind] = {
    "elsewhere": _elsewhere, "in circles": _loop, "ever further": _never_there, "elsewhere, another": _elsewhere,
    "without end": _endless_redirect, "to nowhere": _no_place,
}  # fmt: skip


def redirects(tally: Tally, cases: int, seed: int) -> None:
    """In circles, ever further, to files of this machine, to addresses that are none."""
    attack(tally, cases, seed, "redirects", REDIRECTS, window=2.0)


# --- slow ---


def _trickle(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    starts = [
        b"", b"HTTP/1.1 200 ", head("200 OK")[:-2] + b"X: ", head("200 OK"), head("200 OK", "Content-Length: 1000000"),
        head("200 OK", "Transfer-Encoding: chunked") + b"5;", head("404 Not Found", "Content-Length: 100000")[:-4],
    ]  # fmt: skip
    return [endless(rng.choice(starts), rng.choice([b"x", b" ", b"0", b"\n"]), pause=0.02)]


def _silence(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    sent = head("200 OK", f"Content-Length: {len(content)}", 'ETag: "v1"') + content
    start = sent[: rng.randrange(len(sent) - 1)]

    def give(asked: Asked) -> None:
        asked.send(start)
        asked.over.wait(LONGEST)

    return [give]


def _endless_headers(rng: Draw, content: bytes, server: Server) -> list[Answer]:
    again = rng.choice([head("100 Continue"), b"X: y\r\n", b"X: " + b"y" * 60_000 + b"\r\n", b"y" * 1000, b"\x00"])
    return [endless(rng.choice([b"", b"HTTP/1.1 200 OK\r\n"]) if again[:1] != b"H" else b"", again)]


SLOW: dict[str, Kind] = {"byte by byte": _trickle, "silent": _silence, "endless headers": _endless_headers}


def slow(tally: Tally, cases: int, seed: int) -> None:
    """A byte now and then, nothing at all, headers without end: given up, whatever comes."""
    attack(tally, cases, seed, "slow", SLOW, window=0.25)
