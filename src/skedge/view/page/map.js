/* Servers with their load, and the data that moved to them: a picture, and the same numbers as tables. */

import { ask } from "./ask.js";
import { svg } from "./svg.js";

const ARROWS = 40; // links that are drawn
const WIDTH = 640, RADIUS = 22;

const percentText = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);

/** Places on an ellipse, by the servers' names. */
function places(servers) {
  const tall = Math.max(260, Math.min(620, 60 + servers.length * 22));
  const spot = (i) => {
    const angle = (2 * Math.PI * i) / servers.length - Math.PI / 2;
    return [WIDTH / 2 + (WIDTH / 2 - 90) * Math.cos(angle), tall / 2 + (tall / 2 - 48) * Math.sin(angle)];
  };
  return { tall, of: new Map(servers.map((server, i) => [server.server, spot(i)])) };
}

function drawServer(server, [x, y]) {
  const out = server.state === "up" ? "" : " out";
  const filled = RADIUS * Math.sqrt(server.busy ?? 0);
  return svg("g", { "data-server": server.server },
    svg("title", {}, `${server.server}: ${server.state}, ${percentText(server.busy)} busy`),
    svg("circle", { class: `server${out}`, cx: x, cy: y, r: RADIUS }), svg("circle", { class: "busy", cx: x, cy: y, r: filled }),
    svg("text", { x, y: y + RADIUS + 15, "text-anchor": "middle" }, server.server.length > 16 ? `${server.server.slice(0, 15)}…` : server.server));
}

/** A link between servers bends; data that come from outside fall onto the server from above. */
function drawLink(link, most, of) {
  const [x2, y2] = of.get(link.to), width = 1 + (7 * link.mb) / Math.max(most, 1e-9);
  const [x1, y1] = of.get(link.from) ?? [x2, y2 - RADIUS - 18];
  const bend = of.has(link.from) ? `Q ${WIDTH / 2} ${(y1 + y2) / 2} ${x2} ${y2}` : `L ${x2} ${y2 - RADIUS}`;
  return svg("path", { class: "link-line", d: `M ${x1} ${y1} ${bend}`, "stroke-width": width },
    svg("title", {}, `${link.from ?? "from where they arise"} → ${link.to}: ${grouped(+link.mb.toFixed(1))} MB`));
}

function picture(found) {
  const { tall, of } = places(found.servers);
  const most = Math.max(...found.links.map((link) => link.mb), 0);
  const drawn = found.links.slice(0, ARROWS).map((link) => drawLink(link, most, of));
  return svg("svg", { class: "picture", viewBox: `0 0 ${WIDTH} ${tall}`, role: "img", "aria-label": "Servers and the data moved to them; the tables below hold the numbers" },
    ...drawn, ...found.servers.map((server) => drawServer(server, of.get(server.server))));
}

function table(id, label, heads, rows) {
  const cell = (value, i) => element(i ? "td" : "th", i ? { class: typeof value === "string" && /^[\d–]/.test(value) ? "number" : "" } : { scope: "row" }, value);
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    element("table", { class: "plain", id }, element("caption", {}, label),
      element("thead", {}, element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell))))));
}

/** Show the servers of a run. */
export async function showMap(run) {
  const found = await ask("/view/map", { run });
  const left = found.links.length - ARROWS;
  byId("map-found").replaceChildren(
    element("p", { class: "hint" }, "The filled part of a circle is the share of its workers' time in use; a line is data moved, as wide as its MB; a dashed rim: out of service." +
      (left > 0 ? ` The ${ARROWS} links of the most MB are drawn, of ${grouped(found.links.length)}.` : "")),
    picture(found),
    table("servers-table", "Servers", ["server", "kind", "state", "workers", "busy"],
      found.servers.map((one) => [one.server, one.kind, one.state, one.workers ? grouped(one.workers) : "–", percentText(one.busy)])),
    table("links-table", "Data moved", ["from", "to", "chunks", "MB"],
      found.links.map((one) => [one.from ?? "where they arise", one.to, grouped(one.chunks), grouped(+one.mb.toFixed(1))])));
}
