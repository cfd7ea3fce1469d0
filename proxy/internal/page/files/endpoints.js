// All endpoints, with their health and its cause.
import { byId, element, list, mark, text } from "./dom.js";
import { clock, count, micro, rate, share } from "./format.js";
import { health } from "./places.js";
import { bytesIn, bytesOut, N } from "./state.js";
import { counters, shown, Table } from "./table.js";

const order = { down: 0, warning: 1, off: 2, ok: 3 };
const titles = { "": "all", down: "down", warning: "warning", off: "out", ok: "up" };
const often = 1000; // up to this many endpoints are sorted at each event, more at each fifth event

export class Endpoints {
  constructor(state, choose, act) {
    Object.assign(this, { state, choose, act, only: "", words: "", arranged: -1, list: [] });
    const number = (key, title, flex, of, text) => ({ key, title, flex, number: true, sort: of, fill: shown((e) => text(of(e))) });
    const received = (e) => state.endpointRate(e, ...bytesIn), sent = (e) => state.endpointRate(e, ...bytesOut);
    const connect = (e) => (e.now[N["connects.made"]] ? e.now[N["connects.sum_us"]] / e.now[N["connects.made"]] : 0);
    const [active, ...others] = counters("endpoints", (e, c) => e.now[N[c.path.join(".")]]);
    this.table = new Table(byId("t-endpoints"), {
      name: "endpoints", label: "Endpoints", key: (e) => `${e.row.upstream}/${e.row.name}`, level: (e) => e.row.level, rows: [32, 76],
      empty: "no endpoint matches",
      columns: [
        { key: "state", title: "state", flex: [0, 84], sort: (e) => order[e.row.level], fill: health((e) => word(e.row)) },
        { key: "name", title: "endpoint", flex: [2, 130], sort: (e) => e.row.name, fill: this.link() },
        { key: "upstream", title: "upstream", flex: [0.8, 64], sort: (e) => e.row.upstream, fill: shown((e) => e.row.upstream) },
        { ...number("weight", "weight", [0, 46], (e) => e.row.weight, count), wide: true },
        { ...active, fill: shown((e) => count(active.sort(e)) + (e.row.most ? ` / ${count(e.row.most)}` : "")) },
        ...others,
        { ...number("connect", "connect", [0, 56], connect, (us) => (us ? micro(us) : "–")), wide: true },
        number("answer", "answer", [0, 58], (e) => e.answer, (us) => (us ? micro(us) : "–")),
        number("waits", "waits", [0, 56], (e) => e.waits, (x) => (x < 0 ? "–" : share(x))),
        number("in", "from clients", [0, 78], received, rate),
        number("out", "to clients", [0, 74], sent, rate),
        { key: "why", title: "cause", flex: [2.6, 120], fill: (cell, e) => this.cause(cell, e.row) },
        { key: "act", title: "", flex: [0, 28], fill: (cell, e) => this.button(cell, e.row) },
      ],
    });
    this.table.onSort = () => this.update(true);
    this.table.sort = "state";
    byId("find").addEventListener("input", (event) => { this.words = event.target.value.toLowerCase(); this.update(true); });
    this.chips();
  }

  link() {
    return (cell, e) => {
      if (!cell.firstElementChild) {
        const button = element("button", { type: "button", className: "link", title: "Its sessions" });
        button.addEventListener("click", () => this.choose(cell.parentElement.item.row));
        cell.append(button, element("small"));
      }
      text(cell.children[0], e.row.name);
      text(cell.children[1], [e.row.address === e.row.name ? "" : e.row.address, e.row.zone, e.row.backup ? "backup" : ""].filter(Boolean).join(" · "));
    };
  }

  button(cell, row) {
    if (!cell.firstElementChild) {
      const button = element("button", { type: "button", className: "quiet", textContent: "•••" });
      button.addEventListener("click", () => this.act(cell.parentElement.item));
      cell.append(button);
    }
    const title = `Drain, ready, end sessions of ${row.upstream}/${row.name}`;
    if (cell.firstElementChild.title !== title) cell.firstElementChild.title = title;
  }

  cause(cell, row) {
    const until = row.until && row.level !== "ok" ? `until ${clock(row.until, this.state.at)}` : "";
    const why = [row.why, ...(row.by_hand || []), until].filter(Boolean).join(", ");
    text(cell, why);
    if (cell.title !== why) cell.title = why;
  }

  chips() {
    list(byId("levels"), Object.keys(titles), () => element("button", { type: "button" }, element("span"), element("b")), (chip, level) => {
      chip.dataset.level = level || "all";
      text(chip.children[0], titles[level]);
      chip.onclick = () => { this.only = level; this.update(true); };
    });
  }

  /** update shows the endpoints. It selects them again if the selection may have changed. */
  update(now) {
    const s = this.state, changed = this.arranged !== s.arranged;
    if (now || changed) this.arranged = s.arranged;
    const sorts = typeof this.column()?.sort === "function" && this.column().number;
    const turn = s.endpoints.size <= often || s.event % 5 === 0;
    if (now || changed || (sorts && turn)) this.find();
    this.table.show(this.list);
  }

  column() { return this.table.columns.find((c) => c.key === this.table.sort); }

  find() {
    const all = [...this.state.endpoints.values()];
    const fits = (e) => (!this.only || e.row.level === this.only) && (!this.words || text_(e.row).includes(this.words));
    const { sort, number } = this.column();
    const by = number ? (a, b) => sort(b) - sort(a) : (a, b) => compare(sort(a), sort(b));
    this.list = all.filter(fits).sort((a, b) => by(a, b) || compare(a.row.upstream, b.row.upstream) || compare(a.row.name, b.row.name) || a.number - b.number);
    const counts = { "": all.length };
    for (const e of all) counts[e.row.level] = (counts[e.row.level] || 0) + 1;
    for (const chip of byId("levels").children) {
      const level = chip.dataset.level === "all" ? "" : chip.dataset.level;
      text(chip.children[1], count(counts[level] || 0));
      chip.setAttribute("aria-pressed", String(this.only === level));
      mark(chip, "empty", counts[level] ? "" : "yes");
    }
  }
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

const text_ = (row) => `${row.name} ${row.address} ${row.upstream} ${row.zone || ""} ${row.state} ${row.why || ""} ${(row.by_hand || []).join(" ")}`.toLowerCase();

/** word returns the state of an endpoint in a word. */
function word(row) {
  if (row.state === "up" && row.breaker) return `breaker ${row.breaker}`;
  return row.state === "up" && row.weight === 0 ? "weight 0" : row.state;
}
