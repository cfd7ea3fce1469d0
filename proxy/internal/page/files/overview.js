// The head of the page, its tiles, the problems and the charts.
import { makeCharts } from "./charts.js";
import { byId, element, list, mark, text } from "./dom.js";
import { bytes, clock, count, micro, plural, rate, share, since } from "./format.js";
import { connects } from "./latency.js";
import { copied, forwarded, received, sent, spliced } from "./state.js";

/** large is the number of endpoints above which the page draws less often, to spare the browser. */
export const large = 1000;

/** few problems are shown at first, and at most many. */
const few = 4, many = 20;

const levels = { serving: "ok", draining: "warning" };

/** tiles are the figures at the top: each has a text and a remark, made from the state. */
const tiles = [
  ["sessions", "Sessions", (s) => count(s.process.connections.active), (s) => limit(s.process.connections.most)],
  ["accepted", "New per second", (s) => count(Math.round(s.perSecond(s.entry, (p) => p.connections.accepted))), (s) => `${count(s.process.connections.accepted)} in all`],
  ["received", "From clients", (s) => rate(s.perSecond(s.entry, received)), (s) => `${bytes(received(s.process))} in all`],
  ["sent", "To clients", (s) => rate(s.perSecond(s.entry, sent)), (s) => `${bytes(sent(s.process))} in all`],
  ["spliced", "Spliced", (s) => splicedShare(s), () => "of this second's bytes"],
  ["refused", "Refused", (s) => count(s.process.connections.refused), (s) => refused(s.process)],
  ["failures", "Failures of endpoints", (s) => count(s.process.counters.failures), () => "with removed endpoints"],
  ["lag", "Turns of loops", (s) => micro(Math.max(...s.process.loops.map((l) => l.lag_p99_us), 0)), (s) => `p99 of ${plural(s.process.loops.length, "loop", "loops")}`],
];

const limit = (most) => (most ? `of at most ${count(most)}` : "no limit");

function refused(p) {
  const worst = Object.entries(p.refused_by || {}).sort((a, b) => b[1] - a[1])[0];
  return worst ? `most by ${worst[0].replaceAll("_", " ")}` : "clients in all";
}

function splicedShare(s) {
  const all = s.change(s.entry, received) + s.change(s.entry, sent);
  return all ? share(s.change(s.entry, spliced) / all) : "–";
}

export class Overview {
  constructor(state) {
    this.state = state;
    this.charts = makeCharts();
    byId("problems-more").addEventListener("click", () => { this.expanded = !this.expanded; this.problems(state.problems); });
  }

  /** record keeps the values of an event for the charts. */
  record() {
    const s = this.state, at = s.at / 1000;
    s.entry = s.rows.process.get("");
    if (s.since) {
      const latency = connects(s);
      this.charts.throughput.add(at, [forwarded, spliced, copied].map((counter) => s.perSecond(s.entry, counter)));
      this.charts.latency.add(at, [latency.mean, latency.p99]);
    }
    this.charts.active.add(at, [s.process.connections.active]);
  }

  update() {
    const s = this.state;
    this.head(s.process);
    this.problems(s.problems);
    list(byId("tiles"), tiles, () => element("div", {}, element("dt"), element("dd"), element("dd", { className: "note" })), (node, [key, title, value, remark]) => {
      node.dataset.tile = key;
      text(node.children[0], title);
      text(node.children[1], value(s));
      text(node.children[2], remark(s));
    });
    for (const chart of Object.values(this.charts)) chart.show(s.endpoints.size > large ? 3 : 2);
  }

  head(p) {
    text(byId("state"), p.state);
    mark(byId("state"), "level", levels[p.state] || "off");
    text(byId("generation"), String(p.generation));
    text(byId("uptime"), since(Math.max(this.state.at - Date.parse(p.started), 0) / 1000));
    text(byId("version"), p.version);
    if (byId("version").title !== p.version) byId("version").title = p.version;
    text(byId("pid"), String(p.pid));
    text(byId("foot"), `As of ${clock(this.state.at, Date.now())}`);
    const title = this.state.problems.length ? `(${this.state.problems.length}) penstock` : "penstock";
    if (document.title !== title) document.title = title;
  }

  problems(all) {
    const most = this.expanded ? many : few;
    const shown = all.length > few ? all.slice(0, most) : all;
    const items = this.expanded && all.length > most ? [...shown, { severity: "warning", text: `and ${count(all.length - most)} more: see the tables, or penstock status` }] : shown;
    list(byId("problems"), items, () => element("li", {}, element("b"), element("span"), element("time")), (node, p) => {
      mark(node, "level", p.severity === "outage" ? "down" : "warning");
      text(node.children[0], p.severity);
      text(node.children[1], p.text);
      text(node.children[2], p.since ? `since ${clock(p.since, this.state.at)}` : "");
    });
    const more = byId("problems-more"), need = all.length > few;
    if (more.hidden === need) more.hidden = !need;
    text(more, this.expanded ? "Show fewer" : `Show all ${count(all.length)} problems`);
    if (more.getAttribute("aria-expanded") !== String(Boolean(this.expanded))) more.setAttribute("aria-expanded", String(Boolean(this.expanded)));
  }
}
