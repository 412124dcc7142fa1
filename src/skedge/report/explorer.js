/* The Gantt chart with its surroundings: search, a job's timeline, and what is left out. */

const MOST_EVENTS = 500; // rows of a job's timeline
const MOST_SUGGESTIONS = 40;

/** A run as the page uses it: columns unpacked, jobs findable. */
function readRun(view, names) {
  const columns = (packed) => Object.fromEntries(Object.entries(packed).map(([key, column]) => [key, unpack(column)]));
  const { total, rejected, ...jobColumns } = view.jobs;
  const jobs = { ...columns(jobColumns), total, rejected };
  const place = new Map();
  jobs.job.forEach((job, i) => place.set(job, i));
  const byName = new Map();
  jobs.job.forEach((job, i) => byName.set(names[jobs.name[i]], job));
  const nameOf = (job) => (place.has(job) ? names[jobs.name[place.get(job)]] : `#${job}`);
  return { ...view, jobs, place, byName, nameOf, bars: columns(view.gantt.bars), pieces: columns(view.gantt.pieces) };
}

/** Uploads or PS slots, unpacked when first asked for. */
function tableOf(run, name) {
  const view = run[name];
  if (!view.columns) {
    view.columns = {};
    for (const [key, value] of Object.entries(view)) if (value && value.data !== undefined) view.columns[key] = unpack(value);
  }
  return { ...view.columns, mb: view.mb, total: view.total };
}

/* ---------------------------------------------------------------- one job */

const workerText = (count) => (count === 1 ? "1 worker" : `${grouped(count)} workers`);

/** Which chunk, or chunks, or gang a bar is. */
function chunkText(run, b) {
  const { chunk, merged, workers } = run.bars;
  if (chunk[b] < 0) return `gang of ${workerText(workers[b])}`;
  return merged[b] > 1 ? `${grouped(merged[b])} chunks one after another, the first is ${chunk[b]}` : `chunk ${chunk[b]}`;
}

function placeText(run, b) {
  const server = run.servers[run.bars.server[b]];
  return run.bars.lane[b] < 0 ? server : `${server}, slot ${run.bars.lane[b]}`;
}

/** What the pointer's label says about a bar. */
function tipText(run, b) {
  const { job, start, length, wait, preempted } = run.bars;
  const lines = [
    `job ${run.nameOf(job[b])}, ${chunkText(run, b)}`,
    placeText(run, b),
    `${clock(start[b])} – ${clock(start[b] + length[b])} (${shortDuration(length[b] / SECOND)})`,
  ];
  if (wait[b] > 0) lines.push(`waits for its upload for ${shortDuration(wait[b] / SECOND)}`);
  if (preempted[b] > 0) lines.push("preempted: ended before it was finished");
  return lines.join("\n");
}

/** Rows of `table` that belong to a job, as events. */
function jobRows(table, job, describe) {
  const events = [];
  table.job.forEach((owner, i) => {
    if (owner === job) events.push({ start: table.start[i], end: table.start[i] + table.length[i], ...describe(i) });
  });
  return events;
}

/** Everything that happened to a job, in order of time. */
function timeline(run, job) {
  const uploads = tableOf(run, "uploads"), ps = tableOf(run, "ps"), bars = run.bars, jobs = run.jobs;
  const at = run.place.get(job);
  const events = [
    { start: jobs.arrival[at], what: "arrival", where: "" },
    ...jobRows(uploads, job, (i) => ({
      what: `upload of ${grouped(uploads.chunks[i])} ${uploads.chunks[i] === 1 ? "chunk" : "chunks"}` +
        (uploads.mb[i] ? `, ${grouped(uploads.mb[i])} MB` : ""),
      where: run.servers[uploads.server[i]],
    })),
    ...jobRows(ps, job, (i) => ({
      what: "parameter server", where: run.servers[ps.server[i]] + (ps.slot[i] < 0 ? "" : `, PS slot ${ps.slot[i]}`),
    })),
    ...jobRows(bars, job, (i) => ({
      what: `run: ${chunkText(run, i)}${bars.wait[i] > 0 ? `, computes from ${clock(bars.start[i] + bars.wait[i])}` : ""}` +
        (bars.preempted[i] > 0 ? ", preempted" : ""),
      where: placeText(run, i),
    })),
  ];
  if (jobs.completion[at] >= 0) events.push({ start: jobs.completion[at], what: "completion", where: "" });
  const last = (event) => (event.what === "completion" ? 1 : 0);
  return events.sort((a, b) => a.start - b.start || last(a) - last(b));
}

function timelineTable(events) {
  const row = (event) => {
    const length = event.end === undefined ? "" : shortDuration((event.end - event.start) / SECOND);
    return element("tr", {},
      element("td", { class: "number" }, clock(event.start)),
      element("td", { class: "number" }, event.end === undefined ? "" : clock(event.end)),
      element("td", { class: "number" }, length), element("td", {}, event.what), element("td", {}, event.where));
  };
  const heads = ["start", "end", "length", "what", "where"];
  const numbers = { scope: "col", class: "number" };
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline" },
    element("table", {},
      element("thead", {}, element("tr", {}, ...heads.map((name, i) => element("th", i < 3 ? numbers : { scope: "col" }, name)))),
      element("tbody", {}, ...events.slice(0, MOST_EVENTS).map(row))));
}

/** What of a job's record is not in the page. */
function omissions(run, events) {
  const said = [];
  if (events.length > MOST_EVENTS) said.push(`the first ${MOST_EVENTS} of ${grouped(events.length)} rows are listed`);
  if (run.gantt.window) said.push("runs outside the embedded window are not in this page");
  for (const [name, title] of [["uploads", "uploads"], ["ps", "PS slots"]]) {
    const embedded = run[name].job.n;
    if (embedded < run[name].total) said.push(`${grouped(embedded)} of ${roughly(run[name].total)} ${title} are embedded`);
  }
  return said.length ? `Not complete: ${said.join("; ")}.` : "";
}

/** The panel about a job below the chart. */
function showJob(run, job) {
  const details = byId("details");
  if (job < 0) return details.replaceChildren();
  const at = run.place.get(job), jobs = run.jobs, events = timeline(run, job);
  const finished = jobs.completion[at] >= 0, rejected = jobs.rejected[at];
  const outcome = finished
    ? `completed at ${clock(jobs.completion[at])}, JCT ${clock(jobs.jct[at])} (${shortDuration(jobs.jct[at] / SECOND)})`
    : rejected === undefined ? "not finished" : `rejected${rejected ? `: ${rejected}` : ""}`;
  const summary = `Arrived at ${clock(jobs.arrival[at])}; ${outcome}.`;
  details.replaceChildren(
    element("h3", {}, `Job ${run.nameOf(job)} under ${run.label}`), element("p", {}, summary), timelineTable(events));
  const note = omissions(run, events);
  if (note) details.append(element("p", { class: "hint" }, note));
  return undefined;
}

/* ---------------------------------------------------------------- the Gantt chart's surroundings */

/** What the chart leaves out or draws as one, in a sentence; empty if nothing. */
function limitText(gantt, bars) {
  if (!gantt.merged) return "";
  const joined = gantt.bars_total < gantt.runs_total ? "adjacent runs of one job on one lane are drawn as one bar" : "";
  if (!gantt.window) return `All ${roughly(gantt.runs_total)} runs are shown: ${joined}.`;
  const parts = [`Showing ${grouped(bars)} of ${roughly(gantt.bars_total)} bars`];
  parts.push(`: window ${clock(gantt.window[0])} – ${clock(gantt.window[1])}, the busiest`);
  if (gantt.lanes_cut) parts.push(", and of that only the first lanes");
  parts.push(`. The run has ${roughly(gantt.runs_total)} runs${joined && `; ${joined}`}.`);
  parts.push(" Table and line charts count all of them.");
  return parts.join("");
}

function showTip(run, canvas, b, x, y) {
  const tip = byId("tip");
  tip.hidden = b < 0;
  canvas.style.cursor = b < 0 ? "" : "pointer";
  if (b < 0) return;
  tip.textContent = tipText(run, b);
  const left = x + 16 + tip.offsetWidth > canvas.clientWidth ? x - tip.offsetWidth - 12 : x + 16;
  tip.style.left = `${Math.max(0, left)}px`;
  tip.style.top = `${y + 16}px`;
}

/** Ids that begin with, or else contain, what was typed. */
function suggest(run, typed) {
  const found = [];
  const test = [(name) => name.startsWith(typed), (name) => !name.startsWith(typed) && name.includes(typed)];
  for (const fits of test) {
    for (const name of run.byName.keys()) {
      if (found.length >= MOST_SUGGESTIONS) return found;
      if (fits(name)) found.push(name);
    }
  }
  return found;
}

/** The Gantt chart with its controls. */
class Explorer {
  constructor(runs) {
    this.runs = runs;
    this.job = "";
    const canvas = byId("gantt");
    this.gantt = new Gantt(canvas, {
      hover: (b, x, y) => showTip(this.run, canvas, b, x, y),
      pick: (b) => this.choose(b < 0 ? "" : this.run.nameOf(this.run.bars.job[b]), false),
    });
    byId("policy").append(...runs.map((run, i) => element("option", { value: String(i) }, run.label)));
    byId("policy").addEventListener("change", (event) => this.show(Number(event.target.value)));
    byId("controls").addEventListener("submit", (event) => {
      event.preventDefault();
      this.search(byId("search").value.trim(), true);
    });
    byId("search").addEventListener("input", (event) => this.search(event.target.value.trim(), false));
    const press = { "zoom-in": "+", "zoom-out": "-", taller: "]", flatter: "[", reset: "0" };
    for (const [id, key] of Object.entries(press)) byId(id).addEventListener("click", () => KEYS[key](this.gantt));
    this.show(0);
  }

  /** Show run number `i`; a chosen job stays chosen. */
  show(i) {
    this.run = this.runs[i];
    const limit = limitText(this.run.gantt, this.run.bars.job.length);
    byId("limit").hidden = !limit;
    byId("limit").textContent = limit;
    byId("limit").className = this.run.gantt.window ? "note" : "hint";
    byId("gantt").setAttribute(
      "aria-label", `Gantt chart of ${this.run.label}: ${grouped(this.run.bars.job.length)} bars. Search a job by its id above.`);
    this.gantt.setRun(this.run);
    this.choose(this.job, false);
  }

  /** Choose a job by its id; "" clears. */
  choose(name, move) {
    const job = this.run.byName.has(name) ? this.run.byName.get(name) : -1;
    this.job = name;
    this.gantt.select(job, move);
    byId("search").value = name;
    const bars = this.run.bars.job.reduce((count, owner) => count + (owner === job), 0);
    byId("status").textContent = job < 0 ? "" : `${grouped(bars)} ${bars === 1 ? "bar" : "bars"} of job ${name}`;
    showJob(this.run, job);
  }

  /** A typed id: an exact one is chosen at once, others on Enter. */
  search(typed, entered) {
    if (!typed) return this.choose("", false);
    if (this.run.byName.has(typed)) return this.choose(typed, true);
    const found = suggest(this.run, typed);
    byId("suggestions").replaceChildren(...found.map((name) => element("option", { value: name })));
    if (entered && found.length) return this.choose(found[0], true);
    const many = found.length >= MOST_SUGGESTIONS ? `${MOST_SUGGESTIONS} or more jobs match` : `${found.length} jobs match`;
    const listed = this.run.jobs.job.length < this.run.jobs.total ? "; only jobs with embedded bars are listed" : "";
    byId("status").textContent = (found.length ? `${many}; Enter takes ${found[0]}` : "no such job") + listed;
    return undefined;
  }
}
