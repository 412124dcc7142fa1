/* Wheel, pointer and keys of the Gantt chart; `g` is the Gantt. */

const KEYS = {
  ArrowLeft: (g) => g.move(-(g.width - GUTTER) / 10, 0),
  ArrowRight: (g) => g.move((g.width - GUTTER) / 10, 0),
  ArrowUp: (g) => g.move(0, -48),
  ArrowDown: (g) => g.move(0, 48),
  PageUp: (g) => g.move(0, AXIS - g.height),
  PageDown: (g) => g.move(0, g.height - AXIS),
  "+": (g) => g.zoom(1 / 1.4),
  "=": (g) => g.zoom(1 / 1.4),
  "-": (g) => g.zoom(1.4),
  "]": (g) => g.stretch(1.25),
  "[": (g) => g.stretch(1 / 1.25),
  0: (g) => g.reset(),
  Escape: (g) => g.tell.pick(-1),
};

/** Let the Gantt hear the wheel, the pointer and the keys. */
function listen(g) {
  const canvas = g.canvas;
  canvas.addEventListener("wheel", (event) => onWheel(g, event), { passive: false });
  canvas.addEventListener("keydown", (event) => onKey(g, event));
  canvas.addEventListener("pointerdown", (event) => onDown(g, event));
  canvas.addEventListener("pointermove", (event) => onMove(g, event));
  canvas.addEventListener("pointerup", (event) => onUp(g, event));
  canvas.addEventListener("pointercancel", () => (g.drag = null));
  canvas.addEventListener("pointerleave", () => g.tell.hover(-1, 0, 0));
}

function onWheel(g, event) {
  event.preventDefault();
  const lines = event.deltaMode === 1 ? 16 : 1;
  const dx = event.deltaX * lines, dy = event.deltaY * lines;
  g.tell.hover(-1, 0, 0);
  if (event.shiftKey) return g.move(0, dy || dx);
  if (Math.abs(dx) > Math.abs(dy)) return g.move(dx, 0);
  return g.zoom(Math.exp(Math.max(-240, Math.min(240, dy)) * 0.0018), Math.max(event.offsetX, GUTTER));
}

function onKey(g, event) {
  const action = KEYS[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  g.tell.hover(-1, 0, 0);
  action(g);
}

function onDown(g, event) {
  if (event.button !== 0) return;
  g.drag = { x: event.offsetX, y: event.offsetY, moved: 0 };
  g.canvas.setPointerCapture(event.pointerId);
}

function onMove(g, event) {
  const { offsetX: x, offsetY: y } = event;
  if (!g.drag) return g.tell.hover(g.barAt(x, y), x, y);
  const dx = g.drag.x - x, dy = g.drag.y - y;
  const moved = g.drag.moved + Math.abs(dx) + Math.abs(dy);
  g.drag = { x, y, moved };
  if (moved < 4) return undefined;
  g.tell.hover(-1, 0, 0);
  return g.move(dx, dy);
}

function onUp(g, event) {
  const clicked = g.drag && g.drag.moved < 4;
  g.drag = null;
  if (clicked) g.tell.pick(g.barAt(event.offsetX, event.offsetY));
}
