"""Downloads that are resumed and verified; the response of a server is kept only if it looks like the file."""

from __future__ import annotations

import os
import re
import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lformer import sealed
from lformer.data import store, web
from lformer.data.dataset import Remote
from lformer.data.files import DataError
from lformer.data.web import NoAnswer, Response, in_words

CHUNK = 2**18
TRIES = 5
PAUSE = 1.0  # seconds before the second try, doubled with each
LARGEST = 2**34  # bytes of a download; ours have at most a few hundred million
BUSY = {408, 429}  # status codes below 500 after which another attempt may help

Report = Callable[[int, int | None], None]  # bytes so far, bytes in all if known
Verified = Literal["published", "recorded", "first"]


@dataclass(frozen=True)
class Downloaded:
    """A downloaded file.

    Attributes:
        remote: where it was downloaded from.
        path: where it is stored.
        sha256: hash of its content.
        verified: "published" or "recorded" (at an earlier download), depending on the hash that it agrees with, or
            "first" if there is none to compare with: it should be read before its hash is recorded.
    """

    remote: Remote
    path: Path
    sha256: str
    verified: Verified


def download(remote: Remote, folder: Path, name: str, report: Report = lambda done, total: None) -> Downloaded:
    """Download a file to a folder, resuming an earlier attempt, and verify it.

    Args:
        remote: the address of the file, and its published hashes if there are any.
        folder: where to store it.
        name: name of the data set, for messages.
        report: function that is called with the progress.
    """
    target = folder / remote.name
    with store.locked(f"download-{remote.name}"):
        recorded = store.recorded(remote.url)  # before the download, because the record may be damaged
        if target.is_file():
            try:
                return _check(remote, target, recorded, name)
            except DataError:
                target.unlink()  # not what was downloaded: get it again
        folder.mkdir(parents=True, exist_ok=True)
        part = _part(target)
        _transfer(remote, part, report)
        try:
            found = _check(remote, part, recorded, name)
        except DataError:
            _discard(part)
            raise
        part.replace(target)
        _note(part).unlink(missing_ok=True)
        return Downloaded(remote, target, found.sha256, found.verified)


def discard(remote: Remote, folder: Path) -> None:
    """Remove a downloaded file, complete or partial."""
    (folder / remote.name).unlink(missing_ok=True)
    _discard(_part(folder / remote.name))


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _part(target: Path) -> Path:
    """Path of a partial download."""
    return target.with_name(target.name + ".part")


def _note(part: Path) -> Path:
    """Path of the note on which version of the file a partial download is."""
    return part.with_name(part.name + ".json")


# -- verification


def _check(remote: Remote, file: Path, recorded: str | None, name: str) -> Downloaded:
    """Check a file against the known hashes."""
    with file.open("rb") as stream:
        start = stream.read(512).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.lower().startswith((b"<!doctype html", b"<html")):
        raise DataError(
            f"{remote.url} sent a web page instead of the file, as login pages and proxies do; it begins with "
            f"{start[:60]!r}. It was not kept."
        )
    sha256 = store.digest(file)
    md5 = None if remote.md5 is None else store.digest(file, "md5")
    for expected, found in ((remote.sha256, sha256), (remote.md5, md5)):
        if expected is not None and expected != found:
            raise DataError(
                f"{remote.url} has hash {found}, but the published one is {expected}. The file was removed; try again. "
                "If this happens again, its owner has changed it."
            )
    if remote.sha256 is not None or remote.md5 is not None:
        return Downloaded(remote, file, sha256, "published")
    if recorded is not None and recorded != sha256:
        raise DataError(
            f"{remote.url} has sha256 {sha256}, but {recorded} was recorded in {store.hashes_file()} when it was "
            "downloaded before. The file was removed. If its owner has changed it, accept the new one with "
            f"`lformer data fetch {name} --again`."
        )
    return Downloaded(remote, file, sha256, "first" if recorded is None else "recorded")


# -- transfer


def _transfer(remote: Remote, part: Path, report: Report) -> None:
    url = remote.url
    for attempt in range(TRIES):
        try:
            return _continue(remote, part, report)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 and error.code not in BUSY:
                raise DataError(f"{url} answered {error.code} {in_words(error.reason)}; it may have moved.") from error
            problem: Exception = error
        except NoAnswer as error:
            problem = error
        except OSError as error:  # of the disk
            what = f"{error.strerror or error}; fix this and run the command again"
            raise OSError(error.errno, what, str(part)) from error
        except DataError:
            _discard(part)
            raise
        except ValueError as error:
            raise DataError(f"{url} leads to an address that cannot be opened: {in_words(error)}.") from error
        if attempt + 1 < TRIES:
            time.sleep(PAUSE * 2**attempt)
    raise DataError(
        f"{url} could not be downloaded in {TRIES} tries: {in_words(problem)}. Run the command again to resume."
    )


def _continue(remote: Remote, part: Path, report: Report) -> None:
    """One attempt: request the missing part; a server that cannot resume, or whose file has changed, sends it all."""
    have, version = _begun(remote, part)
    try:
        response = web.open_url(remote.url, {"Range": f"bytes={have}-", "If-Range": version} if have else {})
    except urllib.error.HTTPError as error:
        if not have or error.code != 416:
            raise
        error.close()
        _discard(part)  # as long as the file, or longer: it cannot be a part of it
        raise NoAnswer(f"there is nothing after byte {have:,}") from error
    with response:
        total = _total(remote, response)
        if response.status == 206:
            try:
                total = _resumed(response, have, version)
            except NoAnswer:
                _discard(part)
                raise
        else:
            have = 0
            part.unlink(missing_ok=True)  # first, so that the note never describes other bytes
            sealed.write_json(_note(part), {"url": remote.url, "version": _version(response)})
        if total is not None and total > LARGEST:
            raise DataError(f"{remote.url} would have {total / 2**30:.1f} GiB; no file of a data set is that large.")
        have = _append(remote, response, part, have, total, report)
    if total is not None and have != total:
        raise NoAnswer(f"the connection ended after {have:,} of {total:,} bytes")
    if not have:
        raise NoAnswer("the response was empty")


def _append(remote: Remote, response: Response, part: Path, have: int, total: int | None, report: Report) -> int:
    """Append the response to the file; returns the size of the file at the end."""
    with part.open("ab") as stream:
        while have != total and (chunk := web.read(response, CHUNK if total is None else min(CHUNK, total - have))):
            stream.write(chunk)
            have += len(chunk)
            report(have, total)
            if have > LARGEST:
                raise DataError(f"{remote.url} sent more than {LARGEST / 2**30:.0f} GiB; no data set is that large.")
        stream.flush()
        os.fsync(stream.fileno())
    return have


def _begun(remote: Remote, part: Path) -> tuple[int, str]:
    """The size and version of a partial download; 0 and "" if it cannot be resumed."""
    try:
        note = sealed.read_json(_note(part))
        have = part.stat().st_size
    except (FileNotFoundError, sealed.DamagedError):
        return 0, ""
    version = note.get("version")
    if note.get("url") != remote.url or not isinstance(version, str) or not version:
        return 0, ""
    return have, version


def _version(response: Response) -> str:
    """The server's identifier of this version of the file; weak ones do not guarantee equal bytes."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")


def _total(remote: Remote, response: Response) -> int | None:
    """The length of the response if it is declared; raises an error if it cannot be the file."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if response.status not in (200, 206):
        raise DataError(f"{remote.url} answered {response.status} {in_words(response.reason)} instead of the file.")
    if encoding not in ("", "identity") and not (encoding.endswith("gzip") and remote.name.endswith((".gz", ".tgz"))):
        raise DataError(f"{remote.url} was sent as {in_words(encoding)}, which was not requested; a proxy may do this.")
    length = response.headers.get("Content-Length")
    if length is None or response.chunked:
        return None
    if not re.fullmatch(r"\d{1,18}", length.strip(), re.ASCII):
        raise DataError(f"{remote.url} answered with a Content-Length of {length[:80]!r}; expected a number of bytes.")
    return int(length)


def _resumed(response: Response, have: int, version: str) -> int:
    """The length of the file of which a part was sent; raises an error if it is not the requested part."""
    said = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", said.strip(), re.ASCII)
    if not have or match is None or int(match[1]) != have or int(match[2]) < have:
        raise NoAnswer(f"bytes from {have:,} on were requested, but {said[:80]!r} were sent")
    if _version(response) != version:
        now = in_words(_version(response))
        raise NoAnswer(f"the file changed on the server during the download, from {in_words(version)} to {now}")
    return int(match[2]) + 1 if match[3] == "*" else int(match[3])
