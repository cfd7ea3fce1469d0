// Shares of verdicts: the causes that limited sessions.
import { byId, cells, element, list, mark, text } from "./dom.js";
import { clock, plural, share } from "./format.js";
import { attempt, get } from "./request.js";

const kinds = ["client", "client_network", "endpoint", "endpoint_network", "proxy", "limit", "idle", "unknown"];
const words = (kind) => kind.replace("_", " ");
const memory = 300; // seconds

/** limited adds up the seconds of all listeners by verdict. */
function limited(state) {
  const sum = Object.fromEntries(kinds.map((k) => [k, 0]));
  for (const { row } of state.rows.listeners.values()) {
    for (const [kind, seconds] of Object.entries(row.limited_seconds || {})) sum[kind] += seconds;
  }
  return sum;
}

const shares = (of) => {
  const all = kinds.reduce((sum, k) => sum + of[k], 0);
  return Object.fromEntries(kinds.map((k) => [k, all ? of[k] / all : null]));
};

export class Verdicts {
  constructor(state) {
    this.state = state;
    this.history = [];
    byId("why").addEventListener("click", () => attempt(byId("why"), () => this.look()));
  }

  update() {
    const now = limited(this.state);
    if (this.history.length && kinds.some((k) => now[k] < this.history.at(-1).of[k])) this.history = []; // a listener was removed, or this is another process
    this.history.push({ at: this.state.at, of: now });
    while (this.history.length > 1 && this.history[0].at < this.state.at - memory * 1000) this.history.shift();
    const first = this.history[0].of;
    const recent = shares(Object.fromEntries(kinds.map((k) => [k, now[k] - first[k]])));
    const ever = shares(now);
    this.draw(recent.idle === null ? ever : recent, recent, ever);
  }

  draw(bar, recent, ever) {
    const part = (x) => (x === null ? "–" : share(x));
    list(byId("shares"), kinds, () => element("i"), (node, kind) => {
      node.dataset.verdict = kind;
      const width = `${(100 * (bar[kind] || 0)).toFixed(1)}%`;
      if (node.style.width !== width) node.style.width = width;
    });
    list(byId("verdicts").tBodies[0], kinds, cells(["", "", ""]), (row, kind) => {
      mark(row, "verdict", kind);
      text(row.children[0], words(kind));
      text(row.children[1], part(recent[kind]));
      text(row.children[2], part(ever[kind]));
    });
  }

  /** look asks what limits the sessions that run now. */
  async look() {
    text(byId("advice"), "Measures the running sessions for a second …");
    const why = await get("why", { for: "1s" });
    const of = kinds.map((k) => [k, why.shares?.[k] || 0]).filter(([, x]) => x >= 0.005).sort((a, b) => b[1] - a[1]);
    const parts = of.map(([k, x]) => `${words(k)} ${share(x)}`).join(", ");
    const at = clock(Date.now(), Date.now());
    const advice = why.advice ? `${why.advice[0].toUpperCase()}${why.advice.slice(1)}` : "";
    const m = why.most;
    const most = m ? ` ${m.name || m.endpoint ? `Endpoint ${m.name || m.endpoint} of ${m.upstream}` : `Upstream ${m.upstream}`}: ${m.limited} of ${m.sessions} sessions, ${share(m.share)} of that time.` : "";
    text(byId("advice"), why.count ? `At ${at}, ${plural(why.count, "running session", "running sessions")}: ${parts}.${most} ${advice}` : `At ${at}, no session was connected to an endpoint.`);
  }
}
