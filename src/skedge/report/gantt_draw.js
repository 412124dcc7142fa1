/* What the Gantt chart draws, layer by layer; `g` is the Gantt. */

const LABEL_FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** First row, number of rows and kind of every server's band. */
function groupLines(groups) {
  let row = 0;
  return groups.map((group, i) => {
    const line = { ...group, first: row, shared: groups.some((other, k) => k !== i && other.server === group.server) };
    row += group.rows;
    return line;
  });
}

/** Top of a row. */
const rowTop = (g, row) => AXIS + row * g.rowHeight - g.scroll;

/** Every second server on a band of its own shade, so that the eye can follow. */
function drawBands(c, g) {
  g.lines.forEach((line, i) => {
    const top = rowTop(g, line.first), height = line.rows * g.rowHeight;
    if (top + height < AXIS || top > g.height) return;
    c.fillStyle = i % 2 ? g.theme.paper : g.theme.panel;
    c.fillRect(0, top, g.width, height);
    c.fillStyle = g.theme.line;
    c.fillRect(0, top + height - 0.5, g.width, 0.5);
  });
}

/** Lines at round times. */
function drawGrid(c, g) {
  const plot = g.width - GUTTER, perSecond = plot / ((g.to - g.from) / SECOND);
  const step = roundStep(90 / perSecond);
  const ticks = [];
  for (let i = Math.max(0, Math.ceil(g.from / SECOND / step)); i * step * SECOND <= g.to; i++) {
    ticks.push({ time: i * step, x: GUTTER + (i * step - g.from / SECOND) * perSecond, step });
  }
  c.fillStyle = g.theme.grid;
  for (const tick of ticks) c.fillRect(Math.round(tick.x), AXIS, 1, g.height - AXIS);
  return ticks;
}

/** All bars in view; a selected job's last and in full colour. Returns how many were drawn. */
function drawBars(c, g) {
  c.font = LABEL_FONT;
  c.textBaseline = "middle";
  c.textAlign = "left";
  if (g.selected < 0) return drawPieces(c, g, () => true, false);
  c.globalAlpha = 0.22;
  const others = drawPieces(c, g, (job) => job !== g.selected, false);
  c.globalAlpha = 1;
  return others + drawPieces(c, g, (job) => job === g.selected, true);
}

/** The bars of the wanted jobs. Plain ones are pixels of an image, as drawing each takes ten times as long. */
function drawPieces(c, g, wanted, marked) {
  const { bars, pieces } = g.run;
  const perTime = (g.width - GUTTER) / (g.to - g.from);
  const inset = g.rowHeight >= 7 ? 1 : g.rowHeight >= 4 ? 0.5 : 0;
  const raster = rasterOf(g), others = [];
  let drawn = 0;
  for (let i = 0; i < pieces.row.length; i++) {
    const b = pieces.bar[i];
    const y = AXIS + pieces.row[i] * g.rowHeight - g.scroll, h = pieces.height[i] * g.rowHeight;
    if (y + h < AXIS || y > g.height || !wanted(bars.job[b])) continue;
    const left = GUTTER + (bars.start[b] - g.from) * perTime, right = left + bars.length[b] * perTime;
    if (right < GUTTER - 2 || left > g.width + 2) continue;
    drawn++;
    const plain = !marked && bars.wait[b] * perTime < 1 && bars.preempted[b] <= 0 && (h < 13 || right - left < 34);
    if (plain) fillPixels(raster, left, right, y + inset, y + h - inset, g.palette[g.colour[b]].pixel);
    else others.push([b, left, left + bars.wait[b] * perTime, right, y + inset, h - 2 * inset]);
  }
  showRaster(c, g, raster);
  for (const [b, ...box] of others) {
    c.fillStyle = c.strokeStyle = g.palette[g.colour[b]].fill;
    drawBar(c, g, b, ...box, marked);
  }
  return drawn;
}

/** An empty image of the canvas's size; made once for each size. */
function rasterOf(g) {
  const { width, height } = g.canvas;
  if (!g.raster || g.raster.image.width !== width || g.raster.image.height !== height) {
    const layer = new OffscreenCanvas(width, height), image = new ImageData(width, height);
    g.raster = { layer, image, pixels: new Uint32Array(image.data.buffer), scale: devicePixelRatio || 1 };
  }
  g.raster.pixels.fill(0);
  return g.raster;
}

/** Colour a rectangle, at least one pixel of it; from 5 pixels on the last column stays free to keep neighbours apart. */
function fillPixels({ image, pixels, scale }, left, right, top, bottom, colour) {
  const { width, height } = image;
  const x0 = Math.max(0, Math.round(left * scale)), wide = Math.round(right * scale) - x0;
  const x1 = Math.min(width, x0 + Math.max(1, wide > 4 ? wide - 1 : wide));
  const y0 = Math.max(0, Math.round(top * scale)), y1 = Math.min(height, Math.max(y0 + 1, Math.round(bottom * scale)));
  for (let y = y0; y < y1; y++) {
    for (let at = y * width + x0, end = y * width + x1; at < end; at++) pixels[at] = colour;
  }
}

function showRaster(c, g, { layer, image }) {
  layer.getContext("2d").putImageData(image, 0, 0);
  c.drawImage(layer, 0, 0, g.width, g.height);
}

/** One bar: hollow while it uploads, filled while it computes, notched where it was preempted. */
function drawBar(c, g, b, left, compute, right, y, h, marked) {
  const x0 = Math.max(left, GUTTER - 4), x1 = Math.min(right, g.width + 4), xc = Math.max(x0, Math.min(compute, x1));
  const least = marked ? 2 : 0.7;
  // A gap of half a pixel keeps neighbours apart where there is room for it.
  const width = Math.max(x1 - xc - (x1 - xc > 4 ? 0.5 : 0), xc > x0 ? 0 : least);
  if (xc - x0 >= 1) drawHollow(c, x0, y, xc - x0, h);
  if (width > 0) c.fillRect(xc, y, width, h);
  const wide = right - left;
  if (g.run.bars.preempted[b] > 0 && wide >= 4 && h >= 2) drawNotch(c, g, Math.min(right, g.width + 8), y, h, wide);
  if (marked) outline(c, g, x0, y, Math.max(x1 - x0, least), h);
  if (h >= 11 && x1 - xc >= 34) drawLabel(c, g, b, xc, x1, y, h);
}

function drawHollow(c, x, y, width, h) {
  const alpha = c.globalAlpha;
  c.globalAlpha = alpha * 0.25;
  c.fillRect(x, y, width, h);
  c.globalAlpha = alpha;
  if (h < 4) return;
  c.lineWidth = 1;
  c.strokeRect(x + 0.5, y + 0.5, Math.max(width - 0.5, 0.5), h - 1);
}

/** The end of a preempted run: a wedge out of the bar with a line in the page's ink. */
function drawNotch(c, g, right, y, h, wide) {
  const fill = c.fillStyle, depth = Math.min(7, wide / 2, h);
  if (depth >= 3 && h >= 5) {
    c.fillStyle = g.theme.paper;
    c.beginPath();
    c.moveTo(right, y);
    c.lineTo(right - depth, y + h / 2);
    c.lineTo(right, y + h);
    c.fill();
  }
  c.fillStyle = g.theme.ink;
  c.fillRect(right - 1.5, y, 1.5, h);
  c.fillStyle = fill;
}

function outline(c, g, x, y, width, h) {
  c.lineWidth = h >= 6 ? 1.5 : 1;
  c.strokeStyle = g.theme.ink;
  c.strokeRect(x, y, width, h);
}

/** The job's id in its bar, as much of it as fits. */
function drawLabel(c, g, b, left, right, y, h) {
  const from = Math.max(left, GUTTER) + 4;
  const text = clipped(c, g.run.nameOf(g.run.bars.job[b]), right - from - 9);
  if (!text) return;
  const fill = c.fillStyle;
  c.fillStyle = g.palette[g.colour[b]].ink;
  c.fillText(text, from, y + Math.min(h, 60) / 2 + 0.5);
  c.fillStyle = fill;
}

/** The longest beginning of `text` that fits, with an ellipsis; one character alone says nothing and is left out. */
function clipped(c, text, width) {
  if (width < 14) return "";
  if (text.length < 80 && c.measureText(text).width <= width) return text;
  let low = 0, high = Math.min(text.length, 80);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (c.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? text.slice(0, low) + "…" : "";
}

/** Shade over the time whose bars are not embedded. */
function drawOutside(c, g) {
  const window = g.run.gantt.window;
  if (!window) return;
  const x = (time) => GUTTER + ((time - g.from) / (g.to - g.from)) * (g.width - GUTTER);
  for (const [from, to] of [[GUTTER, x(window[0])], [x(window[1]), g.width]]) {
    const left = Math.max(from, GUTTER), right = Math.min(to, g.width);
    if (right <= left) continue;
    c.fillStyle = g.theme.paper;
    c.globalAlpha = 0.75;
    c.fillRect(left, AXIS, right - left, g.height - AXIS);
    c.globalAlpha = 1;
    c.fillStyle = g.theme.shade;
    c.fillRect(left, AXIS, right - left, g.height - AXIS);
    if (right - left < 110) continue;
    c.fillStyle = g.theme.faint;
    c.textAlign = "center";
    c.fillText("not embedded", (left + right) / 2, g.height / 2);
    c.textAlign = "left";
  }
}

/** Name of a band: its server, and its worker type where the server has several. */
function bandName(g, line) {
  const server = g.run.servers[line.server];
  return line.shared && line.type ? `${server} · ${line.type}` : server;
}

/** Servers' names at the left, each once and where there is room; slot numbers when rows are high enough. */
function drawNames(c, g) {
  c.fillStyle = g.theme.line;
  c.fillRect(GUTTER - 1, AXIS, 1, g.height - AXIS);
  c.font = LABEL_FONT;
  c.textBaseline = "middle";
  const inView = g.lines.filter((line) => rowTop(g, line.first + line.rows) > AXIS && rowTop(g, line.first) < g.height);
  const height = (line) => line.rows * g.rowHeight;
  const taken = [];
  for (const line of [...inView.filter((l) => height(l) >= 14), ...inView.filter((l) => height(l) < 14)]) {
    const top = rowTop(g, line.first);
    // A name stays in view while its rows do, and leaves with the last of them.
    const y = Math.min(Math.max(top, AXIS) + 8, top + Math.max(height(line) - 7, height(line) / 2));
    if (taken.some((other) => Math.abs(other - y) < 14)) continue;
    taken.push(y);
    c.fillStyle = g.theme.ink;
    c.textAlign = "left";
    c.fillText(clipped(c, bandName(g, line), GUTTER - 46), 8, y);
  }
  if (g.rowHeight >= 12) inView.forEach((line) => drawSlots(c, g, line));
}

function drawSlots(c, g, line) {
  c.fillStyle = g.theme.faint;
  c.textAlign = "right";
  for (let slot = 0; slot < line.rows; slot++) {
    const y = rowTop(g, line.first + slot) + g.rowHeight / 2;
    if (y < AXIS + 5 || y > g.height) continue;
    c.fillText(slot < line.slots ? String(slot) : "·", GUTTER - 8, y);
  }
}

/** The axis of time, above everything. */
function drawTicks(c, g, ticks) {
  c.fillStyle = g.theme.paper;
  c.fillRect(0, 0, g.width, AXIS);
  c.fillStyle = g.theme.line;
  c.fillRect(0, AXIS - 1, g.width, 1);
  c.fillStyle = g.theme.ink;
  c.font = LABEL_FONT;
  c.textBaseline = "middle";
  c.textAlign = "left";
  c.fillText("server, slot", 8, AXIS / 2);
  c.textAlign = "center";
  for (const tick of ticks) {
    const text = tickLabel(tick.time, tick.step), half = c.measureText(text).width / 2;
    if (tick.x - half > GUTTER - 20 && tick.x + half < g.width) c.fillText(text, tick.x, AXIS / 2);
  }
  c.textAlign = "left";
}

/** Where the rows in view stand among all. */
function drawScroll(c, g) {
  const plot = g.height - AXIS, all = g.rows * g.rowHeight;
  if (all <= plot + 1) return;
  c.fillStyle = g.theme.faint;
  c.globalAlpha = 0.55;
  const height = Math.max(24, (plot * plot) / all);
  c.fillRect(g.width - 6, AXIS + (g.scroll / (all - plot)) * (plot - height), 5, height);
  c.globalAlpha = 1;
}
