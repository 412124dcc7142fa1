/* The page: header and settings; `data` is what build.py embedded. */

function showHeader(data) {
  byId("title").textContent = data.title;
  const facts = Object.fromEntries(data.facts);
  byId("lede").textContent =
    `${data.runs.length} ${data.runs.length === 1 ? "run" : "runs"} of scenario ${facts.scenario}: ` +
    `${facts.jobs} jobs, ${facts.servers}, ${facts.workers}, seed ${facts["scenario seed"]}.`;
}

function showSettings(data) {
  const isCommand = ([name]) => /^(command|repeat)$/i.test(name);
  const list = element("dl");
  for (const [name, value] of [...data.settings.filter((s) => !isCommand(s)), ...data.facts]) {
    list.append(element("dt", {}, name), element("dd", {}, value));
  }
  const commands = data.settings.filter(isCommand).map(([, value]) => element("pre", {}, element("code", {}, value)));
  byId("settings").append(...(commands.length ? [element("h3", {}, "Repeat with"), ...commands] : []), list);
}

/** Put the page together. */
function main() {
  const data = JSON.parse(byId("report-data").textContent);
  const runs = data.runs.map((view) => readRun(view, data.names));
  showHeader(data);
  showComparison(data.comparison);
  showSettings(data);
  const page = { data, explorer: new Explorer(runs), charts: drawCharts(data) };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    page.charts = drawCharts(data);
    page.explorer.gantt.retheme();
  });
  window.skedgeReport = page;
}

main();
