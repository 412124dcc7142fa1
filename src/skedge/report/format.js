/* Numbers, times and elements: what every other part of the page uses. */

const SECOND = 1e6; // times are in µs
const STEPS_S = [
  1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 432000, 864000, 1728000, 4320000, 8640000, 17280000, 43200000, 86400000,
];

/**
 * An element with attributes and children; text becomes text nodes, never markup.
 * @param {string} tag
 * @param {Object<string, string>} [attributes]
 * @param {...(Node|string)} children
 */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** The element with this id. */
const byId = (id) => document.getElementById(id);

/** The value of a custom property of the style sheet. */
const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * A column of whole numbers: little-endian bytes in base64, every value stored one higher; -1 is "none".
 * @param {{n: number, width: number, data: string}} column
 * @returns {Float64Array}
 */
function unpack(column) {
  const bytes = atob(column.data);
  const values = new Float64Array(column.n);
  for (let i = 0, at = 0; i < column.n; i++, at += column.width) {
    let value = 0;
    for (let k = column.width - 1; k >= 0; k--) value = value * 256 + bytes.charCodeAt(at + k);
    values[i] = value - 1;
  }
  return values;
}

/** A whole number in groups of three. */
const grouped = (number) => number.toLocaleString("en-GB");

/** A large number in words: 3.4 million. */
function roughly(number) {
  if (number < 1e6) return grouped(number);
  return number < 1e9 ? `${+(number / 1e6).toPrecision(3)} million` : `${+(number / 1e9).toPrecision(3)} billion`;
}

/** A duration in its own unit, short: "1.5 h". */
function shortDuration(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
  const [factor, unit] = units.find(([f]) => size >= f * 0.9995) || units[units.length - 1];
  const amount = seconds / factor;
  return `${grouped(+amount.toPrecision(Math.abs(amount) >= 100 ? 4 : 3))} ${unit}`;
}

/** A point in time [µs] to the millisecond: "2 d 03:04:05.25". */
function clock(time) {
  time = Math.round(time / 1000) * 1000;
  const total = Math.floor(time / SECOND);
  const two = (n) => String(n).padStart(2, "0");
  const rest = time - total * SECOND;
  const fraction = rest ? "." + String(rest).padStart(6, "0").replace(/0+$/, "") : "";
  const days = Math.floor(total / 86400);
  const hours = two(Math.floor(total / 3600) % 24), minutes = two(Math.floor(total / 60) % 60);
  return `${days ? grouped(days) + " d " : ""}${hours}:${minutes}:${two(total % 60)}${fraction}`;
}

/** The label of a tick at `time` [s] on an axis with this step: as fine as the step asks for. */
function tickLabel(time, step) {
  if (step < 1) return `${+time.toFixed(6)} s`;
  const days = Math.floor(time / 86400), hours = Math.floor(time / 3600) % 24;
  if (step >= 86400 || (time > 0 && time % 86400 === 0)) return `${grouped(days)} d`;
  const two = (n) => String(n).padStart(2, "0");
  const ofDay = `${two(hours)}:${two(Math.floor(time / 60) % 60)}${step < 60 ? ":" + two(Math.round(time) % 60) : ""}`;
  return ofDay;
}

/** The smallest round step [s] that is at least `wanted`. */
const roundStep = (wanted) => STEPS_S.find((step) => step >= wanted) || STEPS_S[STEPS_S.length - 1];
