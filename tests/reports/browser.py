"""Controls Debian's Chromium through its debugging pipe, without further packages."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

TIMEOUT = 60
CHROMIUM = shutil.which("chromium")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio")


class Browser:
    """One page of a browser, as a context manager."""

    def __enter__(self) -> Browser:
        self._profile = tempfile.mkdtemp(prefix="unskew-browser-")
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        flags = " ".join((*FLAGS, f"--user-data-dir={self._profile}", "--remote-debugging-pipe"))
        # The browser reads commands from descriptor 3 and answers on 4.
        script = f"exec {CHROMIUM} {flags} 3<&{to_read} 4>&{to_write}"
        self._process = subprocess.Popen(
            ["bash", "-c", script], pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._ids, self._rest, self.events = itertools.count(1), b"", []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # the browser ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; events that arrive meanwhile are kept in `events`."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return dict(message["result"])

    def open(self, path: Path, width: int, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """Show a file and wait until it has loaded."""
        self.send("Emulation.setScrollbarsHidden", hidden=True)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()
        # Messages from drawing the page arrive after it has loaded.
        drawn = "new Promise(done => requestAnimationFrame(() => done(true)))"
        self.send("Runtime.evaluate", expression=drawn, awaitPromise=True)

    def value(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        return self.send("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def picture(self, path: Path, height: int | None = None) -> None:
        """Save a screenshot of the entire page, or of its upper part."""
        width = self.value("document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height or self.value("document.documentElement.scrollHeight")}
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip | {"scale": 1})
        path.write_bytes(base64.b64decode(shot["data"]))

    def console_messages(self) -> list[str]:
        """Console messages, exceptions and log entries since the page was opened."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """URLs that the page requested, except its own and data URLs."""
        sent = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("data:", "file:"))]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], TIMEOUT)[0]:
                raise RuntimeError(f"the browser did not answer for {TIMEOUT} seconds")
            more = os.read(self._in, 1 << 20)
            if not more:
                raise RuntimeError("the browser ended")
            self._rest += more
        head, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(head)
        if "method" in message:
            self.events.append(message)
        return dict(message)
