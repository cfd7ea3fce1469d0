// Actions on an endpoint during an incident: drain it, make it ready again, end its sessions. Each asks first.
import { byId, text } from "./dom.js";
import { clock, count, plural } from "./format.js";
import { N } from "./state.js";
import { ask, attempt, post, say } from "./request.js";

/** out are the states of an endpoint that was taken out by hand or by a reload. */
const out = ["draining", "maint", "removed"];

export class Actions {
  constructor(state) {
    this.state = state;
    const on = (id, action) => byId(id).addEventListener("click", () => {
      byId("one").close();
      attempt(byId(id), () => action.call(this, this.endpoint));
    });
    on("one-drain", this.drain);
    on("one-ready", this.ready);
    on("one-end", this.end);
    byId("one-close").addEventListener("click", () => byId("one").close());
  }

  /** open shows an endpoint with its buttons. */
  open(e) {
    this.endpoint = e;
    const { row } = e;
    text(byId("one-title"), `Endpoint ${title(row)}`);
    const until = row.until && row.level !== "ok" ? `until ${clock(row.until, this.state.at)}` : "";
    const facts = {
      address: row.address, state: [row.state, until].filter(Boolean).join(" "), cause: row.why, "by hand": (row.by_hand || []).join(", "), sessions: count(e.now[N.active]),
    };
    for (const [name, value] of Object.entries(facts)) {
      const node = byId(`one-${name.replace(" ", "-")}`);
      text(node, value || "–");
    }
    byId("one-drain").disabled = out.includes(row.state);
    byId("one-ready").disabled = !out.includes(row.state);
    byId("one").showModal();
  }

  /** others counts the other endpoints of an upstream that take clients. */
  others(e) {
    const takes = (o) => o !== e && o.row.upstream === e.row.upstream && (o.row.level === "ok" || o.row.level === "warning");
    return [...this.state.endpoints.values()].filter(takes).length;
  }

  async drain(e) {
    const left = this.others(e);
    const rest = left ? `${plural(left, "other endpoint takes", "other endpoints take")} clients of ${e.row.upstream}.` : `No other endpoint of ${e.row.upstream} takes clients: the upstream would have none.`;
    const sessions = e.now[N.active] ? ` Its ${plural(e.now[N.active], "session continues", "sessions continue")} for at most the upstream's drain_timeout.` : "";
    if (!await ask(`Drain ${title(e.row)}?`, `It gets no more clients.${sessions}\n${rest}`, "Drain")) return;
    this.changed(e, await post("endpoint/drain", named(e.row)));
  }

  async ready(e) {
    if (!await ask(`${title(e.row)} ready?`, "It gets clients again, if its checks allow it.", "Ready")) return;
    this.changed(e, await post("endpoint/ready", named(e.row)));
  }

  changed(e, { from, to, taking, others, unkept }) {
    const kept = unkept ? `\nKept over reloads, lost at a restart (${unkept}).` : "";
    const left = taking ? `${plural(taking, "endpoint", "endpoints")} of ${e.row.upstream} ${taking === 1 ? "takes" : "take"} clients` : `No endpoint of ${e.row.upstream} takes clients now${others ? `: ${others}` : ""}`;
    say(`${title(e.row)}: ${from} → ${to}. ${left}.${kept}`);
  }

  async end(e) {
    const { touched } = await post("sessions/end", { ...named(e.row), dry_run: true });
    if (!touched) return say(`${title(e.row)} has no session.`);
    const what = plural(touched, "session", "sessions");
    const more = out.includes(e.row.state) ? "" : "\nIt is not drained: new clients come to it.";
    if (!await ask(`End ${what} of ${title(e.row)}?`, `Each session is reset once it is quiet. A session that is not quiet within 30 seconds continues.${more}`, `End ${what}`)) return;
    const result = post("sessions/end", named(e.row));
    say(`${what} of ${title(e.row)} end as they get quiet.`);
    const r = await result;
    const parts = [[r.ended, "ended"], [r.left, r.left === 1 ? "ended by itself" : "ended by themselves"], [r.kept, "were not quiet and continue"], [r.waiting, "wait for quiet"]];
    say(`${title(e.row)}: ${parts.filter(([n]) => n).map(([n, words]) => `${plural(n, "session", "sessions")} ${words}`).join(", ")}.`);
  }
}

const title = (row) => `${row.upstream}/${row.name}`;

const named = (row) => ({ upstream: row.upstream, endpoint: row.name });
