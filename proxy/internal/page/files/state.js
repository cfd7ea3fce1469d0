// The state of the process as far as the events have it, see docs/api.md.

/** Indexes of the numbers of an endpoint in an event. */
export const N = { active: 0, total: 1, failures: 2, made: 3, us: 4, inSpliced: 5, inCopied: 6, outSpliced: 7, outCopied: 8, answers: 9, answersUs: 10, judgedMs: 11, lostMs: 12 };
const width = 13;

/** turn is for how many endpoints an event has numbers. */
const turn = 1000;

/** An Endpoint is its row and its numbers, with the change of those in the last event that had them. */
class Endpoint {
  constructor(number) {
    this.number = number;
    this.now = new Float64Array(width);
    this.change = new Float64Array(width);
    this.at = 0; // milliseconds; 0: no numbers yet
    this.took = 0; // milliseconds of the change; 0: unknown
    this.event = 0;
    this.answer = 0; // microseconds to the first answers, the mean of the last event with some; 0: there was none
    this.waits = -1; // the share of the time of sessions that was lost to it, of the last event with some that ended; -1: likewise
  }

  /** take brings numbers in. Those before are of an event at most so many milliseconds ago, if they were other ones. */
  take(numbers, from, at, event, most) {
    for (let i = 0; i < width; i++) {
      const value = numbers[from + i];
      this.change[i] = Math.max(value - this.now[i], 0);
      this.now[i] = value;
    }
    this.took = this.at ? Math.min(at - this.at, most) : 0;
    this.at = at;
    this.event = event;
    const c = this.change;
    if (c[N.answers]) this.answer = c[N.answersUs] / c[N.answers];
    if (c[N.judgedMs]) this.waits = Math.min(c[N.lostMs] / c[N.judgedMs], 1);
  }
}

export class State {
  constructor() {
    this.event = 0;
    this.clear();
  }

  clear() {
    this.rows = { process: new Map(), problems: new Map(), listeners: new Map(), upstreams: new Map() };
    this.before = null; // the process of the event before
    this.endpoints = new Map();
    this.at = 0;
    this.since = 0; // milliseconds since the event before; 0: there was none
    this.arranged = 0; // counts changes of the set of endpoints, and of their rows
  }

  /** take brings an event in. */
  take(kind, id, e) {
    if (kind === "state") this.clear();
    this.event = id;
    this.since = this.at ? e.at - this.at : 0;
    this.at = e.at;
    const turns = kind === "state" || e.rows.problems || e.gone || e.endpoints || e.endpoints_gone;
    this.urgent = Boolean(turns); // more than numbers has changed
    this.takeRows(e);
    this.takeEndpoints(e);
  }

  takeRows(e) {
    for (const [kind, rows] of Object.entries(e.rows)) {
      for (const [name, row] of Object.entries(rows)) {
        const before = this.rows[kind].get(name);
        this.rows[kind].set(name, { row, before: before ? before.row : null, event: this.event });
      }
    }
    for (const [kind, names] of Object.entries(e.gone || {})) for (const name of names) this.rows[kind].delete(name);
  }

  takeEndpoints(e) {
    for (const [number, row] of Object.entries(e.endpoints || {})) {
      const n = Number(number);
      if (!this.endpoints.has(n)) this.endpoints.set(n, new Endpoint(n));
      this.endpoints.get(n).row = row;
      this.arranged++;
    }
    for (const n of e.endpoints_gone || []) {
      this.endpoints.delete(n);
      this.arranged++;
    }
    const numbers = e.numbers || [];
    const most = this.turns() * this.since;
    for (let i = 0; i < numbers.length; i += width + 1) {
      this.endpoints.get(numbers[i])?.take(numbers, i + 1, e.at, this.event, most);
    }
  }

  get process() { return this.rows.process.get("")?.row; }

  get problems() { return this.rows.problems.get("")?.row || []; }

  /** change returns by how much a counter of a row has risen since the event before. */
  change(entry, counter) {
    if (!entry || entry.event !== this.event || !entry.before) return 0;
    return Math.max(counter(entry.row) - counter(entry.before), 0);
  }

  /** perSecond is change for one second. */
  perSecond(entry, counter) { return this.since ? (this.change(entry, counter) * 1000) / this.since : 0; }

  /** turns is in how many events each endpoint has its turn. */
  turns() { return Math.max(Math.ceil(this.endpoints.size / turn), 1); }

  /** endpointRate returns by how much numbers of an endpoint rise in a second. */
  endpointRate(e, ...of) {
    if (!e.took || this.event - e.event >= this.turns()) return 0;
    return (of.reduce((sum, i) => sum + e.change[i], 0) * 1000) / e.took;
  }
}

/** spliced, copied and moved return bytes of a row. */
export const spliced = (row) => row.bytes.client_to_endpoint.spliced + row.bytes.endpoint_to_client.spliced;
export const copied = (row) => row.bytes.client_to_endpoint.copied + row.bytes.endpoint_to_client.copied;
export const received = (row) => row.bytes.client_to_endpoint.spliced + row.bytes.client_to_endpoint.copied;
export const sent = (row) => row.bytes.endpoint_to_client.spliced + row.bytes.endpoint_to_client.copied;

/** follow takes the events of the server in, for as long as the page is there, and calls change after each. */
export function follow(state, change, level) {
  const source = new EventSource("/v1/events");
  const take = (kind) => (message) => {
    state.take(kind, Number(message.lastEventId), JSON.parse(message.data));
    level("ok");
    change();
  };
  source.addEventListener("state", take("state"));
  source.addEventListener("changes", take("changes"));
  source.addEventListener("error", () => {
    level("down");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(state, change, level), 2000); // it was refused
  });
}
