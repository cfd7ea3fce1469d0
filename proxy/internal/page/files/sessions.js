// The sessions. The server selects and sorts them, and the page gets at most a hundred.
import { byId, element, mark, text } from "./dom.js";
import { bytes, plural, since } from "./format.js";
import { get } from "./request.js";
import { received, sent } from "./state.js";
import { shown, Table } from "./table.js";

const top = 100;
const pause = 5000; // milliseconds between two lists
const typing = 400; // milliseconds after the last key until a typed filter is used
const states = ["", "preread", "dialing", "waiting", "responding", "joined", "client-ended", "endpoint-ended", "ending"];
const verdicts = ["", "any", "client", "client_network", "endpoint", "endpoint_network", "proxy", "limit", "idle", "unknown"];
const orders = ["bytes", "age", "idle", "in", "out", "client", "listener", "upstream", "endpoint", "state"];
const filters = [
  ["listener", "listener"], ["upstream", "upstream"], ["endpoint", "endpoint"],
  ["source", "source", "10.0.0.0/8"], ["older", "older than", "10m"], ["idle", "idle for", "1m"], ["state", "state", states],
  ["verdict", "verdict", verdicts], ["sort", "sort by", orders],
];

export class Sessions {
  constructor() {
    this.table = new Table(byId("t-sessions"), {
      name: "sessions", label: "Sessions", key: (s) => s.client, empty: "no session matches",
      columns: [
        { key: "client", title: "client", flex: [1.6, 150], sort: true, fill: shown((s) => s.client) },
        { key: "listener", title: "listener", flex: [1, 70], sort: true, fill: shown((s) => s.listener) },
        { key: "upstream", title: "upstream", flex: [1, 70], sort: true, fill: shown((s) => s.upstream || "–") },
        { key: "endpoint", title: "endpoint", flex: [1.2, 90], sort: true, fill: shown((s) => s.name || s.endpoint || "–") },
        { key: "state", title: "state", flex: [0, 110], sort: true, fill: shown((s) => s.state) },
        { key: "verdict", title: "verdict", flex: [0, 110], fill: shown((s) => (s.verdict || "").replace("_", " ")) },
        { key: "age", title: "age", flex: [0, 80], sort: true, number: true, fill: shown((s) => since(s.age_us / 1e6)) },
        { key: "idle", title: "idle", flex: [0, 80], sort: true, number: true, fill: shown((s) => (s.idle_us === undefined ? "–" : since(s.idle_us / 1e6))) },
        { key: "in", title: "from client", flex: [0, 80], sort: true, number: true, fill: shown((s) => bytes(received(s))) },
        { key: "out", title: "to client", flex: [0, 80], sort: true, number: true, fill: shown((s) => bytes(sent(s))) },
      ],
    });
    this.table.onSort = (key) => { byId("f-sort").value = key; this.load(); };
    byId("filters").append(...filters.map((f) => this.filter(...f)));
    byId("sessions-refresh").addEventListener("click", () => this.load());
    byId("sessions-clear").addEventListener("click", () => { this.set({}); });
    new IntersectionObserver(([entry]) => { this.seen = entry.isIntersecting; if (this.seen) this.load(); }).observe(byId("sessions"));
    // Wait for a list that takes longer than the pause: another request would cancel it, and no list would ever come.
    setInterval(() => { if (this.seen && !document.hidden && !this.asked) this.load(); }, pause);
  }

  filter(name, title, options) {
    const id = `f-${name}`;
    const input = Array.isArray(options)
      ? element("select", { id }, ...options.map((o) => element("option", { value: o, textContent: o.replace("_", " ") || (name === "verdict" ? "not asked" : "any") })))
      : element("input", { id, type: "text", placeholder: options || "any", autocomplete: "off", spellcheck: false });
    input.addEventListener("change", () => this.load());
    input.addEventListener("input", () => { clearTimeout(this.typed); this.typed = setTimeout(() => this.load(), typing); });
    return element("label", { for: id }, element("span", { textContent: title }), input);
  }

  /** set replaces the values of all filters. */
  set(values) {
    for (const [name] of filters) if (name !== "sort") byId(`f-${name}`).value = values[name] || "";
    this.load();
  }

  query() {
    const q = { top };
    for (const [name] of filters) if (byId(`f-${name}`).value.trim()) q[name] = byId(`f-${name}`).value.trim();
    return q;
  }

  /** load asks for the sessions. An answer to an earlier question is not shown. */
  async load() {
    clearTimeout(this.typed);
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    const error = byId("sessions-error");
    try {
      const answer = await get("sessions", this.query(), { signal: asked.signal });
      error.hidden = true;
      this.show(answer);
    } catch (e) {
      if (e.name === "AbortError") return;
      text(error, e.message);
      error.hidden = false;
      this.table.show([]); // they belong to another filter
      text(byId("sessions-count"), "");
      mark(byId("t-sessions"), "loaded", "");
    } finally {
      if (this.asked === asked) this.asked = null;
    }
  }

  show(answer) {
    const n = answer.sessions.length;
    text(byId("sessions-count"), answer.more ? `the first ${n}` : plural(n, "session", "sessions"));
    mark(byId("t-sessions"), "loaded", String(n));
    this.table.show(answer.sessions);
  }
}
