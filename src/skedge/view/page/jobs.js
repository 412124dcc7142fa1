/* The jobs: state, progress, forecast with its interval, and why they wait. */

import { ask } from "./ask.js";
import { svg } from "./svg.js";

const PAGE = 1000; // rows of one answer
const SHOWN = 200; // rows that are added at once
const SHARED = ["tenant", "class"]; // where a cluster has tenants
const HEADS = ["state", "progress", "submitted", "started", "completion", "servers", "reason"];

const at = (seconds) => (seconds === null || seconds === undefined ? "" : clock(seconds * SECOND));

/** All rows of a run, page by page. */
async function allRows(run) {
  const rows = [];
  for (;;) {
    const some = await ask("/jobs", { run, since: rows.length, most: PAGE });
    rows.push(...some);
    if (some.length < PAGE) return rows;
  }
}

/** A forecast on the time from now to the last forecast: the interval, and a line at the expected completion. */
function forecastBar(row, last) {
  const x = (time) => (100 * Math.max(0, time - row.now_s)) / Math.max(last - row.now_s, 1e-6);
  const bar = svg("svg", { class: "span", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { x: 0, y: 4, width: 100, height: 2 }));
  if (row.forecast_from_s !== null) {
    const from = x(row.forecast_from_s), width = Math.max(x(row.forecast_to_s) - from, 0.5);
    bar.append(svg("rect", { class: "sure", x: from, y: 2, width, height: 6 }));
  }
  bar.append(svg("line", { x1: x(row.forecast_s), x2: x(row.forecast_s), y1: 0, y2: 10, "vector-effect": "non-scaling-stroke" }));
  return bar;
}

function completion(row, last) {
  if (row.ended_s !== null) return [at(row.ended_s)];
  if (row.forecast_s === null) return [row.never_completes ? "never" : ""];
  const interval = row.forecast_from_s === null ? "" : ` (${at(row.forecast_from_s)} – ${at(row.forecast_to_s)})`;
  return [`≈ ${at(row.forecast_s)}${interval}`, forecastBar(row, last)];
}

export class Jobs {
  /** @param {function(string)} explain called with the name of a job that is chosen */
  constructor(explain) {
    Object.assign(this, { explain, rows: [], shown: SHOWN, run: 0 });
    byId("jobs-table").replaceChildren(element("thead"), element("tbody"));
    const again = () => this.show(SHOWN);
    byId("jobs-search").addEventListener("input", again);
    byId("jobs-state").addEventListener("change", again);
    byId("jobs-controls").addEventListener("submit", (event) => event.preventDefault());
    byId("jobs-more").addEventListener("click", () => this.show(this.shown + SHOWN));
  }

  /** Ask for the rows of a run, and show them. */
  async load(run) {
    const rows = await allRows(run);
    const shared = rows.some((row) => row.tenant !== undefined);
    Object.assign(this, { rows, run, shared });
    const heads = ["job", ...(shared ? SHARED : []), ...HEADS];
    byId("jobs-table").tHead.replaceChildren(element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name))));
    const select = byId("jobs-state"), chosen = select.value;
    const states = [...new Set(rows.map((row) => row.state))].sort();
    select.replaceChildren(element("option", { value: "" }, "all"), ...states.map((name) => element("option", { value: name }, name)));
    select.value = states.includes(chosen) ? chosen : "";
    this.show(this.shown);
  }

  /** Show at most `most` of the rows that are searched for. */
  show(most) {
    const typed = byId("jobs-search").value.trim(), state = byId("jobs-state").value;
    const found = this.rows.filter((row) => row.job.includes(typed) && (!state || row.state === state));
    const last = Math.max(...found.map((row) => row.forecast_to_s ?? row.forecast_s ?? 0), 0);
    this.shown = most;
    byId("jobs-table").tBodies[0].replaceChildren(...found.slice(0, most).map((row) => this.line(row, last)));
    byId("jobs-count").textContent = `${grouped(Math.min(most, found.length))} of ${grouped(found.length)} jobs`;
    byId("jobs-more").hidden = found.length <= most;
  }

  line(row, last) {
    const name = element("button", { type: "button", class: "link" }, row.job);
    name.addEventListener("click", () => this.explain(row.job));
    const share = `${Math.floor(100 * row.progress)} %`;
    const progress = element("progress", { max: "1", value: String(row.progress), "aria-label": `progress of ${row.job}` });
    const of = this.shared ? [element("td", {}, row.tenant), element("td", { class: "number" }, String(row.priority))] : [];
    return element("tr", {},
      element("th", { scope: "row" }, name), ...of, element("td", {}, row.state), element("td", { class: "number" }, progress, ` ${share}`),
      element("td", { class: "number" }, at(row.submitted_s)), element("td", { class: "number" }, at(row.start_s)),
      element("td", { class: "number" }, ...completion(row, last)), element("td", {}, row.servers.join(", ")),
      element("td", { class: "wide" }, row.message));
  }
}
