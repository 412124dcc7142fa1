"""Photographs of the pages that skedge makes, by Chromium: ``docs/report.png`` and ``docs/view-*.png``.

python docs/tools/screenshots.py     # runs the demo, opens its pages; needs the extra `dev` and chromium
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from skedge.recorded_run import Run
from skedge.view.recorded_runs import RecordedRuns
from skedge.view.server import ViewServer

DOCS = Path(__file__).resolve().parents[1]
VIEWS = {"view-lanes.png": "Lanes", "view-why.png": "Jobs"}
"""Pictures of ``docs/view.md``, and the tab of each; in Jobs a job is chosen, which leads to its decision."""

ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def of_report(browser: Any, file: Path) -> None:
    """The top of a report."""
    page = browser.new_page(viewport={"width": 1180, "height": 1540})
    page.goto(file.as_uri())
    _until(page, "Boolean(window.skedgeReport && skedgeReport.explorer.gantt.drawn > 0)")
    page.screenshot(path=DOCS / "report.png")


def of_views(browser: Any, run: Run) -> None:
    """Views of `skedge view`, with a job chosen."""
    with ViewServer(RecordedRuns([run])) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, tab in VIEWS.items():
            page = browser.new_page(viewport={"width": 1180, "height": 760})
            page.goto(server.url)
            _until(page, "Boolean(window.skedgeView && skedgeView.ready)")
            page.get_by_role("tab", name=tab).click()
            if tab == "Jobs":
                page.locator("#jobs-table").get_by_role("button", name=run.jobs["id"][40], exact=True).click()
                page.locator("#why-found h2").wait_for()
            page.wait_for_timeout(500)
            page.screenshot(path=DOCS / name)
        server.shutdown()


def _until(page: Any, true: str) -> None:
    while not page.evaluate(true):
        page.wait_for_timeout(50)


def main() -> None:
    """Make all of them."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no chromium executable was found")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        demo = Path(folder) / "demo"
        subprocess.run([sys.executable, "-m", "skedge", "demo", "--out", demo], check=True)  # noqa: S603 - our own command
        browser = driver.chromium.launch(executable_path=chromium, args=ARGS)
        of_report(browser, demo / "divisible" / "report.html")
        of_views(browser, Run.load(demo / "divisible" / "aonline"))
        browser.close()


if __name__ == "__main__":
    main()
