// Numbers and times as texts, as the program's commands write them.

/** bytes writes a number of bytes with three digits, in decimal units. */
export function bytes(n) {
  if (n < 1000) return `${Math.round(n)} B`;
  let unit = "";
  for (unit of ["kB", "MB", "GB", "TB", "PB", "EB"]) {
    n /= 1000;
    if (n < 999.5) break;
  }
  return `${n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0)} ${unit}`;
}

/** rate writes bytes per second. */
export const rate = (n) => `${bytes(Math.round(n))}/s`;

/** count writes a whole number in groups of three digits. */
export const count = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** share writes a part of 1 as a percentage. */
export const share = (x) => (x > 0 && x < 0.001 ? "< 0.1 %" : `${(100 * x).toFixed(1)} %`);

/** micro writes microseconds. */
export function micro(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  const ms = us / 1000;
  if (ms < 1000) return `${ms.toFixed(ms < 9.95 ? 1 : 0)} ms`;
  return since(ms / 1000);
}

/** since writes seconds as the two largest units. */
export function since(s) {
  if (s < 10) return `${s.toFixed(1)} s`;
  s = Math.floor(s);
  const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const i = parts.findIndex(([of]) => s >= of);
  const [of, unit] = parts[i];
  const rest = parts[i + 1] ? Math.floor((s % of) / parts[i + 1][0]) : 0;
  return rest ? `${Math.floor(s / of)} ${unit} ${rest} ${parts[i + 1][1]}` : `${Math.floor(s / of)} ${unit}`;
}

/** clock writes a time of day, with its date if it is not today. */
export function clock(at, now) {
  const t = new Date(at);
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
  const day = `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
  return Math.abs(t - now) < 12 * 3600 * 1000 ? time : `${day} ${time}`;
}

/** plural writes a count of things. */
export const plural = (n, one, more) => `${count(n)} ${n === 1 ? one : more}`;
