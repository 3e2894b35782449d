"""Prefect's UI in a browser: the form in which a run is made, the page of the run, its artifacts."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from running_up import Up, until
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")
HOW_IT_ENDED = (
    "//*[contains(@class, 'page-heading-flow-run')]//*[contains(@class, 'state-badge')]"
    "[normalize-space(.) and contains('Completed Failed Crashed Cancelled', normalize-space(.))]"
)


def open_form(browser: Chrome, up: Up, deployment: str, filled: str = "Name") -> None:
    """The page on which a run of a deployment is made, with parameters to be changed, when this field is filled in."""
    (found,) = up.ask("/deployments/filter", deployments={"name": {"any_": [deployment]}})
    log_in(browser, up)
    browser.get(f"{up.ui}/deployments/deployment/{found['id']}/run")
    until(lambda: value(browser, filled), 60)


def log_in(browser: Chrome, up: Up) -> None:
    """Type the secret that `up` says where to find into the UI's page for it."""
    browser.get(f"{up.ui}/login")
    find(browser, "//input[@type='password']").send_keys(up.secret)
    steady(lambda: find(browser, "//button[normalize-space(.)='Login']").click())
    until(lambda: not browser.current_url.endswith("/login"), 60)


def submit(browser: Chrome) -> None:
    """Start the run, and go to its page."""
    button = "//button[normalize-space(.)='Submit']"
    until(lambda: _is_submitted(browser, button), 90)
    steady(lambda: find_reloading(browser, "//a[contains(@href, '/runs/flow-run/')]").click())


def _is_submitted(browser: Chrome, button: str) -> bool:
    """Click, and say whether the form has gone: on a busy machine a click is lost while the page is laid out anew."""
    steady(lambda: browser.execute_script("arguments[0].click()", find(browser, button)))
    with suppress(TimeoutError):
        return until(lambda: not browser.current_url.endswith("/run"), 25)
    return False


def how_it_ended(browser: Chrome, up: Up) -> str:
    """The last state of the only run, when it has ended: to ask the API costs less than to load the page anew."""
    ended = {"state": {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]}}}
    until(lambda: up.ask("/flow_runs/count", flow_runs=ended), 120)
    return str(steady(lambda: find_reloading(browser, HOW_IT_ENDED).text))


def open_artifact(browser: Chrome, key: str) -> None:
    """From the run's page to one of its artifacts, by its key."""
    steady(lambda: find(browser, "//li[normalize-space(.)='Artifacts']").click())
    link = f"//a[contains(@href, '/artifacts/')][.//*[normalize-space(text())='{key}']]"
    steady(lambda: find(browser, link).click())


def find(browser: Chrome, path: str, seconds: float = 60) -> WebElement:
    """The first element at an XPath, when it is shown."""

    def shown() -> WebElement | None:
        with suppress(StaleElementReferenceException):
            return next((one for one in browser.find_elements("xpath", path) if one.is_displayed()), None)
        return None

    return until(shown, seconds)


def find_reloading(browser: Chrome, path: str) -> WebElement:
    """The same on a page that tells what is new only every half minute: it is loaded anew until the element shows."""
    for _ in range(20):
        with suppress(TimeoutError):
            return find(browser, path, seconds=4)
        browser.refresh()
    raise TimeoutError(f"waited in vain for {path}")


def steady(action: Callable[[], T]) -> T:
    """What an action on an element gives; done again where the page was drawn anew in between."""
    for _ in range(9):
        with suppress(StaleElementReferenceException, ElementClickInterceptedException):
            return action()
        time.sleep(0.3)
    return action()


def field(browser: Chrome, label: str) -> WebElement:
    """The first text field of a parameter, by its label."""
    block = "ancestor::*[contains(concat(' ', @class, ' '), ' p-label ')][1]"
    return find(browser, f"//label[normalize-space(.)='{label}']/{block}//textarea")


def value(browser: Chrome, label: str) -> str:
    return str(steady(lambda: field(browser, label).get_property("value")))


def fill(browser: Chrome, label: str, text: str) -> None:
    """Type into a field, over what is there."""
    field(browser, label).send_keys(Keys.CONTROL, "a")
    field(browser, label).send_keys(text)
    assert value(browser, label) == text


def picture(browser: Chrome, path: Path, height: int = 1800) -> None:
    """A screenshot of the page, as high as it wants to be, if anybody wants to look at it."""
    if "EVALFLOWS_SCREENSHOTS" not in os.environ:
        return
    browser.set_window_size(1400, height)
    time.sleep(1)
    browser.save_screenshot(str(path))
    browser.set_window_size(1400, 1800)
