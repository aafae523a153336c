"""Responses of web servers, at a minimum rate: the only file that opens connections.

The timeout of a socket counts from byte to byte, so a server that sends a byte now and then would keep us waiting for
ever. Here, headers and body must both arrive at a minimum rate, and redirects must lead to an http or https address.
"""

from __future__ import annotations

import io
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import IO, Any, cast

from lformer.data.files import DataError

Response = HTTPResponse  # the type that `open_url` returns, for modules that open nothing themselves

TIMEOUT = 30.0  # seconds without a byte
WINDOW = 30.0  # seconds over which the rate is measured
SLOWEST = 2**15  # bytes in that time; a slower server is given up
LARGEST_HEAD = 2**20  # bytes before the body


class NoAnswer(Exception):
    """The file did not arrive completely; another attempt may help."""


def open_url(url: str, headers: Mapping[str, str]) -> HTTPResponse:
    """The response of a server once its headers have arrived. A refusal raises an HTTPError."""
    _check_scheme(url)
    with _network():
        request = urllib.request.Request(url, headers={"User-Agent": "lformer", **headers})
        opener = urllib.request.build_opener(_Http, _Https, _Redirects)
        return cast(HTTPResponse, opener.open(request, timeout=TIMEOUT))


def read(response: HTTPResponse, size: int) -> bytes:
    """Read some bytes of the body, as soon as there are any; b"" at its end."""
    with _network():
        return response.read1(size)


@contextmanager
def _network() -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, HTTPException) as error:  # URLError is an OSError
        raise NoAnswer(in_words(error) or type(error).__name__) from error


def in_words(said: object) -> str:
    """Text from a server as part of a message: one short line without control characters."""
    text = " ".join(str(said).split())[:200]
    return "".join(character if character.isprintable() else "?" for character in text)


def _check_scheme(url: str) -> None:
    if not url.lower().startswith(("https://", "http://")):
        raise DataError(f"only http and https addresses are supported; got {in_words(url)}.")


class _Paced(io.RawIOBase):
    """The bytes from a socket, provided that they arrive fast enough.

    Attributes:
        head: whether the headers of the response are still being read, whose size is limited.
    """

    def __init__(self, source: io.RawIOBase) -> None:
        self._source = source
        self._since = 0.0  # start of the window; 0 before the first byte
        self._count = 0  # bytes in the window
        self._total = 0
        self.head = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._source.readinto(buffer) or 0
        now = time.monotonic()
        self._since = self._since or now
        self._count += count
        self._total += count
        if self.head and self._total > LARGEST_HEAD:
            raise OSError("the headers of the response do not end")
        if count and now - self._since > WINDOW:
            if self._count < SLOWEST:
                raise TimeoutError(f"only {self._count:,} bytes arrived in {now - self._since:.0f} seconds")
            self._since, self._count = now, 0
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paced = _Paced(self.fp.detach())
        self.fp = io.BufferedReader(self._paced)

    def begin(self) -> None:
        super().begin()
        self._paced.head = False


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_SecureConnection, req)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        _check_scheme(newurl)
        fp.close()  # otherwise its body would be read to the end, which may never come
        return super().redirect_request(req, fp, code, msg, headers, newurl)
