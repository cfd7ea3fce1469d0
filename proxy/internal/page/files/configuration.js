// Generations, their confirmation and rollback, and the file on disk.
import { byId, cells, element, list, mark, text } from "./dom.js";
import { clock, count, plural, since } from "./format.js";
import { ask, attempt, get, post, say } from "./request.js";

const unknown = "Compares the file with the configuration in force, and changes nothing.";

const titles = ["", "state", "since", "by", "changes", "reason"];

const shown = 3; // changes in the row of a generation; the title has all changes

export class Configuration {
  constructor(state) {
    this.state = state;
    this.seen = "";
    const on = (id, action) => byId(id).addEventListener("click", () => attempt(byId(id), action));
    on("confirm", () => this.confirm());
    on("pending-confirm", () => this.confirm());
    on("rollback", () => this.rollback());
    on("pending-rollback", () => this.rollback());
    on("plan", () => this.plan());
    on("reload", () => this.reload());
  }

  update() {
    const p = this.state.process;
    this.pending(p.pending);
    const now = JSON.stringify([p.generation, p.pending?.generation, p.started]);
    if (this.seen !== now) {
      if (this.seen) this.forget();
      this.seen = now;
      this.load();
    }
  }

  pending(w) {
    byId("pending").hidden = !w;
    byId("confirm").disabled = !w;
    if (!w) return;
    const left = Math.max(Date.parse(w.until) - this.state.at, 0) / 1000;
    text(byId("pending-title"), `Generation ${w.generation} waits to be confirmed`);
    const bound = w.rollback_if ? `, or if ${w.rollback_if} (it has risen by ${count(w.increase)})` : "";
    text(byId("pending-text"), `It will be rolled back in ${since(Math.floor(left))}${bound}.`);
  }

  async load() {
    const g = await get("generations").catch((error) => (say(error.message, "down"), null));
    if (!g) return;
    this.generations = g;
    byId("rollback").disabled = !g.previous;
    list(byId("generations").tBodies[0], g.history, cells(titles), (row, r) => {
      mark(row, "generation", String(r.generation));
      mark(row, "level", { current: "ok", pending: "warning", "rolled back": "down" }[r.state] || "off");
      [String(r.generation), r.state, clock(r.at, Date.now()), r.by || "", few(r.changes), r.why || ""].forEach((value, i) => text(row.children[i], value));
      row.children[4].title = r.changes.join("\n");
    });
  }

  async confirm() {
    const { generation } = await post("confirm", { generation: this.state.process.pending.generation });
    say(`Generation ${generation} is confirmed.`);
    await this.load();
  }

  async rollback() {
    const { current, previous } = this.generations;
    if (!await ask("Roll back?", `Generation ${current} is rolled back, and generation ${previous} is in force again. Sessions continue.`, `Roll back to ${previous}`)) return;
    const { generation } = await post("rollback", { to: previous });
    say(`Generation ${generation} is in force again.`);
    await this.load();
  }

  /** forget removes a comparison with an earlier generation. */
  forget() {
    byId("reload").disabled = true;
    mark(byId("plan-note"), "level", "");
    text(byId("plan-note"), unknown);
    list(byId("changes"), [], () => element("li"), () => {});
  }

  /** plan compares the file, and returns its number of changes, or null if the file cannot be used. */
  async plan() {
    const plan = await post("plan").catch((error) => {
      byId("reload").disabled = true;
      text(byId("plan-note"), `At ${clock(Date.now(), Date.now())}: ${error.message}`);
      mark(byId("plan-note"), "level", "down");
      list(byId("changes"), [], () => element("li"), () => {});
    });
    if (!plan) return null;
    const n = plan.changes.length;
    byId("reload").disabled = n === 0;
    mark(byId("plan-note"), "level", "");
    text(byId("plan-note"), `At ${clock(Date.now(), Date.now())}, ${plan.path}: ${n ? plural(n, "change", "changes") : "no change"} against generation ${plan.generation}, with ${plural(plan.connections, "connection", "connections")} then.`);
    list(byId("changes"), plan.changes, () => element("li", {}, element("span"), element("small")), (node, c) => {
      mark(node, "level", { reset: "down", drain: "warning" }[c.fate]);
      text(node.children[0], c.what);
      text(node.children[1], fate(c));
    });
    return n;
  }

  async reload() {
    const n = await this.plan(); // the file may have changed meanwhile
    if (!n) return;
    if (!await ask("Reload?", `${plural(n, "change", "changes")} of the file ${n === 1 ? "comes" : "come"} into force, and ${n === 1 ? "is" : "are"} rolled back in 2 minutes unless you confirm.`, "Reload")) return;
    const { generation, pending } = await post("reload", { confirm: "2m" });
    say(pending ? `Generation ${generation} is in force, and waits to be confirmed.` : `The configuration is unchanged: generation ${generation} stays in force.`);
    await this.load();
  }
}

/** few joins the first lines, and counts the others. */
function few(lines) {
  const more = lines.length - shown;
  return lines.slice(0, shown).join("; ") + (more > 0 ? `; ${more} more` : "");
}

/** fate says what happens to the connections that a change affects. */
function fate(c) {
  const drains = c.draining ? `${plural(c.draining, "connection drains", "connections drain")} already` : "";
  if (!c.connections) return drains;
  return [fateOfOthers(c), drains].filter(Boolean).join(", ");
}

/** fateOfOthers is fate for the connections that do not drain already. */
function fateOfOthers(c) {
  const of = plural(c.connections, "connection", "connections");
  if (c.fate === "drain") return `${of} may last for ${since((c.reset_after_us || 0) / 1e6)}`;
  return c.fate === "reset" ? `${of} end at once` : `${of} go on`;
}
