"""How long the page of `skedge view` takes to open 100,000 bars, and how many frames a second it draws while they move.

PYTHONPATH=src:tests:tests/browser python benchmarks/view_lanes.py [BARS]

Opens the page in Chromium (headless, drawn by the CPU) and prints seconds from the start of the server to the first
drawing, and frames per second while the view is moved in every frame, with all bars in view and zoomed in.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import report_samples as samples
from playwright.sync_api import sync_playwright

from builders.browsers import ARGS, CHROMIUM
from skedge.recorded_run import Run
from skedge.view.recorded_runs import RecordedRuns
from skedge.view.server import ViewServer

FRAMES = """async (zoomed) => {
  const gantt = skedgeView.explorer.gantt;
  gantt.reset();
  if (zoomed) gantt.zoom(0.1);
  const frame = () => new Promise((drawn) => requestAnimationFrame(drawn));
  const frames = [], draws = [];
  for (let i = 0; i < 40; i++) {
    const began = performance.now();
    gantt.move(i % 2 ? 15 : -15, 0);
    await frame();
    await frame(); // drawn in the first, on the screen before the second
    frames.push((performance.now() - began) / 2);
    draws.push(gantt.drawMs);
  }
  const middle = (of) => of.sort((a, b) => a - b)[of.length >> 1];
  return { shown: gantt.drawn, frame: middle(frames), draw: middle(draws) };
}"""


def main(bars: int) -> None:
    """Print the times for this number of bars."""
    world = samples.scenario(2000, servers=20, lanes=8)
    made = Run(world, {"policy": "made up"}, samples.huge(world, bars, 5))
    answers = RecordedRuns([made])
    began = time.perf_counter()
    _ = answers.lanes  # as the command does before it opens the page
    print(f"prepared in {time.perf_counter() - began:.2f} s")
    with ViewServer(answers) as server, sync_playwright() as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        page: Any = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
        started = time.perf_counter()
        page.goto(server.url)
        page.wait_for_function("window.skedgeView && skedgeView.ready && skedgeView.explorer.gantt.drawn > 0")
        opened = time.perf_counter()
        shown = page.evaluate("skedgeView.explorer.run.bars.job.length")
        print(f"{made.schedule.runs.height} bars, in the page: {shown}")
        print(f"open: {opened - started:.2f} s")
        for view in ("all in view", "zoomed in"):
            found = page.evaluate(FRAMES, view == "zoomed in")
            rate = 1000 / found["frame"]
            print(f"{view}: {found['shown']} bars drawn, {found['draw']:.1f} ms to draw, {rate:.0f} frames/s")
        browser.close()
        server.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
