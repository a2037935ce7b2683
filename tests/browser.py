"""Headless Chromium, driven by its own driver over the W3C WebDriver protocol.

Where either is not installed tests skip, and say so (Debian: chromium, chromium-driver).
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromium-driver to click through the report",
)
_PATIENCE_S: Final = 300
"""No assertion on speed: what takes longer hangs."""

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of element references (WebDriver, section 12)."""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # Which is small in containers.
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """A session of headless Chromium with a user directory of its own."""

    def __init__(self, folder: Path) -> None:
        assert DRIVER is not None
        self._folder = folder
        self._process = subprocess.Popen(
            [DRIVER, "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            # Whatever the browser leaves goes with the folder.
            env={**os.environ, "TMPDIR": str(folder), "HOME": str(folder)},
        )
        self._session = ""
        try:
            self._port = self._find_port()
            options = {
                "binary": CHROMIUM,
                "args": [*_FLAGS, f"--user-data-dir={folder / 'profile'}"],
            }
            capabilities = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
                # A slow machine thinks for long about a page of thousands of figures.
                "timeouts": {"script": 1000 * _PATIENCE_S, "pageLoad": 1000 * _PATIENCE_S},
            }
            made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self.close()
            raise

    def _find_port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.rstrip().rstrip(".").split()
            if "successfully" in words and words[-1].isdecimal():
                return int(words[-1])
        raise RuntimeError("chromedriver did not start")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{path}: {answer['error']}: {answer['message']}")
        return answer

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            if self._session:
                self._call("DELETE", self._session)
        finally:
            self._process.terminate()
            self._process.wait(timeout=_PATIENCE_S)
            if self._process.stdout is not None:
                self._process.stdout.close()

    def open(self, path: Path, *, width: int = 1280, dark: bool = False) -> None:
        """Show a file in a window of some width."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])
        self._call("POST", f"{self._session}/url", {"url": path.as_uri()})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        body = {"cmd": command, "params": parameters}
        return self._call("POST", f"{self._session}/goog/cdp/execute", body)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        body = {"script": script, "args": list(arguments)}
        return self._call("POST", f"{self._session}/execute/sync", body)

    def click(self, selector: str) -> None:
        """Click on the one element, as a user would."""
        self._call("POST", f"{self._session}/element/{self._find(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        """Replace what stands in a field."""
        path = f"{self._session}/element/{self._find(selector)}"
        self._call("POST", f"{path}/clear", {})
        self._call("POST", f"{path}/value", {"text": text})

    def press(self, selector: str, keys: str) -> None:
        """Press keys at an element."""
        path = f"{self._session}/element/{self._find(selector)}/value"
        self._call("POST", path, {"text": keys})

    def _find(self, selector: str) -> str:
        body = {"using": "css selector", "value": selector}
        return str(self._call("POST", f"{self._session}/element", body)[_ELEMENT])

    def shown_seconds(self) -> float:
        """What the report's calculator says."""
        return float(self.run("return document.getElementById('time').dataset.seconds"))

    def complains_of(self, words: str) -> bool:
        """Whether the console says so; it does a moment later, maybe."""
        until = time.monotonic() + _PATIENCE_S
        while not any(words in said for said in self.complaints()):
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def complaints(self) -> list[str]:
        """What the console says since the last call."""
        entries = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [e["message"] for e in entries]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser while the block runs."""
    # Not in pytest's own folder: the browser's sockets have short names only (unix(7)).
    place = "/tmp" if os.access("/tmp", os.W_OK) else None
    with tempfile.TemporaryDirectory(
        prefix="topocal-", dir=place, ignore_cleanup_errors=True
    ) as folder:
        opened = Browser(Path(folder))
        try:
            yield opened
        finally:
            opened.close()
