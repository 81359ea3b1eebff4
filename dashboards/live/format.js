// Numbers, times and names as text. Pure; everything that peers send passes through `text` or `number`.

const dash = '–';
const dayMs = 86_400_000;

/** A finite number within the bounds, or undefined. */
export function number(value, low = -1e15, high = 1e15) {
  return typeof value === 'number' && value >= low && value <= high ? value : undefined;
}

/** Text of a peer: no control characters (terminal codes, changes of direction), at most `length` letters. */
export function text(value, length = 160) {
  if (typeof value !== 'string') return '';
  const plain = value.slice(0, 4 * length)
    .replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029]+/gu, ' ').replace(/\p{M}{3,}/gu, '').trim();
  const letters = [...plain];
  return letters.length > length ? letters.slice(0, length - 1).join('') + '…' : plain;
}

/** The name of a peer in logs and metrics: the first eight digits of its identity. */
export const shortId = id => text(id, 200).slice(0, 8);

export function fixed(value, digits = 2) {
  if (value === undefined) return dash;
  if (value !== 0 && (Math.abs(value) < 10 ** -digits || Math.abs(value) >= 1e6)) return value.toExponential(digits);
  return value.toFixed(digits);
}

/** 950, 1.2k, 34k, 5.6M */
export function compact(value) {
  if (value === undefined) return dash;
  const units = ['', 'k', 'M', 'G', 'T'];
  let at = 0;
  let x = value;
  while (Math.abs(x) >= 999.5 && at + 1 < units.length) { x /= 1000; ++at; }
  return (Math.abs(x) < 10 && (at > 0 || x % 1 !== 0) ? x.toFixed(1) : x.toFixed(0)) + units[at];
}

/** Digits in groups: 12 345 */
export const whole = value => (value === undefined ? dash : Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f'));

export const bytes = value => (value === undefined ? dash : compact(value).replace(/^([\d.–-]+)/, '$1\u202f') + 'B');

/** A duration in milliseconds: <0.01 ms, 0.42 ms, 17 ms, 1.3 s, 4 min */
export function duration(ms) {
  if (ms === undefined) return dash;
  if (ms > 0 && ms < 0.005) return '<0.01\u202fms';
  if (ms < 0.995) return ms.toFixed(2) + '\u202fms';
  if (ms < 9.95) return ms.toFixed(1) + '\u202fms';
  if (ms < 999.5) return ms.toFixed(0) + '\u202fms';
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + '\u202fs';
  if (s < 100) return s.toFixed(0) + '\u202fs';
  if (s < 5400) return (s / 60).toFixed(0) + '\u202fmin';
  return s < 129_600 ? (s / 3600).toFixed(0) + '\u202fh' : (s / 86_400).toFixed(0) + '\u202fdays';
}

export const ago = ms => (ms < 1000 ? 'just now' : duration(ms) + ' ago');

export const percent = share => Math.round(100 * share) + '\u202f%';

const times = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'});
const dates = new Intl.DateTimeFormat(undefined, {year: 'numeric', month: 'short', day: 'numeric'});

/** The time of day, with the date if it is not that of `now`. */
export function clock(t, now = t) {
  if (t === undefined) return dash;
  const day = Math.abs(now - t) > dayMs / 2 ? dates.format(t) + ', ' : '';
  return day + times.format(t);
}

export const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? '' : 's'}`;

/** "a", "a and b", "a, b and c" */
export const list = words => (words.length < 2 ? words.join('') : words.slice(0, -1).join(', ') + ' and ' + words.at(-1));

export function median(values) {
  if (values.length === 0) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
