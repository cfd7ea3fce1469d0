// Charts of the last five minutes.
import { byId, element, list, text } from "./dom.js";
import { count, micro, rate } from "./format.js";

/* global uPlot */

const window_ = 300; // seconds
const most = 2 * window_;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A Chart shows series over time. */
class Chart {
  constructor(id, series, format, { log = false } = {}) {
    Object.assign(this, { id, series, format, log, data: [[], ...series.map(() => [])], parent: byId(id) });
    this.legend = byId(`${id}-legend`);
    this.make();
    window.addEventListener("theme", () => this.make());
    new ResizeObserver(() => this.fit()).observe(this.parent);
    this.seen = true;
    new IntersectionObserver(([entry]) => { this.seen = entry.isIntersecting; if (this.seen) this.draw(); }).observe(this.parent);
  }

  size() { return { width: Math.max(this.parent.clientWidth, 100), height: Math.max(this.parent.clientHeight, 80) }; }

  make() {
    this.plot?.destroy();
    const axis = { stroke: colour("--muted"), font: `11px ${colour("--font")}`, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const now = Math.floor(Date.now() / 1000);
    this.plot = new uPlot({
      ...this.size(), legend: { show: false }, padding: [8, 14, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { range: () => [this.last() - window_, this.last()] },
        y: this.log ? { distr: 3, log: 10 } : { range: (u, low, high) => [0, high > 0 ? high * 1.15 : 1] },
      },
      axes: [
        { ...axis, size: 22, gap: 2, space: 70, values: (u, ticks) => ticks.map((t) => this.ago(t)), splits: () => this.ticks() },
        { ...axis, size: 62, gap: 4, space: 30, values: (u, ticks) => ticks.map((v) => (v === null ? "" : this.format(v))) },
      ],
      series: [{}, ...this.series.map((s) => ({
        label: s.label, stroke: colour(s.colour), width: 1.5, points: { show: false }, dash: s.dash,
        fill: s.fill ? colour(s.fill) : undefined, scale: "y",
      }))],
      hooks: { setCursor: [(u) => this.point(u.cursor.idx)] },
    }, this.drawn(), this.parent);
    this.point(null);
  }

  last() { return this.data[0].at(-1) ?? Date.now() / 1000; }

  ticks() { return [4, 3, 2, 1, 0].map((minutes) => this.last() - 60 * minutes); }

  ago(t) {
    const minutes = Math.round((this.last() - t) / 60);
    return minutes === 0 ? "now" : `−${minutes} m`;
  }

  /** drawn returns the data to draw: each stacked series stands on the series after it. */
  drawn() {
    if (!this.series.some((s) => s.stacked)) return this.data;
    const [times, ...values] = this.data;
    const sums = values.map((v) => v.slice());
    for (let i = sums.length - 2; i >= 0; i--) {
      if (this.series[i].stacked) sums[i] = sums[i].map((v, j) => (v ?? 0) + (sums[i + 1][j] ?? 0));
    }
    return [times, ...sums];
  }

  /** add adds a value of each series at a time in seconds. */
  add(at, values) {
    this.data[0].push(at);
    values.forEach((v, i) => this.data[i + 1].push(v));
    if (this.data[0].length > most) for (const d of this.data) d.splice(0, d.length - most + window_ / 10);
  }

  draw() { this.plot.setData(this.drawn()); }

  /** show shows the last values. It draws every pause-th time: a second is about a pixel. */
  show(pause) {
    this.times = (this.times ?? -1) + 1;
    if (this.times % pause === 0 && this.seen && !document.hidden) this.draw();
    this.point(this.plot.cursor.idx);
  }

  fit() {
    const { width, height } = this.size();
    if (this.plot.width !== width || this.plot.height !== height) this.plot.setSize({ width, height });
  }

  /** point shows the values at a place, or else the last values. */
  point(index) {
    const i = index ?? this.data[0].length - 1;
    list(this.legend, this.series, () => element("li", {}, element("i"), element("span"), element("b")), (node, s) => {
      const value = this.data[this.series.indexOf(s) + 1][i];
      node.children[0].style.background = colour(s.colour);
      text(node.children[1], s.label);
      text(node.children[2], value === undefined || value === null ? "–" : this.format(value));
      node.dataset.series = s.key;
    });
  }
}

/** makeCharts returns the charts of the page. */
export function makeCharts() {
  return {
    throughput: new Chart("throughput", [
      { key: "lane", label: "lane", colour: "--accent", fill: "--accent-fill", stacked: true },
      { key: "spliced", label: "spliced", colour: "--spliced", fill: "--spliced-fill", stacked: true },
      { key: "copied", label: "copied", colour: "--copied", fill: "--copied-fill" },
    ], rate),
    active: new Chart("active", [{ key: "active", label: "now", colour: "--accent", fill: "--accent-fill" }], (v) => count(Math.round(v))),
    latency: new Chart("latency", [
      { key: "mean", label: "mean", colour: "--accent" },
      { key: "p99", label: "p99", colour: "--copied", dash: [4, 3] },
    ], micro),
  };
}
