// Listeners and upstreams.
import { byId, mark, text } from "./dom.js";
import { count, micro, rate } from "./format.js";
import { received, sent } from "./state.js";
import { counters, shown, Table } from "./table.js";

const number = (key, title, of) => ({ key, title, flex: [0.3, 74], number: true, fill: shown(of) });
const numbers = (table) => counters(table, (x, c) => c.path.reduce((part, key) => part?.[key], x.row) || 0).map((c) => ({ ...c, sort: null }));

export class Places {
  constructor(state) {
    this.state = state;
    const flow = [
      number("in", "from clients", (x) => rate(state.perSecond(x, received))),
      number("out", "to clients", (x) => rate(state.perSecond(x, sent))),
    ];
    this.listeners = new Table(byId("t-listeners"), {
      name: "listeners", label: "Listeners", key: (x) => x.row.name, empty: "no listener",
      level: (x) => (x.row.state === "serving" ? "ok" : "warning"),
      columns: [
        { key: "name", title: "name", flex: [2, 110], fill: named((x) => x.row.addresses?.join(", ") || "") },
        { key: "state", title: "state", flex: [0, 80], fill: health((x) => x.row.paused_at ? `paused: ${x.row.paused_at}` : x.row.state) },
        ...numbers("listeners"),
        ...flow,
      ],
    });
    this.upstreams = new Table(byId("t-upstreams"), {
      name: "upstreams", label: "Upstreams", key: (x) => x.row.name, empty: "no upstream", level: upstreamLevel,
      columns: [
        { key: "name", title: "name", flex: [2, 90], fill: named((x) => x.row.balance) },
        { key: "state", title: "state", flex: [0, 104], fill: health(upstreamState) },
        ...numbers("upstreams"),
        { ...number("connect", "connect", (x) => mean(state, x)), flex: [0, 58] },
        ...flow,
      ],
    });
  }

  update() {
    const { listeners, upstreams } = this.state.rows;
    const sorted = (rows) => [...rows.values()].sort((a, b) => (a.row.name < b.row.name ? -1 : 1));
    this.listeners.show(sorted(listeners));
    this.upstreams.show(sorted(upstreams));
    text(byId("listeners-count"), count(listeners.size));
    text(byId("upstreams-count"), count(upstreams.size));
  }
}

/** mean returns the mean time of the connections since the last event, or else of all connections. */
function mean(state, x) {
  const made = state.change(x, (u) => u.connects.made);
  if (made) return micro(state.change(x, (u) => u.connects.sum_us) / made);
  return x.row.connects.made ? micro(x.row.connects.sum_us / x.row.connects.made) : "–";
}

function upstreamLevel(x) {
  if (x.row.outage && !x.row.outage.served) return "down";
  return x.row.outage || x.row.panic || (x.row.breaker && x.row.breaker !== "closed") ? "warning" : "ok";
}

function upstreamState(x) {
  if (x.row.outage) return x.row.outage.full ? "full" : "no endpoint";
  if (x.row.breaker && x.row.breaker !== "closed") return `breaker ${x.row.breaker}`;
  return x.row.panic ? "panic" : "serving";
}

/** named shows a name, and a smaller text beside it. */
export const named = (beside) => (cell, x) => {
  if (!cell.firstElementChild) cell.append(document.createElement("b"), document.createElement("small"));
  text(cell.children[0], x.row.name);
  text(cell.children[1], beside(x));
  if (cell.title !== beside(x)) cell.title = beside(x);
};

/** health shows a word after a mark. */
export const health = (of) => (cell, x) => {
  if (!cell.firstElementChild) cell.append(document.createElement("span"));
  text(cell.firstElementChild, of(x));
  if (cell.title !== of(x)) cell.title = of(x);
  mark(cell, "health", "yes");
};
