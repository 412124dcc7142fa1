/* Why a job is where it is: the decision with the terms that the policy compared, what would help, and the timeline. */

import { ask } from "./ask.js";

const MOST = 50; // rows of a table of terms
const MOST_LATER = 10; // later decisions with a button

const isRow = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** A term as text: numbers short, objects by their names. */
function said(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return String(+value.toPrecision(6));
  if (Array.isArray(value)) return value.map(said).join("; ");
  if (isRow(value)) return Object.entries(value).map(([name, one]) => `${name} ${said(one)}`).join(", ");
  return String(value);
}

function table(label, rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const left = rows.length - MOST;
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    element("table", { class: "plain" },
      element("caption", {}, left > 0 ? `${label}: the first ${MOST} of ${grouped(rows.length)}` : label),
      element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.slice(0, MOST).map((row) => element("tr", {},
        ...names.map((name) => element("td", { class: typeof row[name] === "number" ? "number" : "" }, said(row[name]))))))));
}

/** The chunks of a dispatch: what was chosen for each, and the other candidates. */
const candidates = (chunks) =>
  chunks.flatMap((of) => [of.chosen, ...of.others].map((option, i) => ({ chunk: of.chunk, "": i ? "or" : "chosen", ...option })));

/** Terms one by one: lists of objects as tables, all else as text. */
function termsShown(terms) {
  if (terms === null) return [element("p", { class: "hint" }, "The terms behind this decision are not recorded.")];
  const list = element("dl"), tables = [];
  for (const [name, value] of Object.entries(terms)) {
    if (name === "chunks" && Array.isArray(value) && value.every((of) => isRow(of) && of.chosen)) tables.push(table("candidates", candidates(value)));
    else if (Array.isArray(value) && value.length && value.every(isRow)) tables.push(table(name, value));
    else list.append(element("dt", {}, name), element("dd", {}, said(value)));
  }
  return [list, ...tables];
}

const timelineRow = (row) => ({
  from: clock(row.time_s * SECOND), until: row.until_s === null ? "" : clock(row.until_s * SECOND),
  what: row.what, server: row.server ?? "", detail: row.detail,
});

export class Why {
  constructor() {
    this.run = 0;
    byId("why-controls").addEventListener("submit", (event) => {
      event.preventDefault();
      this.load(this.run, byId("why-job").value.trim());
    });
  }

  /** Explain a job of a run: its first decision, or the first from `at` on [s]. */
  async load(run, job, at) {
    this.run = run;
    byId("why-job").value = job;
    if (!job) return;
    try {
      this.show(await ask(`/view/jobs/${encodeURIComponent(job)}`, at === undefined ? { run } : { run, at_s: at }));
    } catch (error) {
      byId("why-found").replaceChildren(element("p", { class: "note" }, error.message));
    }
  }

  show(found) {
    const when = found.time_s === null ? "" : ` at ${clock(found.time_s * SECOND)}`;
    const later = found.later_s.slice(0, MOST_LATER).map((time) => {
      const button = element("button", { type: "button", class: "link" }, clock(time * SECOND));
      button.addEventListener("click", () => this.load(this.run, found.job, time));
      return element("li", {}, button);
    });
    const helps = found.help.map((one) => element("li", {}, said(one)));
    byId("why-found").replaceChildren(
      element("h2", {}, `Job ${found.job}: ${found.verb}${when}`),
      ...(found.reason ? [element("p", {}, found.reason)] : []),
      ...(helps.length ? [element("h3", {}, "What would help"), element("ul", {}, ...helps)] : []),
      element("h3", {}, "What was compared"), ...termsShown(found.terms),
      ...(later.length ? [element("h3", {}, `Later decisions (${found.later_s.length})`), element("ul", {}, ...later)] : []),
      element("h3", {}, "Timeline"), table("timeline", found.timeline.map(timelineRow)));
  }
}
