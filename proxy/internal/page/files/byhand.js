// Changes by hand to endpoints, listeners and splits, and denied sources, with their authors.
import { byId, element, list, mark, text } from "./dom.js";
import { clock, count } from "./format.js";
import { ask, attempt, get, post, say } from "./request.js";

const pause = 5000; // milliseconds between two requests for the denials
const most = 100; // rows

export class ByHand {
  constructor(state) {
    this.state = state;
    this.denied = [];
    new IntersectionObserver(([entry]) => { this.seen = entry.isIntersecting; if (this.seen) this.load(); }).observe(byId("hand"));
    setInterval(() => { if (this.seen && !document.hidden) this.load(); }, pause);
    this.load();
  }

  /** load asks for the denials. */
  async load() {
    try {
      this.denied = (await get("denied")).denied || [];
      byId("hand-error").hidden = true;
      this.update();
    } catch (error) {
      text(byId("hand-error"), `The denials are unknown: ${error.message}`);
      byId("hand-error").hidden = false;
    }
  }

  update() {
    if (!this.state.process) return;
    const now = this.state.at;
    const denials = this.denied.filter((d) => Date.parse(d.until) > now);
    const rows = [
      ...denials.map((d) => ({ what: `${d.source} is denied ${at(d)}${d.waits ? ` (${d.waits})` : ""}`, by: d.by, since: d.since, until: d.until, denial: d })),
      ...(this.state.process.live || []).map((c) => ({ what: c.waits ? `${c.what} (${c.waits})` : c.what, by: c.by, since: c.since })),
    ];
    text(byId("hand-count"), rows.length ? `${count(rows.length)}${rows.length > most ? `, the first ${most}` : ""}` : "nothing");
    list(byId("hands").tBodies[0], rows.slice(0, most), () => this.row(), (row, r) => {
      mark(row, "source", r.denial?.source);
      row.denial = r.denial;
      text(row.children[0], r.what);
      text(row.children[1], r.by || "–");
      text(row.children[2], clock(r.since, now));
      text(row.children[3], r.until ? clock(r.until, now) : "–");
      const button = row.children[4].firstElementChild;
      if (button.hidden === Boolean(r.denial)) button.hidden = !r.denial;
      if (r.denial && button.title !== `Remove the denial of ${r.denial.source}`) button.title = `Remove the denial of ${r.denial.source}`;
    });
    byId("hands").hidden = rows.length === 0;
  }

  row() {
    const button = element("button", { type: "button", textContent: "Remove…", hidden: true });
    const cell = (title) => element("td", { data: { title } });
    const row = element("tr", {}, cell(""), cell("by"), cell("since"), cell("until"), element("td", {}, button));
    button.addEventListener("click", () => attempt(button, () => this.remove(row.denial)));
    return row;
  }

  async remove(d) {
    if (!await ask(`Remove the denial of ${d.source}?`, `Its clients are no longer refused ${at(d)}.`, "Remove")) return;
    await post("deny/remove", d.listener ? { source: d.source, listener: d.listener } : { source: d.source });
    say(`${d.source} is no longer denied ${at(d)}.`);
    await this.load();
  }
}

const at = (d) => (d.listener ? `at listener ${d.listener}` : "at all listeners");
