// The page of a store.

import {bar, chart, facts, table} from './parts.js';
import {keys, level, newest, now, quantile, rate, share, uptime} from './samples.js';
import {bytes, count, percent, seconds, span} from './units.js';

const n = 'redykv_';
const kinds = ['read', 'upsert', 'rmw', 'insert', 'delete'];
const places = ['memory', 'cache', 'tier0', 'tier1', 'tier2', 'tier3'].map(from => n + 'reads_answered_total/' + from);
const batches = n + 'server_batch_seconds';

// tiers returns the name and the number of each tier, with the labels of its metrics.
const tiers = () => keys(n + 'tier_healthy').map(labels => {
  const at = labels.lastIndexOf('/');
  return {labels, name: labels.slice(0, at), number: labels.slice(at + 1)};
});

const placeName = place => tiers().find(t => 'tier' + t.number === place)?.name ?? {cache: 'read cache', tier0: 'device'}[place] ?? place;

const marker = name => now(n + 'log_address_bytes/' + name);

function answers() {
  const log = now(n + 'memory_bytes/log'), budget = now(n + 'memory_budget_bytes/log');
  const cache = now(n + 'memory_bytes/cache'), cacheBudget = now(n + 'memory_budget_bytes/cache');
  const buffers = now(n + 'server_buffer_bytes/requests') + now(n + 'server_buffer_bytes/replies');
  const out = tiers().filter(t => now(n + 'tier_healthy/' + t.labels) === 0);
  const waiting = now(n + 'log_flush_waiting') > 0;
  const errors = now(n + 'background_errors_total');
  return [
    ['memory', `log ${bytes(log)} of ${bytes(budget)}, ${bytes(Math.max(budget - log, 0))} left; index ${bytes(now(n + 'memory_bytes/index'))}` +
      (cacheBudget > 0 ? `; read cache ${bytes(cache)} of ${bytes(cacheBudget)}` : '') + `; clients' commands and replies ${bytes(buffers)}; process ${bytes(now('process_resident_memory_bytes'))}`],
    ['durable', waiting ? 'writing the log has failed, and is tried again' : `${bytes(marker('tail') - marker('flushed'))} of the log are not on the device yet`, waiting ? 'bad' : ''],
    ['tiers', out.length > 0 ? out.map(t => t.name).join(', ') + ' out of use' : tiers().length > 0 ? 'all in use' : 'one device', out.length > 0 ? 'bad' : ''],
    ['errors', errors > 0 ? `${count(errors)} in the background since the start` : 'none in the background', errors > 0 ? 'bad' : ''],
    ['clients', `${count(now(n + 'server_clients'))} connected`],
    ['running for', uptime()],
  ];
}

function logParts() {
  const begin = marker('begin'), head = Math.max(marker('head'), begin), readOnly = Math.max(marker('read_only'), head), tail = marker('tail');
  return [
    {name: 'on the device', value: head - begin},
    {name: 'in memory, read-only', value: readOnly - head},
    {name: 'in memory, updated in place', value: tail - readOnly},
  ];
}

const work = () => [
  ['commits', `${count(now(n + 'commits_total'))}, ${count(now(n + 'commit_errors_total'))} failed`],
  ['checkpoints', `${count(now(n + 'checkpoints_total'))} made, ${count(now(n + 'checkpoints_kept'))} kept, ${bytes(now(n + 'checkpoints_pinned_bytes'))} of the log kept for them, ${count(now(n + 'checkpoint_errors_total'))} failed`],
  ['the last checkpoint', now(n + 'checkpoint_last_timestamp_seconds') > 0 ?
    `${span(newest().at / 1000 - now(n + 'checkpoint_last_timestamp_seconds'))} ago, in ${seconds(now(n + 'checkpoint_last_duration_seconds'))}, of ${bytes(now(n + 'checkpoint_last_bytes'))}` : 'none'],
  ['compactions', `${count(now(n + 'compactions_total'))}, ${bytes(now(n + 'compaction_reclaimed_bytes_total'))} reclaimed`],
  ['the longest barrier', seconds(now(n + 'barrier_max_seconds'))],
  ['index', `${percent(now(n + 'index_load_ratio'))} full, doubled ${count(now(n + 'index_growths_total'))} times`],
];

// The miss ratio curve, fetched while accesses are sampled.
const sampled = () => now(n + 'sampled_keys_ratio') > 0;
let curve = {points: [], now: {}};

async function fetchCurve() {
  if (!newest() || !sampled()) return;
  const answer = await fetch('../mrc');
  if (answer.ok) curve = await answer.json();
}

const curveSizes = () => [...new Set([...(curve.points ?? []).map(p => p.memory_bytes), curve.now.memory_bytes])].sort((a, b) => a - b);

const predicted = name => () => curveSizes().map(size => curve.points.find(p => p.memory_bytes === size)?.[name] ?? null);

function curveSeries() {
  if (!sampled() || !curve.points?.length) return [];
  const here = curve.points.findLast(p => p.memory_bytes <= curve.now.memory_bytes) ?? curve.points[0];
  const hits = curve.now.memory + curve.now.cache;
  return [
    {label: 'memory', of: predicted('memory'), value: here.memory},
    {label: 'read cache', of: predicted('cache'), value: here.cache, optional: true},
    {label: 'device', of: predicted('device'), value: here.device},
    {label: `measured at ${bytes(curve.now.memory_bytes)}, memory and read cache`, points: true, value: hits,
      of: () => curveSizes().map(size => size === curve.now.memory_bytes ? hits : null)},
  ];
}

setInterval(() => fetchCurve().catch(() => {}), 5000); // it is fetched again

export const parts = () => [
  facts('At a glance', answers, true),
  bar('The log', logParts, bytes, () => `begins at ${bytes(marker('begin'))}, ends at ${bytes(marker('tail'))} of its address space; ${bytes(now(n + 'checkpoints_pinned_bytes'))} stay for checkpoints only`),
  chart('Operations a second', count, () => kinds.map(kind => ({label: kind, of: rate(n + 'operations_total/' + kind), optional: kind !== 'read'}))),
  chart('Latency of commands that arrived together', seconds, () => [0.5, 0.99, 0.999].map(p => ({label: `p${100 * p}`, of: quantile(batches, p)}))),
  chart('What answered reads', percent, () => places.map(key => ({label: placeName(key.split('/')[1]), of: share(key, places), optional: true})), {stacked: true, top: 1}),
  chart('Memory', bytes, () => ['log', 'index', 'cache'].map(part => ({label: {cache: 'read cache'}[part] ?? part, of: level(n + 'memory_bytes/' + part), optional: part === 'cache'})), {stacked: true}),
  chart('The log, bytes a second', bytes, () => [
    {label: 'grows', of: rate(n + 'log_address_bytes/tail')},
    {label: 'flushed', of: rate(n + 'log_flushed_bytes_total')},
    {label: 'compaction reads', of: rate(n + 'compaction_read_bytes_total'), optional: true},
    {label: 'compaction copies', of: rate(n + 'compaction_copied_bytes_total'), optional: true},
  ]),
  chart('Commits a second', count, () => [{label: 'commits', of: rate(n + 'commits_total')}, {label: 'failed', of: rate(n + 'commit_errors_total'), optional: true}]),
  chart('What would answer reads with other sizes of memory', percent, curveSeries, {top: 1, times: curveSizes, across: bytes}),
  facts('Work in the background', work),
  table('Tiers', ['tier', 'state', 'reads answered', 'read', 'written', 'missing'], () => tiers().map(t => {
    const of = name => now(n + 'tier_' + name + '/' + t.labels);
    return [t.name, of('healthy') ? ['in use', 'good'] : ['out of use', 'bad'], count(of('hits_total')), bytes(of('read_bytes_total')), bytes(of('written_bytes_total')), bytes(of('missing_bytes'))];
  })),
];
