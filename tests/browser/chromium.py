"""A headless Chromium, driven over WebDriver by the chromedriver that is installed with it.

Nothing is fetched: both programs must be there, of one version, as
distributions and CI images have them. Selenium is told where they are, so its
own manager, which would download them, stays out of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

BROWSERS = ("google-chrome", "google-chrome-stable", "chromium", "chromium-browser")
DRIVER = "chromedriver"
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PATIENCE = 300
"""Seconds for a script."""
_SHOWN = """
return [...document.querySelectorAll(arguments[0])].filter((element) =>
  element.checkVisibility({ visibilityProperty: true, opacityProperty: true })
  && element.getClientRects().length);
"""


class Tab:
    """A page in the browser, as a user meets it."""

    def __init__(self, driver: Chrome) -> None:
        self._driver = driver
        self.requests: list[str] = []
        self.blocked: list[str] = []
        self.messages: list[str] = []

    def open(self, file: Path) -> None:
        """Open a file, and note what was requested and said meanwhile."""
        self._driver.get("about:blank")
        self.look()
        self.requests, self.blocked, self.messages = [], [], []
        self._driver.get(file.as_uri())
        self.look()

    def look(self) -> None:
        """Note what was asked for, why it was not sent, and what stands in the console."""
        for entry in self._driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            told = event["params"]
            if event["method"] == "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            elif event["method"] == "Network.loadingFailed" and "blockedReason" in told:
                self.blocked.append(told["blockedReason"])
        self.messages += [entry["message"] for entry in self._driver.get_log("browser")]

    def emulate(self, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Set the size of the window in CSS pixels, and what the user likes."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def without_script(self, *, disabled: bool) -> None:
        """Whether pages that are opened from now on run scripts."""
        self._driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": disabled})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns that is run in the page, past its policy."""
        return self._driver.execute_script(script, *arguments)

    def answered(self, script: str, *arguments: Any) -> Any:
        """What a script gives to its last argument, a function, once it is done."""
        # Thirty seconds without it, of which a large page on a busy machine may take more.
        self._driver.set_script_timeout(_PATIENCE)
        return self._driver.execute_async_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        return self._driver.find_element("css selector", selector)

    def shown(self, selector: str) -> list[WebElement]:
        """The elements that a user sees."""
        # In one go: asked of each by itself, a page of many takes seconds.
        found: list[WebElement] = self.run(_SHOWN, selector)
        return found

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        for key in keys:
            self._driver.switch_to.active_element.send_keys(key)

    def screenshot(self, name: str) -> None:
        """Keep what is seen, in `build/screenshots`."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        assert self._driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


@contextmanager
def chromium(folder: Path) -> Iterator[Tab]:
    """A browser whose profile and HOME are in an empty folder."""
    # Late: every process that runs tests imports this, and one of them has the browser.
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    browser, driver = installed()
    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    if os.geteuid() == 0:
        # Chromium has no sandbox for root.
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    own = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config")}
    own["XDG_CACHE_HOME"] = str(folder / ".cache")
    service = Service(driver, env={**os.environ, **own})
    with Chrome(options, service) as window:
        yield Tab(window)


def installed() -> tuple[str, str]:
    """The paths of a browser and its driver; an AssertionError where they are not there."""
    driver = shutil.which(DRIVER)
    browsers = [path for path in map(shutil.which, BROWSERS) if path]
    assert driver, f"the tests of pages need {DRIVER} on the PATH, and Chromium or Chrome"
    assert browsers, f"the tests of pages need one of {', '.join(BROWSERS)} on the PATH"
    version = _version(driver)
    for browser in browsers:
        if _version(browser) == version:
            return browser, driver
    raise AssertionError(f"{DRIVER} is of version {version}, and none of {browsers} is")


def _version(program: str) -> str:
    """The first number of its version: what a driver and its browser share."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"\d+", said.stdout)
    assert found, f"{program} --version says {said.stdout!r}"
    return found[0]
