// Latency of the connections made between two events.

/** bounds are the upper bounds of the buckets, in microseconds. The last bucket has none. */
export const bounds = [1000, 5000, 20000, 100000, 500000, 1500000, 5000000, 15000000];

/** connects returns how many connections all upstreams have made since the event before, their mean time, and the bound
 * within which 99 % of them were made; both in microseconds, and null without a connection. */
export function connects(state) {
  let made = 0, us = 0;
  const buckets = new Array(bounds.length + 1).fill(0);
  for (const entry of state.rows.upstreams.values()) {
    if (state.change(entry, (u) => u.connects.made) === 0) continue;
    made += state.change(entry, (u) => u.connects.made);
    us += state.change(entry, (u) => u.connects.sum_us);
    buckets.forEach((_, i) => { buckets[i] += state.change(entry, (u) => u.connects.buckets[i]); });
  }
  if (made === 0) return { made, mean: null, p99: null };
  return { made, mean: us / made, p99: within(buckets, 0.99) };
}

function within(buckets, part) {
  const all = buckets.reduce((sum, n) => sum + n, 0);
  let sum = 0;
  const i = buckets.findIndex((n) => (sum += n) >= part * all);
  return bounds[Math.min(Math.max(i, 0), bounds.length - 1)];
}
