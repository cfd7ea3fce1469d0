// A table of any length. Only the visible rows are in the document. They are moved and filled in place.
import columns from "./columns.js";
import { element, mark, text } from "./dom.js";
import { count } from "./format.js";

const spare = 4; // rows beyond each edge
const heads = 30; // pixels of the titles, which stay
const phone = matchMedia("(max-width: 640px)");

export class Table {
  /**
   * columns are {key, title, flex, fill(cell, item), sort?, number?, wide?}; flex is the share of free room and the width in pixels, wide
   * columns are left out on narrow pages. key(item) names an item, level(item) colours its row. onSort is called when a title is chosen.
   */
  constructor(parent, { name, label, columns, key, level, rows = [32, 58], empty = "none" }) {
    Object.assign(this, { columns, key, level, heights: rows, items: [], pool: [], sort: null, onSort: () => {} });
    this.head = element("div", { className: "head", role: "row" });
    for (const c of columns) this.head.append(this.title(c));
    this.space = element("div", { className: "space", role: "rowgroup" });
    this.empty = element("p", { className: "empty", textContent: empty, hidden: true });
    this.body = element("div", { className: "rows", role: "presentation", tabIndex: 0, "aria-label": `${label}, scrolls` }, element("div", { className: "heads", role: "rowgroup" }, this.head), this.space);
    this.foot = element("p", { className: "foot", hidden: true });
    this.root = element("div", { className: `table t-${name}`, role: "table", "aria-label": label }, this.body, this.empty, this.foot);
    parent.append(this.root);
    // Asking for these while rows are filled would make the browser lay out the page each time.
    this.top = 0;
    this.tall = 480;
    this.body.addEventListener("scroll", () => { this.top = this.body.scrollTop; this.draw(); }, { passive: true });
    phone.addEventListener("change", () => this.resize());
    new ResizeObserver(([entry]) => { this.tall = entry.contentRect.height; this.draw(); }).observe(this.body);
    this.resize();
  }

  title(c) {
    const title = this.cell(c, "columnheader");
    if (!c.sort) {
      title.textContent = c.title;
      return title;
    }
    const button = element("button", { type: "button", textContent: c.title });
    button.addEventListener("click", () => this.choose(c.key));
    title.append(button);
    return title;
  }

  cell(c, role) {
    const cell = element("div", { role, className: `c-${c.key}` });
    const [share, width] = c.flex || [0, Math.max(66, 7 * c.title.length)];
    cell.style.flex = `${share} ${share} ${width}px`;
    cell.classList.toggle("number", Boolean(c.number));
    cell.classList.toggle("wide", Boolean(c.wide));
    return cell;
  }

  /** choose sorts by a column. */
  choose(key) {
    this.sort = key;
    this.columns.forEach((c, i) => {
      if (c.key === key) this.head.children[i].setAttribute("aria-sort", c.number ? "descending" : "ascending");
      else this.head.children[i].removeAttribute("aria-sort");
    });
    this.onSort(key);
  }

  resize() {
    this.height = this.heights[phone.matches ? 1 : 0];
    for (const row of this.pool) row.at = -1;
    this.show(this.items);
  }

  /** show replaces the items. */
  show(items) {
    this.items = items;
    const height = `${items.length * this.height}px`;
    if (this.space.style.height !== height) this.space.style.height = height;
    if (this.empty.hidden !== items.length > 0) this.empty.hidden = items.length > 0;
    const rows = String(items.length + 1);
    if (this.root.getAttribute("aria-rowcount") !== rows) this.root.setAttribute("aria-rowcount", rows);
    this.draw();
  }

  /** draw fills in the visible rows. */
  draw() {
    const seen = Math.ceil(this.tall / this.height) + 1 + 2 * spare;
    const first = Math.max(Math.min(Math.floor(this.top / this.height) - spare, this.items.length - seen), 0);
    while (this.pool.length < Math.min(seen, this.items.length)) this.grow();
    for (let i = first; i < first + this.pool.length; i++) this.place(this.pool[i % this.pool.length], i);
    this.cue();
  }

  /** cue says which rows are visible, unless all are. */
  cue() {
    const room = this.tall - (phone.matches ? 0 : heads), n = this.items.length;
    const scrolls = n * this.height > room + 1;
    if (this.foot.hidden === scrolls) this.foot.hidden = !scrolls;
    if (!scrolls) return;
    const from = Math.min(Math.ceil(this.top / this.height) + 1, n), to = Math.min(Math.max(Math.floor((this.top + room) / this.height), from), n);
    text(this.foot, `Rows ${count(from)} to ${count(to)} of ${count(n)}: scroll for the others`);
  }

  grow() {
    const row = element("div", { className: "row", role: "row" });
    for (const c of this.columns) {
      const cell = this.cell(c, "cell");
      cell.dataset.title = c.title;
      row.append(cell);
    }
    row.at = -1;
    this.pool.push(row);
    for (const other of this.pool) other.at = -1; // a row is found by its place modulo the number of rows
    this.space.append(row);
  }

  place(row, i) {
    const item = this.items[i];
    if (row.hidden !== !item) row.hidden = !item;
    if (!item) return;
    if (row.at !== i) {
      row.at = i;
      row.style.transform = `translateY(${i * this.height}px)`;
      row.setAttribute("aria-rowindex", i + 2);
    }
    row.item = item;
    mark(row, "key", this.key(item));
    mark(row, "level", this.level?.(item));
    this.columns.forEach((c, j) => c.fill(row.children[j], item));
  }
}

/** counters makes the columns that the status has for a table, see columns.go. of(item, column) returns the number. */
export const counters = (table, of) => columns[table].map((c) => ({
  ...c, number: true, sort: (item) => of(item, c), fill: shown((item) => (c.nonzero && !of(item, c) ? "–" : count(of(item, c)))),
}));

/** shown makes the fill of a column from its text. */
export const shown = (of) => (cell, item) => text(cell, of(item));
