"""A real browser for tests: headless Chromium, spoken to in the DevTools protocol over two pipes."""

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 120.0  # seconds; a busy machine may take long to start it
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowUp": 38, "ArrowDown": 40}
# Of all text that is shown: its contrast with the ground it stands on, and what it says.
CONTRAST = """
(() => {
  const numbers = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const rgba = c => { const n = numbers(c), k = c.startsWith('color(') ? 255 : 1;
    return [n[0] * k, n[1] * k, n[2] * k, n.length > 3 ? n[3] : 1]; };
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor);
    if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  document.querySelectorAll('details').forEach(d => d.open = true);
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || ['SCRIPT', 'STYLE', 'title'].includes(e.tagName) || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), ink = rgba(e.tagName === 'text' ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), e.tagName + ' ' + e.textContent.trim().slice(0, 30)]);
  }
  return found;
})()
"""
FOCUSABLE = """
[...document.querySelectorAll('a[href], button, summary, [tabindex]')].filter(e => e.tabIndex >= 0)
  .map((e, n) => { e.dataset.n = n; return n; })
"""
NOW = """
(() => { const e = document.activeElement, s = getComputedStyle(e);
  return [e.dataset.n === undefined ? null : Number(e.dataset.n), s.outlineStyle, parseFloat(s.outlineWidth)]; })()
"""


def chromium() -> str | None:
    """Where it is; None if there is none."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


class Browser:
    """One tab. What it does without being asked, requests and complaints, is kept in `events`."""

    def __init__(self, folder: Path) -> None:
        program = chromium()
        assert program is not None
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(  # it reads from descriptor 3 and writes to 4
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self.events: list[dict[str, Any]] = []
        self._buffer, self._count, self._session = b"", 0, ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)  # which it takes as a farewell
        os.close(self._from)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, **params: Any) -> Any:
        """What a method of the protocol returns."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, page: Path, dark: bool = False, width: int = 1100, fragment: str = "") -> None:
        """Load a file and wait for the end of it; events are those of this page alone."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        if fragment:  # from one place of a page to another, nothing would be loaded
            self._load("about:blank")
        self._load(page.resolve().as_uri() + fragment)

    def _load(self, address: str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as a hand would."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself included."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Errors, warnings and whatever else the page wrote to the console."""
        told = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in told]

    def _next(self) -> dict[str, Any]:
        """The next message; they end with a zero byte."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], PATIENCE)
            piece = os.read(self._from, 1 << 16) if ready else b""
            if not piece:
                raise RuntimeError("the browser does not answer")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
