"""Headless Chromium, driven over WebDriver: what a page shows, logs, and asks the network for."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TIMEOUT_SECONDS = 60
DRIVER_STARTS = 5
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def is_installed() -> bool:
    return bool(shutil.which("chromedriver") and shutil.which("chromium"))


class Browser:
    """One window."""

    def __init__(self, driver: str) -> None:
        options = {
            "binary": shutil.which("chromium"),
            "args": FLAGS,
        }
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._driver = driver
        self._session = ""
        answer = self._post("session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"

    def open(self, url: str) -> None:
        self._post("url", {"url": url})

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return self._post("execute/sync", {"script": f"return {expression}", "args": []})

    def wait_for(self, expression: str) -> None:
        """Waits until the expression is true, or fails after WebDriver's own timeout of 30
        seconds."""
        script = f"""
            const done = arguments[0];
            const look = () => (({expression}) ? done(true) : setTimeout(look, 20));
            look();
        """
        self._post("execute/async", {"script": script, "args": []})

    def text(self, selector: str) -> str:
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")

    def devtools(self, command: str, **arguments: object) -> None:
        self._post("goog/cdp/execute", {"cmd": command, "params": arguments})

    def screenshot(self) -> bytes:
        """The window as a PNG."""
        with urlopen(
            f"{self._driver}{self._session}/screenshot", timeout=TIMEOUT_SECONDS
        ) as answer:
            return base64.b64decode(json.load(answer)["value"])

    def errors(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        logged = self._post("se/log", {"type": "browser"})
        return [item["message"] for item in logged if item["level"] in ("SEVERE", "WARNING")]

    def requested(self) -> set[str]:
        """Every URL asked for since the last call."""
        logged = self._post("se/log", {"type": "performance"})
        events = [json.loads(item["message"])["message"] for item in logged]
        return {
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        }

    def close(self) -> None:
        request = Request(f"{self._driver}{self._session}", method="DELETE")
        urlopen(request, timeout=TIMEOUT_SECONDS).close()

    def _post(self, path: str, body: dict[str, object]) -> Any:
        request = Request(
            f"{self._driver}{self._session}/{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            said = json.load(error)["value"]
            raise AssertionError(f"{said['error']}: {said['message']}\n{body}") from error


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, with an empty profile; gone when the block ends."""
    driver, port = _driver()
    try:
        window = Browser(f"http://127.0.0.1:{port}")
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.communicate(timeout=TIMEOUT_SECONDS)


def _driver() -> tuple[subprocess.Popen[str], int]:
    """A driver and its port. A driver that ends before it has a port is started again; another
    program may have taken the port first."""
    for _ in range(DRIVER_STARTS):
        driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert driver.stdout is not None
        said = []
        for line in driver.stdout:
            said.append(line)
            if match := re.search(r"started successfully on port (\d+)", line):
                return driver, int(match[1])
        driver.wait(TIMEOUT_SECONDS)
    raise AssertionError(f"chromedriver: expected a port, got {''.join(said)!r}")
