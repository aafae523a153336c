"""Downloads that resume and are verified. The only file that touches the network."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import cast

from lformer.data import store
from lformer.data.dataset import Remote
from lformer.data.files import DataError

CHUNK = 1 << 18
TRIES = 5
TIMEOUT = 30.0  # seconds without a byte
PAUSE = 1.0  # seconds before the second try, doubled with each

Report = Callable[[int, int | None], None]  # bytes so far, bytes in all if known


def download(remote: Remote, folder: Path, report: Report = lambda done, total: None) -> tuple[Path, str]:
    """Bring a file into a folder, from where an earlier try stopped, and verify it.

    Args:
        remote: its address, and its hashes if anybody has published them.
        folder: where it goes.
        report: called with the progress.

    Returns:
        The file, and how it was verified: "published", "recorded" (equal to an earlier download) or "first" (nothing to
        compare with; its hash is recorded now).
    """
    target = folder / remote.name
    with store.locked(f"download-{remote.name}"):
        if target.is_file():
            return target, _check(remote, target)
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        _transfer(remote.url, part, report)
        how = _check(remote, part)
        part.replace(target)
        _mark(part).unlink(missing_ok=True)
        return target, how


def _transfer(url: str, part: Path, report: Report) -> None:
    for attempt in range(TRIES):
        try:
            return _continue(url, part, report)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:
                raise DataError(f"{url} answered {error.code} {error.reason}; it may have moved.") from error
            problem: Exception = error
        except (OSError, HTTPException) as error:  # URLError is an OSError
            problem = error
        if attempt + 1 < TRIES:
            time.sleep(PAUSE * 2**attempt)
    raise DataError(f"{url} could not be downloaded in {TRIES} tries: {problem}. Run the command again to go on.")


def _continue(url: str, part: Path, report: Report) -> None:
    """One try: ask for what is missing; a server that cannot do so, or whose file has changed, sends it all."""
    have = part.stat().st_size if part.is_file() else 0
    mark = _mark(part).read_text() if have and _mark(part).is_file() else ""
    headers = {"User-Agent": "lformer"}
    if have and mark:
        headers |= {"Range": f"bytes={have}-", "If-Range": mark}
    try:
        response = cast(HTTPResponse, urllib.request.urlopen(_request(url, headers), timeout=TIMEOUT))
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing left to ask for: what lies here is as long as the file, or longer
            raise
        error.close()
        part.unlink()
        response = cast(HTTPResponse, urllib.request.urlopen(_request(url, {"User-Agent": "lformer"}), timeout=TIMEOUT))
    with response:
        resumed = response.status == 206
        have = have if resumed else 0
        left = response.headers.get("Content-Length")
        total = have + int(left) if left is not None else None
        _mark(part).write_text(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")
        with part.open("ab" if resumed else "wb") as stream:
            while chunk := response.read(CHUNK):
                stream.write(chunk)
                have += len(chunk)
                report(have, total)
    if total is not None and have != total:
        raise OSError(f"the connection ended after {have:,} of {total:,} bytes")


def _request(url: str, headers: dict[str, str]) -> urllib.request.Request:
    if not url.startswith(("https://", "http://")):
        raise DataError(f"only http and https are downloaded; got {url}.")
    return urllib.request.Request(url, headers=headers)


def _mark(part: Path) -> Path:
    """Where the server's name for this version of the file is kept."""
    return part.with_name(part.name + ".etag")


def _check(remote: Remote, file: Path) -> str:
    """Compare with what is known; a file that differs is removed."""
    sha256 = store.digest(file)
    known = [(remote.sha256, sha256, "published")]
    if remote.md5 is not None:
        known.append((remote.md5, store.digest(file, "md5"), "published"))
    known.append((store.recorded(remote.url), sha256, "recorded"))
    for expected, found, kind in known:
        if expected is not None:
            if expected != found:
                file.unlink()
                raise DataError(
                    f"{remote.url} has hash {found}, but the {kind} one is {expected}. The file was removed; try "
                    "again, and if it happens twice, its owner has changed it."
                )
            return kind
    store.record(remote.url, sha256)
    return "first"
