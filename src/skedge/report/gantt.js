/* The Gantt chart on a canvas: rows are worker slots, bars are runs. Times in µs, lengths in CSS pixels. */

const GUTTER = 150; // width of the servers' names
const AXIS = 26; // height of the time axis
const HUES = 18;
const SATURATION = 0.45;
const TALLEST = 40;

/** A number from a text, the same in every browser (FNV-1a). */
function hashOf(text) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** Red, green and blue (0..1) of a colour. */
function rgbOf(hue, saturation, lightness) {
  const a = saturation * Math.min(lightness, 1 - lightness);
  return [0, 8, 4].map((n) => {
    const k = (n + hue / 30) % 12;
    return lightness - a * Math.max(-1, Math.min(k - 3, 9 - k, 1));
  });
}

/** Whether black text reads better than white on this colour. */
function takesBlack(rgb) {
  const [red, green, blue] = rgb.map((c) => (c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18;
}

/**
 * Colours of the bars with the ink that reads on them, and as pixels; bright enough for the dark page, dark enough for
 * the light one.
 */
function barPalette(dark) {
  const colours = [];
  for (const lightness of dark ? [0.46, 0.56, 0.66] : [0.4, 0.5, 0.6]) {
    for (let i = 0; i < HUES; i++) {
      const rgb = rgbOf((360 / HUES) * i, SATURATION, lightness), bytes = rgb.map((c) => Math.round(255 * c));
      const pixel = new Uint32Array(new Uint8ClampedArray([...bytes, 255]).buffer)[0];
      colours.push({ fill: `rgb(${bytes.join(" ")})`, ink: takesBlack(rgb) ? "#000" : "#fff", pixel });
    }
  }
  return colours;
}

class Gantt {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{hover: function(number, number, number), pick: function(number)}} tell what to call with a bar, or -1
   */
  constructor(canvas, tell) {
    Object.assign(this, { canvas, tell, selected: -1, pending: false, drawMs: 0 });
    this.retheme();
    listen(this);
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  /** Colours of the current scheme. */
  retheme() {
    this.palette = barPalette(matchMedia("(prefers-color-scheme: dark)").matches);
    this.theme = Object.fromEntries(
      ["paper", "panel", "ink", "faint", "line", "grid", "shade"].map((name) => [name, themed(`--${name}`)]),
    );
    if (this.run) this.paint();
  }

  /** Show another run; the view stays where it is if both runs are there in full. */
  setRun(run) {
    const keep = this.run && !run.gantt.window && !this.run.gantt.window;
    this.run = run;
    this.rows = run.gantt.groups.reduce((sum, group) => sum + group.rows, 0);
    this.lines = groupLines(run.gantt.groups);
    this.rowHeight = Math.max(4, Math.min(18, Math.floor(560 / Math.max(this.rows, 1))));
    this.paint();
    this.resize();
    if (!keep) this.reset();
    this.move(0, 0);
  }

  /** Colour of every bar. */
  paint() {
    const { bars, nameOf } = this.run;
    this.colour = new Uint8Array(bars.job.length);
    for (let i = 0; i < this.colour.length; i++) this.colour[i] = hashOf(nameOf(bars.job[i])) % this.palette.length;
    this.request();
  }

  /** As high as its rows need, within bounds; then the canvas's own pixels. */
  resize() {
    if (!this.run) return;
    const height = Math.max(180, Math.min(this.rows * this.rowHeight + AXIS + 8, 620));
    if (this.canvas.style.height !== `${height}px`) this.canvas.style.height = `${height}px`;
    const scale = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.max(1, Math.round(this.width * scale));
    this.canvas.height = Math.max(1, Math.round(this.height * scale));
    this.scroll = Math.max(0, Math.min(this.scroll || 0, this.rows * this.rowHeight - (this.height - AXIS)));
    this.request();
  }

  /** The whole of what is embedded. */
  reset() {
    const [from, to] = this.run.gantt.window || this.run.gantt.span;
    const margin = Math.max((to - from) * 0.01, 1);
    Object.assign(this, { from: from - margin, to: to + margin, scroll: 0 });
    this.request();
  }

  /** Zoom in time by `factor` around the pixel `x`. */
  zoom(factor, x = GUTTER + (this.width - GUTTER) / 2) {
    const [first, last] = this.run.gantt.span;
    const widest = Math.max((last - first) * 1.2, 100);
    const at = this.timeAt(x);
    const span = Math.min(widest, Math.max(100, (this.to - this.from) * factor));
    this.from = at - ((at - this.from) / (this.to - this.from)) * span;
    this.to = this.from + span;
    this.move(0, 0);
  }

  /** Move the view by pixels, so that some of the schedule stays in it. */
  move(dx, dy) {
    const [first, last] = this.run.gantt.span;
    const span = this.to - this.from;
    const shift = (dx / Math.max(this.width - GUTTER, 1)) * span;
    this.from = Math.max(first - span * 0.9, Math.min(this.from + shift, last - span * 0.1));
    this.to = this.from + span;
    const lowest = Math.max(0, this.rows * this.rowHeight - (this.height - AXIS));
    this.scroll = Math.max(0, Math.min(this.scroll + dy, lowest));
    this.request();
  }

  /** Rows of another height; the row in the middle stays there. */
  stretch(factor) {
    const middle = (this.scroll + (this.height - AXIS) / 2) / this.rowHeight;
    const wanted = this.rowHeight * factor;
    this.rowHeight = Math.max(1, Math.min(TALLEST, factor > 1 ? Math.ceil(wanted) : Math.floor(wanted)));
    this.resize();
    this.scroll = middle * this.rowHeight - (this.height - AXIS) / 2;
    this.move(0, 0);
  }

  /** Mark a job's bars; with `show` the view moves to them. */
  select(job, show) {
    this.selected = job;
    if (show && job >= 0) this.showJob(job);
    this.request();
  }

  /** Move the view so that all bars of a job are in it, if they are embedded. */
  showJob(job) {
    const { bars, pieces } = this.run;
    let from = Infinity, to = -Infinity, top = Infinity;
    for (let i = 0; i < pieces.bar.length; i++) {
      const b = pieces.bar[i];
      if (bars.job[b] !== job) continue;
      from = Math.min(from, bars.start[b]);
      to = Math.max(to, bars.start[b] + bars.length[b]);
      top = Math.min(top, pieces.row[i]);
    }
    if (to < from) return;
    const margin = Math.max((to - from) * 0.15, 100);
    Object.assign(this, { from: from - margin, to: to + margin, scroll: (top - 2) * this.rowHeight });
    this.move(0, 0);
  }

  timeAt(x) {
    return this.from + ((x - GUTTER) / Math.max(this.width - GUTTER, 1)) * (this.to - this.from);
  }

  /** The bar at a pixel, or -1; a bar narrower than a few pixels is found beside itself, too. */
  barAt(x, y) {
    if (x < GUTTER || y < AXIS) return -1;
    const { bars, pieces } = this.run;
    const row = Math.floor((y - AXIS + this.scroll) / this.rowHeight);
    const time = this.timeAt(x), reach = 3 * (this.timeAt(x + 1) - time);
    let best = -1, nearest = reach;
    for (let i = 0; i < pieces.row.length; i++) {
      if (row < pieces.row[i] || row >= pieces.row[i] + pieces.height[i]) continue;
      const b = pieces.bar[i], start = bars.start[b];
      const away = Math.max(start - time, time - start - bars.length[b]);
      if (away <= 0) return b;
      if (away < nearest) [best, nearest] = [b, away];
    }
    return best;
  }

  /** Draw at the next frame. */
  request() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  /** Draw now. */
  draw() {
    if (!this.run || !this.width) return;
    const began = performance.now();
    const c = this.canvas.getContext("2d");
    const scale = devicePixelRatio || 1;
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.fillStyle = this.theme.paper;
    c.fillRect(0, 0, this.width, this.height);
    drawBands(c, this);
    const ticks = drawGrid(c, this);
    c.save();
    c.beginPath();
    c.rect(GUTTER, AXIS, this.width - GUTTER, this.height - AXIS);
    c.clip();
    this.drawn = drawBars(c, this);
    drawOutside(c, this);
    c.restore();
    drawNames(c, this);
    drawTicks(c, this, ticks);
    drawScroll(c, this);
    this.drawMs = performance.now() - began;
  }
}
