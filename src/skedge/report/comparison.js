/* The comparison table; its titles are buttons that sort it. */

function tableCell(cell, column, first) {
  const made = element(first ? "th" : "td", first ? { scope: "row" } : { title: cell.exact || "" }, cell.text);
  if (!first && typeof cell.sort !== "string") made.classList.add("number");
  if (cell.best) {
    made.classList.add("best");
    made.prepend(element("span", { role: "img", "aria-label": "best: " }, "★ "));
  }
  if (cell.interval) made.append(element("span", { class: "interval" }, cell.interval));
  return made;
}

/** Order of two cells: numbers by size, texts by alphabet, nothing last. */
function compareCells(a, b) {
  const rank = (value) => (value === null || value === undefined ? 2 : typeof value === "string" ? 1 : 0);
  if (rank(a) !== rank(b)) return rank(a) - rank(b);
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : (a || 0) - (b || 0);
}

/** The comparison table; its titles are buttons that sort it. */
function showComparison(table) {
  const body = element("tbody");
  const fill = (rows) =>
    body.replaceChildren(...rows.map((row) => element("tr", {}, ...row.map((c, i) => tableCell(c, table.columns[i], i === 0)))));
  const heads = table.columns.map((column, i) => {
    const numeric = table.rows.some((row) => typeof row[i].sort === "number");
    const arrow = element("span", { "aria-hidden": "true" }, "");
    const button = element("button", { type: "button" }, column.title, arrow);
    if (column.unit) arrow.before(element("span", { class: "unit" }, ` [${column.unit}]`));
    const head = element("th", { scope: "col", class: numeric ? "number" : "" }, button);
    button.addEventListener("click", () => sortBy(i, head));
    return head;
  });
  const sortBy = (i, head) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => {
      other.removeAttribute("aria-sort");
      other.querySelector("[aria-hidden]").textContent = "";
    });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    head.querySelector("[aria-hidden]").textContent = down ? " ▼" : " ▲";
    fill([...table.rows].sort((a, b) => (down ? -1 : 1) * compareCells(a[i].sort, b[i].sort)));
  };
  fill(table.rows);
  byId("comparison").append(element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
  const marks = table.rows.some((row) => row.some((cell) => cell.best)) ? "★ marks a policy whose difference to each other one has an interval on its side. " : "";
  byId("comparison-note").textContent = `${marks}Titles sort the table. ${table.note}`;
}
