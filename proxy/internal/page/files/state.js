// The state of the process, from the events that docs/api.md describes.

/** Indexes of the numbers of an endpoint in an event, by the names that the server gives them. */
export const N = {};
const engines = ["spliced", "copied", "lane"];
export const bytesIn = engines.map((engine) => `bytes.client_to_endpoint.${engine}`);
export const bytesOut = engines.map((engine) => `bytes.endpoint_to_client.${engine}`);
let width = 0; // how many there are

/** turn is how many endpoints have numbers in an event. */
const turn = 1000;

/** An Endpoint has its row and its numbers, and the numbers' change in the last event that had them. */
class Endpoint {
  constructor(number) {
    this.number = number;
    this.now = new Float64Array(width);
    this.change = new Float64Array(width);
    this.at = 0; // milliseconds; 0 without numbers
    this.took = 0; // milliseconds that the change took; 0 if unknown
    this.event = 0;
    this.answer = 0; // mean microseconds to the first answers, in the last event with answers; 0 without one
    this.waits = -1; // share of ended sessions' time that was lost to the endpoint, in the last event with ended sessions; -1 without one
  }

  /** take takes new numbers. They changed within the last most milliseconds, because unchanged numbers are not sent. */
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
    if (c[N["answers.made"]]) this.answer = c[N["answers.sum_us"]] / c[N["answers.made"]];
    if (c[N.limited_ms]) this.waits = Math.min(c[N.waited_ms] / c[N.limited_ms], 1);
  }
}

export class State {
  constructor() {
    this.event = 0;
    this.clear();
  }

  clear() {
    this.rows = { process: new Map(), problems: new Map(), listeners: new Map(), upstreams: new Map() };
    this.before = null; // the process in the previous event
    this.endpoints = new Map();
    this.at = 0;
    this.since = 0; // milliseconds since the previous event; 0 without one
    this.arranged = 0; // counts changes to the set of endpoints and to their rows
  }

  /** take takes an event. */
  take(kind, id, e) {
    if (kind === "state") {
      this.clear();
      e.number_names.forEach((name, i) => { N[name] = i; });
      width = e.number_names.length;
    }
    this.event = id;
    this.since = this.at ? e.at - this.at : 0;
    this.at = e.at;
    const turns = kind === "state" || e.rows.problems || e.gone || e.endpoints || e.endpoints_gone;
    this.urgent = Boolean(turns); // not only numbers have changed
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

  /** change returns how much a counter of a row has risen since the previous event. */
  change(entry, counter) {
    if (!entry || entry.event !== this.event || !entry.before) return 0;
    return Math.max(counter(entry.row) - counter(entry.before), 0);
  }

  /** perSecond is change, divided by the seconds. */
  perSecond(entry, counter) { return this.since ? (this.change(entry, counter) * 1000) / this.since : 0; }

  /** turns is how many events it takes until each endpoint has had its turn. */
  turns() { return Math.max(Math.ceil(this.endpoints.size / turn), 1); }

  /** endpointRate returns how much numbers of an endpoint, by their names, rise in a second. */
  endpointRate(e, ...of) {
    if (!e.took || this.event - e.event >= this.turns()) return 0;
    return (of.reduce((sum, name) => sum + e.change[N[name]], 0) * 1000) / e.took;
  }
}

const all = (by) => engines.reduce((sum, engine) => sum + (by[engine] || 0), 0);

/** spliced, copied, forwarded (in the lane), received and sent return bytes of a row. */
export const spliced = (row) => row.bytes.client_to_endpoint.spliced + row.bytes.endpoint_to_client.spliced;
export const copied = (row) => row.bytes.client_to_endpoint.copied + row.bytes.endpoint_to_client.copied;
export const forwarded = (row) => (row.bytes.client_to_endpoint.lane || 0) + (row.bytes.endpoint_to_client.lane || 0);
export const received = (row) => all(row.bytes.client_to_endpoint);
export const sent = (row) => all(row.bytes.endpoint_to_client);

/** follow takes the server's events as long as the page is open, and calls change after each. */
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
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(state, change, level), 2000); // the request was refused
  });
}
