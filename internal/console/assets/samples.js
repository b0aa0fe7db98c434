// The samples of the last minutes, and what is computed from them.

import {span} from './units.js';

const kept = 300;
const samples = [];

// replace takes the history of the server: one column for each number.
export function replace(history) {
  samples.length = 0;
  history.at.forEach((at, i) => {
    const one = {kind: history.kind, version: history.version, at, status: history.status[i], values: {}, histograms: {}};
    for (const [key, column] of Object.entries(history.values)) if (column[i] !== null) one.values[key] = column[i];
    for (const [key, h] of Object.entries(history.histograms)) if (h.counts[i]) one.histograms[key] = {bounds: h.bounds, counts: h.counts[i]};
    samples.push(one);
  });
}

export function add(sample) {
  samples.push(sample);
  if (samples.length > kept) samples.shift();
}

export const newest = () => samples[samples.length - 1];

// uptime says how long the process has run, by its own clock.
export function uptime() {
  const started = now('process_start_time_seconds');
  return started > 0 ? span(newest().at / 1000 - started) : '–';
}

// times are those of the samples, in seconds of Unix time.
export const times = () => samples.map(s => s.at / 1000);

// now returns the newest value of a number; 0 if there is none.
export const now = key => newest()?.values[key] ?? 0;

// keys returns the label values of all numbers, or histograms, of a name, in order.
export function keys(name, of = 'values') {
  const start = name + '/';
  return Object.keys(newest()?.[of] ?? {}).filter(key => key.startsWith(start)).map(key => key.slice(start.length)).sort();
}

// sum returns the sum of all numbers of a name.
export const sum = name => keys(name).reduce((all, labels) => all + now(name + '/' + labels), 0);

// level is a course of a gauge.
export const level = key => () => samples.map(s => s.values[key] ?? null);

// rate is the course of a counter's growth a second. After a restart it counts from 0.
export function rate(...names) {
  const of = s => names.reduce((sum, key) => sum + (s.values[key] ?? 0), 0);
  return () => samples.map((s, i) => {
    if (i === 0) return null;
    const before = samples[i - 1];
    const grown = of(s) - of(before);
    return (grown < 0 ? of(s) : grown) / ((s.at - before.at) / 1000);
  });
}

// share is the course of one counter's part in the growth of all.
export function share(key, all) {
  const part = rate(key), whole = rate(...all);
  return () => {
    const sums = whole();
    return part().map((v, i) => v === null || sums[i] === 0 ? null : v / sums[i]);
  };
}

// quantile is the course of a quantile of a histogram's new values: the upper bound of its bucket.
// Over ten samples, since one may have few values.
export function quantile(key, part) {
  return () => samples.map((s, i) => {
    const h = s.histograms[key], before = samples[Math.max(0, i - 10)].histograms[key];
    if (!h || !before || i === 0) return null;
    const restarted = before.counts.some((n, j) => n > h.counts[j]);
    const grown = h.counts.map((n, j) => restarted ? n : n - before.counts[j]);
    const all = grown[grown.length - 1];
    if (all <= 0) return null;
    const at = grown.findIndex(n => n >= part * all);
    return h.bounds[Math.min(at, h.bounds.length - 1)];
  });
}
