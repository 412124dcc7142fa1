/* The line charts, drawn by uPlot. */

const DASHES = [[], [9, 4], [3, 3], [12, 3, 3, 3]];
const LOG_TICKS_S = [
  [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 57600,
    86400, 172800, 345600, 864000, 1728000, 3456000, 8640000, 17280000, 34560000, 86400000],
  [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10800, 36000, 86400, 259200, 864000, 2592000,
    8640000, 25920000, 86400000],
];
const FONT = '13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** The line of policy number `i`: colours that the colour-blind can tell apart, and dashes besides. */
function policyLine(label, i, value) {
  return {
    label, value, scale: "y", stroke: themed(`--line-${(i % 8) + 1}`), dash: DASHES[(i + Math.floor(i / 8)) % 4], width: i < 4 ? 2 : 2.6,
    points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), spanGaps: false,
  };
}

/** An axis in the page's colours. */
function axis(options) {
  const line = { stroke: themed("--grid"), width: 1 };
  return { stroke: themed("--ink"), font: FONT, labelFont: FONT, grid: line, ticks: line, ...options };
}

/** The axis of time since the start [s]. */
function timeAxis() {
  return axis({
    scale: "x", label: "time since the start", size: 32, labelSize: 22, space: 80, incrs: STEPS_S,
    values: (u, splits, i, space, step) => splits.map((t) => tickLabel(t, step)),
  });
}

/** Ticks of the logarithmic axis: the finer ones if all are at least `gap` pixels apart, else as many as fit. */
function logTicks(low, high, width, gap = 62) {
  const perLog = width / Math.log(high / low);
  const apart = (a, b) => Math.log(b / a) * perLog >= gap;
  const [fine, coarse] = LOG_TICKS_S.map((ticks) => ticks.filter((t) => t >= low * 0.999 && t <= high * 1.001));
  if (fine.every((t, i) => i === 0 || apart(fine[i - 1], t))) return fine;
  const kept = [];
  for (const t of coarse) if (!kept.length || apart(kept[kept.length - 1], t)) kept.push(t);
  return kept;
}

/** A series as its mark in the legend: its colour, with the dashes of its line. */
function legendMark(u, i) {
  const { dash = [] } = u.series[i], colour = u.series[i].stroke(u, i);
  let at = 0;
  const stops = dash.map((length, j) => {
    const from = at;
    at += length;
    return `${j % 2 ? "transparent" : colour} ${from}px ${at}px`;
  });
  return stops.length ? `repeating-linear-gradient(90deg, ${stops.join(", ")})` : colour;
}

/** One chart in `host`, as wide as the page; its title names the drawing. */
function draw(host, options, columns) {
  const legend = { markers: { width: 0, fill: legendMark } };
  const chart = new uPlot({ width: host.clientWidth || 800, height: 300, cursor: { y: false }, legend, ...options }, columns, host);
  const canvas = chart.root.querySelector("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-labelledby", host.getAttribute("aria-labelledby"));
  new ResizeObserver(() => {
    if (chart.root.isConnected && host.clientWidth) chart.setSize({ width: host.clientWidth, height: 300 });
  }).observe(host);
  return chart;
}

/** What stands in the place of a chart that has nothing to show. */
function empty(host, text) {
  host.replaceChildren(element("p", { class: "hint" }, text));
}

/** What the legend says where there is no value at row `at` of the data: nothing before the pointer is in the chart. */
const noValue = (at) => (at == null ? "" : "–");
const percent = (u, value, i, at) => (value == null ? noValue(at) : `${(100 * value).toFixed(1)} %`);
const percentTicks = (u, splits) => splits.map((v) => `${+(100 * v).toFixed(3)} %`);
const amount = (u, value, i, at) => (value == null ? noValue(at) : grouped(+value.toFixed(2)));
const wholeTicks = (u, splits) => splits.map((v) => (v == null ? "" : grouped(+v.toFixed(3))));

/** Distribution of the completion times, logarithmic. */
function drawDistribution(host, jct, labels) {
  if (!jct.x.length) return empty(host, "No job was finished.");
  const low = jct.x[0] * 0.9, high = jct.x[jct.x.length - 1] * 1.1;
  host.replaceChildren();
  return draw(host, {
    scales: {
      x: { time: false, distr: 3, range: (u, from, to) => (from > 0 && to > from ? [from, to] : [low, high]), min: low, max: high },
      y: { range: [0, 1.02] },
    },
    axes: [
      axis({
        scale: "x", label: "completion time (logarithmic)", size: 32, labelSize: 22,
        splits: (u, i, from, to) => logTicks(from, to, u.bbox.width / devicePixelRatio),
        filter: (u, splits) => splits, values: (u, splits) => splits.map(shortDuration),
      }),
      axis({ scale: "y", values: percentTicks, size: 66, label: "jobs finished", labelSize: 22 }),
    ],
    series: [
      { label: "within", value: (u, v, i, at) => (v == null ? noValue(at) : shortDuration(v)) },
      ...labels.map((label, i) => policyLine(label, i, percent)),
    ],
  }, [jct.x, ...jct.share]);
}

/** Busy share by policy, submissions in grey behind it. */
function drawUtilisation(host, time, labels) {
  if (!time.x.length) return empty(host, "No utilisation was recorded.");
  host.replaceChildren();
  const grey = themed("--submitted");
  const submissions = time.submitted.map((_, i) => ({
    label: time.submitted.length > 1 ? `submitted, ${labels[time.submitted_runs[i]]}` : "submitted", scale: "n", stroke: grey, width: 1,
    fill: `${grey}33`, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), value: amount,
  }));
  return draw(host, {
    scales: { x: { time: false }, y: { range: [0, 1.02] }, n: { range: (u, low, high) => [0, 3 * Math.max(high, 1)] } },
    axes: [
      timeAxis(),
      axis({ scale: "y", values: percentTicks, size: 66, label: "lanes busy", labelSize: 22 }),
      axis({
        scale: "n", side: 1, size: 68, label: `submitted per ${shortDuration(time.interval)}`, labelSize: 22, grid: { show: false }, values: wholeTicks,
        filter: (u, splits) => splits.map((v) => (v <= u.scales.n.max / 3 + 1e-9 && Number.isInteger(v) ? v : null)),
      }),
    ],
    series: [
      { label: "time", value: (u, v, i, at) => (v == null ? noValue(at) : clock(Math.round(v) * SECOND)) },
      ...submissions, ...labels.map((label, i) => policyLine(label, i, percent)),
    ],
  }, [time.x, ...time.submitted, ...time.busy_share]);
}

/** Waiting jobs by policy. */
function drawWaiting(host, time, labels) {
  if (!time.x.length) return empty(host, "No utilisation was recorded.");
  host.replaceChildren();
  return draw(host, {
    scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max(1, high * 1.05)] } },
    axes: [timeAxis(), axis({ scale: "y", values: wholeTicks, size: 66, label: "jobs waiting", labelSize: 22 })],
    series: [
      { label: "time", value: (u, v, i, at) => (v == null ? noValue(at) : clock(Math.round(v) * SECOND)) },
      ...labels.map((label, i) => policyLine(label, i, amount)),
    ],
  }, [time.x, ...time.waiting_jobs]);
}

/** All line charts; drawn again when the colour scheme changes. */
function drawCharts(data) {
  const labels = data.runs.map((run) => run.label);
  return {
    jct: drawDistribution(byId("chart-jct"), data.jct, labels),
    utilisation: drawUtilisation(byId("chart-utilisation"), data.time, labels),
    waiting: drawWaiting(byId("chart-waiting"), data.time, labels),
  };
}
