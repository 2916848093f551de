"""A headless Chromium, driven over two pipes: for pictures of the page, and for its tests.

It loads only what this machine serves. There is no library: what is needed of the browser's protocol is four commands.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

# How long the browser may take for one answer, or until something is on the page. Seconds.
PATIENCE_S = 60.0


def chromium() -> str | None:
    """The path of a Chromium; None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser did not do as it was told."""


class Browser:
    """One tab of a browser of its own, which ends with the context. ``wide``, ``high``: pixels."""

    def __init__(self, path: str, wide: int = 1600, high: int = 1000, *, dark: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deskgrid-browser-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._back, to_write = os.pipe()
        # The browser reads commands from its file 3, and writes answers to its file 4.
        options = f"--headless --no-sandbox --disable-gpu --no-first-run --user-data-dir={self._folder.name}"
        shell = f'exec "$0" {options} --remote-debugging-pipe about:blank 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, path],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest, self._session = 0, b"", ""
        self.complaints: list[str] = []  # what the page's console said as warnings and errors
        self._open(wide, high, dark)

    def _open(self, wide: int, high: int, dark: bool) -> None:
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.command("Page.enable")
        self.command("Runtime.enable")
        self.command("Log.enable")
        self.size(wide, high)
        self.command(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(BrowserError, OSError):
            self._session = ""
            self.command("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._back)
        self._folder.cleanup()

    def size(self, wide: int, high: int) -> None:
        """Make the window so large."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=wide < 600
        )

    def go(self, url: str) -> None:
        """Open a page."""
        self.command("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def until(self, script: str, done: Callable[[Any], bool] = bool) -> Any:
        """The value of an expression, as soon as it is as it should be."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                value = self.run(script)
            except BrowserError as error:
                value = error  # the page is being loaded
            if not isinstance(value, BrowserError) and done(value):
                return value
            if time.monotonic() > end:
                raise BrowserError(f"{script}: {value!r}")
            time.sleep(0.05)

    def text(self) -> str:
        """All that can be read on the page."""
        return str(self.run("document.body.innerText"))

    def picture(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])

    def command(self, method: str, **values: Any) -> dict[str, Any]:
        """The browser's answer to a command of its protocol."""
        self._number += 1
        said: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session:
            said["sessionId"] = self._session
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._hear(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _hear(self, event: dict[str, Any]) -> None:
        values = event.get("params", {})
        if event.get("method") == "Log.entryAdded" and values["entry"]["level"] in ("warning", "error"):
            self.complaints.append(f"{values['entry']['text']} {values['entry'].get('url', '')}")
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(values["exceptionDetails"].get("exception", {}).get("description")))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._back, 2**20)
            if not piece:
                raise BrowserError("the browser has ended")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer
