/* The page: its tabs, the token where one is needed, and the questions that each view asks. */

import { ask, follow, keepToken } from "./ask.js";
import { Compare } from "./compare.js";
import { Jobs } from "./jobs.js";
import { showMap } from "./map.js";
import { Training } from "./training.js";
import { Why } from "./why.js";

const VIEWS = ["lanes", "jobs", "why", "training", "map", "compare"];
const QUIET_MS = 2000; // least time between two looks at a service

const page = { explorer: null, overview: null, run: 0, shown: "lanes" };
window.skedgeView = page;

/** Ask for the bars, and draw them; a view that is there stays where it is. */
async function loadLanes() {
  const answer = await ask("/view/lanes");
  const runs = answer.runs.map((view) => readRun(view, answer.names));
  if (page.explorer) {
    page.explorer.runs = runs;
    page.explorer.show(page.run);
  } else {
    page.explorer = new Explorer(runs);
  }
}

const load = {
  lanes: loadLanes,
  jobs: () => page.jobs.load(page.run),
  why: () => page.why.load(page.run, byId("why-job").value.trim()),
  training: () => page.training.load(page.run, byId("training-job").value.trim()),
  map: () => showMap(page.run),
  compare: () => page.compare.load(),
};

/** Say what went wrong, or nothing. */
function problem(text) {
  byId("problem").hidden = !text;
  byId("problem").textContent = text;
}

async function guarded(act) {
  try {
    await act();
    problem("");
  } catch (error) {
    problem(error.message);
  }
}

/** Show a view; `asking`: with new answers. */
async function show(view, asking = true) {
  page.shown = view;
  for (const name of VIEWS) {
    const chosen = name === view, tab = byId(`tab-${name}`);
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(name).hidden = !chosen;
  }
  history.replaceState(null, "", `#${view}`);
  if (asking && !(view === "lanes" && page.explorer && !page.overview.live)) await guarded(load[view]);
}

/** Arrow keys move between the tabs, as the pattern for tabs asks for. */
function onTabKey(event) {
  const tabs = VIEWS.filter((name) => !byId(`tab-${name}`).hidden), at = tabs.indexOf(page.shown);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const name = tabs[(to + tabs.length) % tabs.length];
  byId(`tab-${name}`).focus();
  show(name);
}

/** Every choice of the run is the same choice. */
function chooseRun(number) {
  page.run = number;
  for (const id of ["jobs-run", "why-run", "training-run", "map-run", "policy"]) byId(id).value = String(number);
  if (page.explorer && page.explorer.run !== page.explorer.runs[number]) page.explorer.show(number);
  if (page.shown !== "lanes") guarded(load[page.shown]);
}

function build(overview) {
  page.overview = overview;
  const facts = Object.fromEntries(overview.facts);
  document.title = `${overview.title} – skedge view`;
  byId("title").textContent = overview.title;
  byId("lede").textContent =
    `${overview.live ? "Live: " : ""}${overview.runs.join(", ")}; ${facts.jobs} jobs, ${facts.servers}, ${facts.workers}.`;
  for (const id of ["jobs-run", "why-run", "training-run", "map-run"]) {
    byId(id).replaceChildren(...overview.runs.map((run, i) => element("option", { value: String(i) }, run)));
    byId(id).addEventListener("change", (event) => chooseRun(Number(event.target.value)));
  }
  byId("policy").addEventListener("change", (event) => chooseRun(Number(event.target.value)));
  byId("tab-compare").hidden = overview.runs.length < 2;
  page.compare = new Compare();
  page.why = new Why();
  page.training = new Training();
  page.jobs = new Jobs((job) => {
    byId("why-job").value = byId("training-job").value = job;
    show("why");
  });
  for (const name of VIEWS) byId(`tab-${name}`).addEventListener("click", () => show(name));
  document.querySelector(".tabs").addEventListener("keydown", onTabKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (page.explorer) page.explorer.gantt.retheme();
    page.compare.draw();
    page.training.draw();
  });
  byId("views").hidden = false;
}

/** Ask again after events, as often as {@link QUIET_MS} allows; a job that is being explained stays. */
function live() {
  let waiting = false;
  const again = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(async () => {
      waiting = false;
      if (page.shown !== "why") await guarded(load[page.shown]);
    }, QUIET_MS);
  };
  const on = () => follow(page.overview.events, again).catch(() => {}).then(() => setTimeout(on, QUIET_MS));
  on();
}

/** Begin; without a token where one is needed, ask for it. */
async function start() {
  try {
    build(await ask("/view"));
  } catch (error) {
    byId("lede").textContent = "";
    byId("entry").hidden = error.status !== 401;
    return problem(error.status === 401 ? "" : error.message);
  }
  byId("entry").hidden = true;
  problem("");
  const asked = location.hash.slice(1);
  await show(VIEWS.includes(asked) && !byId(`tab-${asked}`).hidden ? asked : "lanes");
  page.ready = true;
  if (page.overview.live) live();
  return undefined;
}

byId("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  start();
});
start();
