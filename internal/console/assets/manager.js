// The page of a manager. Besides its metrics it has what the control API tells of VMs and caches.

import {chart, element, facts, table} from './parts.js';
import {keys, level, newest, now, quantile, rate, sum, uptime} from './samples.js';
import {headers} from './token.js';
import {bytes, count, percent, seconds, span} from './units.js';

const n = 'redykv_manager_';
const api = '../redykv.manager.v1.ManagerService/';
const every = 5000; // milliseconds between two lists of all VMs and caches

// call calls the control API.
async function call(procedure, request) {
  const answer = await fetch(api + procedure, {method: 'POST', headers: {'Content-Type': 'application/json', ...headers()}, body: JSON.stringify(request)});
  if (!answer.ok) throw new Error((await answer.json()).message ?? answer.statusText);
  return answer.json();
}

let known = {vms: [], caches: []};
let asked = 0;

// ask asks for all VMs and caches now and then, while somebody sees them.
async function ask(draw) {
  if (document.hidden || Date.now() - asked < every) return;
  asked = Date.now();
  try {
    const answer = await call('Describe', {});
    known = {vms: answer.vms ?? [], caches: answer.caches ?? []};
    draw();
  } catch { /* the stream of samples says what is wrong */ }
}

const dollars = micros => '$' + (Number(micros ?? 0) / 1e6).toFixed(4);

// pools returns the labels of the metrics of each pool, in words.
const pools = () => keys(n + 'vms').map(labels => {
  const [machine, spot, state, type] = labels.split('/');
  return {labels, state, name: [type, spot === 'true' ? 'spot' : '', machine ? 'on ' + machine : ''].filter(Boolean).join(', ') || 'servers that registered themselves'};
});

function answers() {
  const memory = sum(n + 'vm_memory_bytes'), free = sum(n + 'vm_free_bytes');
  const failed = now(n + 'failures_total'), lingering = now(n + 'lingering_caches'), broken = now(n + 'slo_broken_caches');
  return [
    ['memory', `${bytes(free)} left of ${bytes(memory)}, ${bytes(memory - free)} lent to caches (${percent(memory > 0 ? 1 - free / memory : 0)})`, memory > 0 && free < memory / 20 ? 'bad' : ''],
    ['VMs', `${count(sum(n + 'vms'))}; since the start ${count(now(n + 'reclaims_total'))} reclaimed, ${count(failed)} failed, ${count(now(n + 'suspicions_total'))} suspected`, failed > 0 ? 'bad' : ''],
    ['caches', `${count(now(n + 'caches'))} of ${bytes(now(n + 'capacity_bytes'))}` + (lingering > 0 ? `, ${count(lingering)} without a client` : '')],
    ['SLOs', `${count(broken)} broken; ${count(now(n + 'slo_windows_missed_total'))} of ${count(now(n + 'slo_windows_judged_total'))} judged windows missed them since the start; ${count(now(n + 'reconfigures_asked_total'))} caches asked for another configuration`, broken > 0 ? 'bad' : ''],
    ['models', `${count(now(n + 'calibrations_total'))} calibrated and ${count(now(n + 'corrections_total'))} corrections since the start`],
    ['an hour', `$${now(n + 'cost_dollars_per_hour').toFixed(4)} for caches, $${now(n + 'warm_cost_dollars_per_hour').toFixed(4)} for VMs that are kept ready`],
    ['heartbeats', now(n + 'blind') > 0 ? 'half of the servers are silent: none is suspected' : 'heard', now(n + 'blind') > 0 ? 'bad' : ''],
    ['running for', uptime()],
  ];
}

// slowest returns the six procedures that took the most time, by name.
function slowest() {
  const last = of => of[of.length - 1] ?? 0;
  const all = keys(n + 'call_seconds', 'histograms').map(p => [p, last(quantile(n + 'call_seconds/' + p, 0.99)())]);
  return all.sort((a, b) => b[1] - a[1]).slice(0, 6).map(([p]) => p).sort();
}

const state = vm => vm.leaving ? ['leaving', 'bad'] : vm.healthy === false || !vm.healthy ? ['lost', 'bad'] : vm.suspected ? ['silent', 'bad'] : vm.warm ? 'kept ready' : ['up', 'good'];

const vmRows = () => known.vms.map(vm => [
  vm.id, state(vm), [vm.type, vm.spot ? 'spot' : ''].filter(Boolean).join(', ') || '–', vm.machine || '–', vm.distance ? count(vm.distance) : '–',
  bytes(Number(vm.freeMemory ?? 0)), bytes(Number(vm.memory ?? 0)), dollars(vm.priceMicros),
]);

const slo = s => [
  s?.maxLatencyUs ? micros(s.maxLatencyUs) : '', s?.minThroughputMops ? mops(s.minThroughputMops) : '', s?.recordSize ? `${bytes(s.recordSize)} records` : '',
].filter(Boolean).join(', ') || '–';

const micros = v => v >= 1000 ? seconds(v / 1e6) : v === null || v === undefined ? '–' : count(v) + ' µs';
const mops = v => v === null || v === undefined ? '–' : (count(v * 1e6) + ' op/s').replace(/ ([kMG]) op/, ' $1op');

const prediction = p => p ? `${micros(p.latencyUs)}, ${mops(p.throughputMops)}` : '–';

// measurement tells what reads and writes got in a window.
const measurement = w => ['reads', 'writes'].filter(kind => w?.[kind]).map(kind =>
  `${kind} ${micros(w[kind].meanLatencyUs ?? 0)} (p99 ${micros(w[kind].p99LatencyUs ?? 0)}), ${mops(w[kind].throughputMops ?? 0)}`).join('; ') || '–';

const sloState = c => c.sloBroken ? ['broken', 'bad']
  : c.windowsJudged ? [`kept ${c.windowsJudged - (c.windowsMissed ?? 0)} of ${c.windowsJudged}`, 'good']
  : (c.slo?.maxLatencyUs || c.slo?.minThroughputMops) && c.measured ? ['not broken', 'good'] : '–';

const configuration = c => c ? [c.clientThreads, c.serverThreads, c.batchSize, c.queueDepth].map(v => v ?? 0).join(', ') : '–';

const cacheRows = pick => known.caches.map(c => [
  pick(c.id), bytes(Number(c.capacity ?? 0)), slo(c.slo), prediction(c.predicted), measurement(c.measured), sloState(c), configuration(c.configuration), [...new Set((c.grants ?? []).map(g => g.vm.id))].length + '',
  c.distance ? count(c.distance) : '–', dollars(c.priceMicros), c.createdUnixMs ? age((newest().at - Number(c.createdUnixMs)) / 1000) : '–',
]);

// age is a span that does not change each second.
const age = s => s < 60 ? '< 1 min' : span(s);

const words = kind => (kind ?? '').replace('KIND_', '').replaceAll('_', ' ').toLowerCase();
const clock = ms => ms ? new Date(Number(ms)).toLocaleTimeString() : '';

// courses are what a cache gave over time, from the answer of DescribeCache. Between windows that do
// not follow one another there is a gap.
function courses(d) {
  const points = [];
  for (const w of d.windows ?? []) {
    const end = newest().at - Number(w.endedAgoMs ?? 0), begin = end - Number(w.lastedMs), before = points[points.length - 1];
    if (before && begin - before.end > 1000) points.push({end: begin});
    points.push({end, window: w});
  }
  const of = (kind, figure) => ({label: kind + ' ' + figure.name, of: () => points.map(p => p.window?.[kind] ? p.window[kind][figure.key] ?? 0 : null), optional: true});
  const level = (label, v) => ({label, of: () => points.map(() => v || null), optional: true});
  const mean = {name: 'mean', key: 'meanLatencyUs'}, p99 = {name: 'p99', key: 'p99LatencyUs'}, throughput = {name: '', key: 'throughputMops'};
  return {
    times: points.map(p => p.end / 1000),
    latency: [of('reads', mean), of('reads', p99), of('writes', mean), of('writes', p99), level('asked, mean at most', d.cache.slo?.maxLatencyUs), level('predicted', d.cache.predicted?.latencyUs)],
    throughput: [of('reads', throughput), of('writes', throughput), level('asked, at least', d.cache.slo?.minThroughputMops), level('predicted', d.cache.predicted?.throughputMops)],
  };
}

// oneCache shows what the manager knows of a cache: what it gives, why it is where it is, and what
// happened. It asks again now and then while somebody sees it.
function oneCache() {
  let chosen, asked = 0, drawn, given = {times: [], latency: [], throughput: []};
  const title = element('h2', {tabIndex: -1}), body = element('div', {className: 'scroll', tabIndex: 0, role: 'region', ariaLabel: 'the cache'});
  const times = () => given.times;
  const charts = [chart('Latency in windows', micros, () => given.latency, {times}), chart('Throughput in windows', mops, () => given.throughput, {times})];
  const section = element('section', {className: 'wide', hidden: true}, title, ...charts.map(c => c.element), body);
  const grid = (head, rows) => element('table', {}, element('thead', {}, element('tr', {}, ...head.map(h => element('th', {textContent: h, scope: 'col'})))),
    element('tbody', {}, ...rows.map(r => element('tr', {}, ...r.map(t => element('td', {textContent: t}))))));
  const write = d => {
    const sites = (d.decisions ?? []).flatMap(one => (one.sites ?? []).map(site => [
      `${one.what}, ${clock(one.atUnixMs)}`, count(site.distance ?? 0), configuration(site.configuration), count(site.vms ?? 0), dollars(site.priceMicros), site.chosen ? 'chosen' : site.reason ?? '',
    ]));
    const verdicts = (d.decisions ?? []).flatMap(one => (one.verdicts ?? []).map(v => [`${one.what}, ${clock(one.atUnixMs)}`, v.name, count(v.vms ?? 0), dollars(v.priceMicros), v.reason ?? '']));
    const events = (d.events ?? []).toReversed().map(e => [words(e.kind), [e.vmId, ...(e.vmIds ?? [])].filter(Boolean).join(' '), e.reason ?? '']);
    const text = JSON.stringify([d.pending, sites, verdicts, events]);
    if (text === drawn) return;
    drawn = text;
    body.replaceChildren(
      element('p', {textContent: (d.pending ?? []).join('; ')}),
      grid(['decision', 'distance', 'configuration', 'VMs', 'an hour', 'why'], sites),
      grid(['decision', 'VM type', 'VMs', 'an hour', 'why'], verdicts),
      grid(['event, newest first', 'VM', 'reason'], events));
  };
  const load = async id => {
    asked = Date.now();
    try {
      const d = await call('DescribeCache', {cacheId: id});
      if (id !== chosen) return; // another cache was chosen meanwhile
      given = courses(d);
      for (const c of charts) c.update();
      write(d);
    } catch (e) {
      if (id !== chosen) return;
      chosen = drawn = undefined;
      body.replaceChildren(element('p', {textContent: e.message, className: 'bad'}));
    }
  };
  return {
    element: section,
    update() {
      if (chosen && !document.hidden && Date.now() - asked >= every) load(chosen);
    },
    restyle() {
      for (const c of charts) { c.restyle(); c.update(); }
    },
    async show(id) {
      chosen = id;
      section.hidden = false;
      title.textContent = 'Cache ' + id;
      await load(id);
      title.focus();
    },
  };
}

export function parts(draw) {
  const one = oneCache();
  const pick = id => {
    const button = element('button', {textContent: id, type: 'button'});
    button.addEventListener('click', () => one.show(id));
    return button;
  };
  return [
    {element: element('span', {hidden: true}), update: () => ask(draw)},
    facts('At a glance', answers, true),
    chart('Memory', bytes, () => pools().map(p => ({label: `free, ${p.state}, ${p.name}`, of: level(n + 'vm_free_bytes/' + p.labels)})), {stacked: true}),
    chart('Caches', count, () => [{label: 'caches', of: level(n + 'caches')}, {label: 'without a client', of: level(n + 'lingering_caches'), optional: true}]),
    chart('Changes a second', count, () => ['allocations', 'refusals', 'reallocations', 'attachments', 'expirations'].map((what, i) => ({label: what, of: rate(n + what + '_total'), optional: i > 0}))),
    chart('Times of calls, 99th percentile', seconds, () => slowest().map(p => ({label: p, of: quantile(n + 'call_seconds/' + p, 0.99), optional: true}))),
    chart('The catalog\'s writes', seconds, () => [0.5, 0.99].map(p => ({label: `p${100 * p}`, of: quantile(n + 'catalog_commit_seconds', p)}))),
    chart('Dollars an hour', v => v === null || v === undefined ? '–' : '$' + v.toFixed(4), () => [{label: 'caches', of: level(n + 'cost_dollars_per_hour')}, {label: 'kept ready', of: level(n + 'warm_cost_dollars_per_hour'), optional: true}]),
    table('Caches', ['cache', 'capacity', 'asked', 'predicted', 'measured', 'SLO', 'c, s, b, q', 'VMs', 'distance', 'an hour', 'age'], () => cacheRows(pick)),
    one,
    table('VMs', ['VM', 'state', 'type', 'machine', 'distance', 'free', 'memory', 'an hour'], vmRows),
  ];
}
