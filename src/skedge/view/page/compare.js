/* Runs side by side: their metrics, the distribution of completion times, and the jobs that differ most. */

import { ask } from "./ask.js";

const MOST = 100; // jobs that are listed

const time = (seconds) => (seconds === null ? "not finished" : clock(seconds * SECOND));

/** By how much the times of a job differ at most [s]; a job that did not finish everywhere goes first. */
function spread(row) {
  const known = row.jct_s.filter((value) => value !== null);
  if (!known.length) return 0;
  return known.length < row.jct_s.length ? Infinity : Math.max(...known) - Math.min(...known);
}

export class Compare {
  /** Ask once, and show. */
  async load() {
    if (this.found) return;
    this.found = await ask("/view/compare");
    showComparison(this.found.table);
    this.draw();
    const rows = this.found.jobs.filter((row) => spread(row) > 0).sort((a, b) => spread(b) - spread(a));
    const heads = ["job", ...this.found.labels.map((label) => `JCT, ${label}`), "difference"];
    const line = (row) => element("tr", {}, element("th", { scope: "row" }, row.job),
      ...[...row.jct_s.map(time), Number.isFinite(spread(row)) ? shortDuration(spread(row)) : "–"].map((text) => element("td", { class: "number" }, text)));
    byId("compare-jobs").replaceChildren(
      element("caption", {}, rows.length ? `${grouped(Math.min(MOST, rows.length))} of ${grouped(rows.length)} jobs that differ` : "No job differs."),
      element("thead", {}, element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.slice(0, MOST).map(line)));
  }

  /** Draw the chart, again when the colours change. */
  draw() {
    if (this.found) drawDistribution(byId("chart-jct"), this.found.jct, this.found.labels);
  }
}
