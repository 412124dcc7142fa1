/* How a job was trained: loss and accuracy where it was trained for real, workers, progress and pauses over time. */

import { ask } from "./ask.js";

const loss = (u, value) => (value == null ? "–" : String(+value.toPrecision(4)));
const atTime = (u, value) => (value == null ? "–" : clock(Math.round(value) * SECOND));

/** One line of points [x, y] in the place `id`; `options` has its axes. */
function curve(id, points, { label, x, y, value, stepped }) {
  const host = byId(id);
  if (!points.length) return empty(host, "Nothing is known.");
  host.replaceChildren();
  const line = policyLine(label, 0, value);
  if (!stepped) delete line.paths;
  return draw(host, {
    scales: { x: { time: false }, y: { range: (u, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] } },
    axes: [x, y], series: [{ label: x.label, value: x.value }, line],
  }, [points.map((point) => point[0]), points.map((point) => point[1])]);
}

const overTime = () => ({ ...timeAxis(), value: atTime });
const numbers = (label) => axis({ scale: "y", values: wholeTicks, size: 66, label, labelSize: 22 });

/** What is said of the job above its charts. */
function said(found) {
  const parts = [];
  if (found.accuracy !== null) parts.push(`${found.metric || "accuracy"} ${+found.accuracy.toPrecision(4)}`);
  if (found.unmeasured) parts.push(found.unmeasured);
  for (const [epoch, share] of found.accuracies ?? []) parts.push(`after epoch ${epoch}: ${+share.toPrecision(4)}`);
  const paused = found.pauses.reduce((sum, [from, to]) => sum + to - from, 0);
  parts.push(found.pauses.length ? `${grouped(found.pauses.length)} pauses, ${shortDuration(paused)} in all` : "no pause");
  parts.push(`${grouped(found.preempted)} runs displaced`);
  return parts.join("; ");
}

export class Training {
  constructor() {
    this.run = 0;
    byId("training-controls").addEventListener("submit", (event) => {
      event.preventDefault();
      this.load(this.run, byId("training-job").value.trim());
    });
  }

  /** Ask for a job of a run, and show it. */
  async load(run, job) {
    this.run = run;
    if (!job) return;
    try {
      this.found = await ask(`/view/training/${encodeURIComponent(job)}`, { run });
    } catch (error) {
      this.found = null;
      byId("training-found").replaceChildren(element("p", { class: "note" }, error.message));
    }
    byId("training-charts").hidden = !this.found;
    this.draw();
  }

  /** Draw, again when the colours change. */
  draw() {
    if (!this.found) return;
    const { job, losses, workers, done } = this.found;
    byId("training-found").replaceChildren(element("h2", {}, `Job ${job}`), element("p", {}, said(this.found)));
    byId("training-loss").hidden = !losses.length;
    const updates = { ...axis({ scale: "x", label: "update of the parameters", size: 32, labelSize: 22, values: wholeTicks }), value: amount };
    curve("chart-loss", losses, { label: "loss", x: updates, y: numbers("mean loss"), value: loss });
    curve("chart-workers", workers, { label: "workers", x: overTime(), y: numbers("workers"), value: amount, stepped: true });
    curve("chart-done", done, { label: "done", x: overTime(), y: axis({ scale: "y", values: percentTicks, size: 66, label: "work done", labelSize: 22 }), value: percent });
  }
}
