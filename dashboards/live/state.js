// Folds the frames of /api/v1/events into what the page shows. Pure: no DOM, no network, no clock.
//
// Whatever a frame contains came from peers: each value is checked and bounded here, once.

import {ago, bytes, clock, compact, duration, median, number, plural, shortId, text} from './format.js';

const roundsMax = 64;
const eventsMax = 200; // of each group
const peersMax = 1024;
const leftMax = 64;
const membersMax = 1024;
const lossSamplesMax = 1200;
const lossSeriesMax = 16;
const rowMs = 5000;
const lateRounds = 16;
const listAgeMs = 1000; // of the list of peers, at most: events are newer
/** Lines and swatches that differ; further peers are grey. */
export const slotsMax = 8;

/** A recording also has what others wrote. */
const isForeign = (state, event) => event.writer !== '' && event.writer !== state.self.peer;

/** The groups by which events are filtered. */
export const groups = {
  peers: 'Peers', run: 'This peer', problems: 'Problems', epochs: 'Epochs', rounds: 'Rounds',
};

export function createState() {
  return {
    ready: false, // a snapshot has come
    self: {peer: '', run: '', role: '', version: ''},
    now: 0, // of the peer's clock, when the last frame was made
    status: {},
    peers: new Map(),
    left: [],
    /** @type {any[]} */
    rounds: [],
    events: Object.fromEntries(Object.keys(groups).map(g => [g, []])),
    loss: {t: [], of: new Map(), low: [], high: []},
    slots: new Map(), // peer → number of its line
    missed: 0,
    /** @type {Record<string, {group: string, glyph: string, problem: boolean, sentence: string}>} */
    types: {}, // of events, as the peer's table has them
    replay: undefined, // of a recording: its bounds, and whose pages can be shown
  };
}

/** Takes one frame. The result: the parts of the page that it changed. */
export function apply(state, kind, data) {
  if (data === null || typeof data !== 'object') return [];
  if (kind === 'snapshot') return takeSnapshot(state, data);
  if (kind === 'vitals') return takeVitals(state, data);
  if (kind === 'event') return takeEvent(state, data);
  if (kind === 'gap') state.missed += number(data.missed, 0) ?? 0;
  return kind === 'gap' ? ['overview'] : [];
}

function takeSnapshot(state, data) {
  const self = data.self ?? {};
  if (hex(self.peer) !== state.self.peer) {
    state.slots.clear();
    forgetLoss(state);
  }
  state.ready = true;
  state.self = {peer: hex(self.peer), run: text(self.run, 64), role: text(self.role, 16), version: text(self.version, 24)};
  state.now = time(data.now) ?? state.now;
  state.types = Object.fromEntries(Object.entries(object(data.types)).slice(0, 64).map(([name, x]) => [name,
    {group: x.group in groups ? x.group : 'problems', glyph: text(x.glyph, 2), problem: x.problem === true, sentence: text(x.sentence, 200)}]));
  state.rounds = [];
  for (const group in state.events) state.events[group] = [];
  for (const each of array(data.events, 1000)) keep(state, each);
  for (const each of array(data.rounds, roundsMax)) keep(state, {...each, type: 'round'});
  state.status = readStatus(data.status);
  readPeers(state, data.peers);
  if (state.loss.t.length === 0)
    for (const each of state.events.epochs)
      if (number(each.loss) !== undefined) addLoss(state, each.t, new Map([[state.self.peer, each.loss]]));
  if (data.replay) takeRecording(state, data);
  sampleLoss(state);
  return ['overview', 'peers', 'rounds', 'links', 'loss', 'events', 'replay'];
}

/** A recording can show any time: the losses before it come with it. */
function takeRecording(state, {replay, loss}) {
  const from = time(replay.from) ?? state.now;
  state.replay = {from, to: Math.max(from, time(replay.to) ?? from), peers: array(replay.peers, peersMax).map(hex).filter(Boolean),
    marks: array(replay.marks, 200).filter(x => Array.isArray(x) && time(x[0]) !== undefined).map(([t, what]) => ({t, what: text(what, 24)}))};
  forgetLoss(state);
  // Peers end an epoch at about the same time: theirs share a row.
  let row = new Map();
  let began;
  const end = () => { if (row.size > 0) addLoss(state, began, row); row = new Map(); };
  for (const [t, peer, value] of array(loss, 2 * lossSamplesMax)) {
    if (time(t) === undefined || number(value) === undefined) continue;
    if (row.has(hex(peer)) || t - began > rowMs) end();
    if (row.size === 0) began = t;
    row.set(hex(peer), value);
  }
  end();
}

function takeVitals(state, data) {
  state.now = time(data.t) ?? state.now;
  state.status = readStatus(data.status);
  readPeers(state, data.peers, state.left.filter(x => state.now - x.t < listAgeMs));
  sampleLoss(state);
  return ['overview', 'peers', 'links', 'loss', 'replay'];
}

function takeEvent(state, data) {
  const event = keep(state, data);
  if (!event) return [];
  if (event.t > state.now) state.now = event.t;
  if (isForeign(state, event)) return ['events', 'replay'];
  const changed = ['events', 'overview', 'replay'];
  const other = state.peers.get(event.other);
  if (event.type === 'round') changed.push('rounds', 'links');
  if (event.type === 'phase') state.status.phase = text(event.to, 24);
  if (event.type === 'epoch' && (number(event.epoch) ?? -1) > (state.status.epoch ?? -1)) state.status.epoch = event.epoch;
  // The list of peers follows once a second; who has come or gone is shown at once.
  if (event.type === 'peer_left' && event.other) {
    state.peers.delete(event.other);
    const before = other?.left?.times ?? state.left.find(x => x.peer === event.other)?.times ?? 0;
    state.left = [{peer: event.other, t: event.t, reason: event.reason, lost: !event.ordered, times: before + 1}, ...state.left.filter(x => x.peer !== event.other)].slice(0, leftMax);
  } else if (event.type === 'peer_joined' && event.other) {
    state.left = state.left.filter(x => x.peer !== event.other);
    if (!other && state.peers.size < peersMax)
      state.peers.set(event.other, {id: event.other, role: text(event.role, 16), link: text(event.link, 24), connected: true, state: 'joining', time: new Map(), machine: new Map(), settings: new Map()});
  } else if (event.type === 'slow' && other) {
    other.slow = event.cause ? {cause: text(event.cause, 32), text: event.text} : undefined;
  } else {
    return changed;
  }
  giveSlots(state);
  return [...changed, 'peers', 'links'];
}

// -- reading ------------------------------------------------------------------------------------------

const array = (value, max) => (Array.isArray(value) ? value.slice(-max) : []);
const object = value => (value !== null && typeof value === 'object' ? value : {});
const time = value => number(value, 0, 8.64e15 / 2); // what a Date can show
const count = value => number(value, 0);
const hex = value => (typeof value === 'string' && /^[0-9a-f]{2,64}$/.test(value) ? value : '');

const texts = new Set(['phase', 'waiting_for', 'strategy.phase', 'ranks.devices']);

/** The facts of a status by their names, "rounds.failed": a text, or a number (yes is 1); what is not known is absent. */
function readFacts(raw, within = '', out = {}) {
  for (const [key, x] of Object.entries(object(raw)).slice(0, 100)) {
    const name = within + key;
    if (texts.has(name)) out[name] = text(x, 300);
    else if (typeof x === 'object' && !Array.isArray(x) && !within) readFacts(x, name + '.', out);
    else out[name] = number(typeof x === 'boolean' ? Number(x) : x);
  }
  return out;
}

/** What is wrong, the worst first: {level, says, seen, cure, matter, since}. */
function readStatus(raw) {
  const notices = array(object(raw).notices, 32).map(object).map(x => ({level: x.level === 'bad' ? 'bad' : 'warn', since: time(x.since),
    matter: text(x.matter, 32), says: text(x.says, 200), seen: text(x.seen, 400), cure: text(x.cure, 300)})).filter(x => x.says);
  return {...readFacts(raw), notices};
}

/** @param gone who left after the list was made */
function readPeers(state, raw, gone = []) {
  const doc = object(raw);
  const list = Array.isArray(raw) ? raw : doc.peers;
  const peers = new Map();
  for (const p of array(list, peersMax)) {
    const id = hex(object(p).id);
    if (!id) continue;
    const slow = object(p.slow);
    const self = id === state.self.peer;
    peers.set(id, {
      id, self, role: text(p.role, 16), epoch: count(p.epoch), toward: count(p.samples_toward_epoch), speed: count(p.samples_per_second),
      connected: self || p.connected === true, state: text(p.state, 24) || (self ? state.status.phase : ''),
      loss: self ? state.status.loss ?? number(p.loss) : number(p.loss), rtt: number(p.rtt_ms, 0, 1e7), bytesIn: count(p.bytes_in_per_s),
      bytesOut: count(p.bytes_out_per_s), link: text(p.link, 24), address: text(array(p.addresses, 4)[0], 64),
      time: shares(p.time), machine: shares(p.machine), settings: new Map(Object.entries(object(p.settings)).slice(0, 32).map(([name, x]) => [text(name, 40), text(x, 40)])),
      slow: text(slow.cause, 32) ? {cause: text(slow.cause, 32), text: text(slow.text, 120)} : undefined,
      left: readLeft(p.left),
    });
  }
  for (const x of gone) peers.delete(x.peer);
  state.peers = peers;
  if (Array.isArray(doc.left))
    state.left = [...gone, ...array(doc.left?.slice(0, leftMax), leftMax).map(x => ({peer: hex(object(x).peer), t: state.now, ...readLeft(x)}))
      .filter(x => x.peer && !peers.has(x.peer) && !gone.some(each => each.peer === x.peer))].sort((a, b) => b.t - a.t).slice(0, leftMax);
  giveSlots(state);
}

/** Numbers from 0 on by name. */
function shares(raw) {
  const out = new Map();
  for (const [name, x] of Object.entries(object(raw)).slice(0, 16))
    if (number(x, 0, 1e3) !== undefined) out.set(text(name, 16), x);
  return out;
}

/** How a peer left last; undefined: it did not. */
function readLeft(raw) {
  const x = object(raw);
  if (time(x.t) === undefined) return undefined;
  return {t: x.t, reason: text(x.reason), lost: x.lost !== false, times: Math.max(1, count(x.times) ?? 1)};
}

/** Checks an event and puts it into its ring. */
function keep(state, raw) {
  const e = object(raw);
  const type = text(e.type, 24);
  const t = time(e.t) ?? time(e.began);
  if (!type || t === undefined) return undefined;
  /** @type {any} */
  const event = {};
  for (const [name, value] of Object.entries(e).slice(0, 32)) event[name] = typeof value === 'string' ? text(value, 80) : number(value);
  Object.assign(event, {type, t, seq: count(e.seq), writer: hex(e.peer), other: hex(e.other), reason: text(e.reason), text: text(e.text, 300), ordered: e.ordered === true});
  if (type === 'round') {
    event.round = readRound(e, t);
    // A snapshot and the stream may both have it.
    if (state.rounds.some(r => r.key === event.round.key)) return undefined;
    state.rounds.push(event.round);
    if (state.rounds.length > 1 && state.rounds.at(-2).began > event.round.began) state.rounds.sort((a, b) => a.began - b.began);
    if (state.rounds.length > roundsMax) state.rounds.shift();
  }
  const usual = x => x === 'training' || x === 'averaging';
  const group = type === 'phase' && usual(event.from) && usual(event.to) ? 'epochs' : state.types[type]?.group ?? 'problems';
  const ring = state.events[group];
  if (event.seq !== undefined && ring.length > 0 && ring.at(-1).seq === event.seq) return undefined;
  event.group = group;
  ring.push(event);
  if (ring.length > eventsMax) ring.shift();
  return event;
}

function readRound(e, t) {
  const ms = value => number(value, 0, 1e8);
  const members = array(e.members, membersMax).map(object).map(m => ({
    peer: hex(m.peer), self: m.self === true, contributed: m.contributed === true, reduces: m.reduces === true, samples: count(m.samples),
    first: ms(m.first_ms), last: ms(m.last_ms), resultFirst: ms(m.result_first_ms), resultLast: ms(m.result_last_ms),
    bytesIn: count(m.bytes_in), bytesOut: count(m.bytes_out), rtt: ms(m.rtt_ms),
  })).filter(m => m.peer);
  members.sort((a, b) => Number(b.self) - Number(a.self) || (a.peer < b.peer ? -1 : 1));
  const began = time(e.began) ?? t;
  const id = text(e.round, 64);
  const lasts = members.filter(m => m.last !== undefined && !m.self).map(m => m.last);
  const round = {
    id, key: `${id}/${text(e.kind, 16)}/${began}`, kind: text(e.kind, 24), epoch: count(e.epoch), outcome: text(e.outcome, 24),
    reason: text(e.reason), began, duration: ms(e.duration_ms) ?? 0, search: ms(e.search_ms), agreement: ms(e.agreement_ms),
    recovery: ms(e.recovery_ms), spans: readSpans(e.spans), members, by: new Map(members.map(m => [m.peer, m])), usualLast: median(lasts),
  };
  return round;
}

const activities = {p: 'pass', u: 'update', r: 'round', s: 'search', d: 'download', i: 'idle'};

/** What the peer did before and in a round, "-312.4p280.1r12.3": milliseconds since the round began, and how long each took. */
function readSpans(raw) {
  const out = [];
  let [, at, rest] = /^(-?\d+(?:\.\d+)?)((?:[a-z]\d+(?:\.\d+)?)*)/.exec(typeof raw === 'string' ? raw.slice(0, 600) : '') ?? [];
  let from = Number(at);
  for (const [, letter, took] of (rest ?? '').matchAll(/([a-z])([\d.]+)/g)) {
    const to = from + Number(took);
    if (activities[letter]) out.push({what: activities[letter], from, to});
    from = to;
  }
  return out.every(x => Math.abs(x.from) < 1e9 && x.to < 1e9) ? out : [];
}

// -- lines of the chart -------------------------------------------------------------------------------

function giveSlots(state) {
  const {slots} = state;
  for (const id of slots.keys())
    if (!state.peers.has(id) && !state.left.some(x => x.peer === id)) slots.delete(id);
  const taken = new Set(slots.values());
  const give = (id, from) => {
    if (slots.has(id)) return;
    for (let n = from; n < slotsMax; ++n)
      if (!taken.has(n)) { slots.set(id, n); taken.add(n); return; }
  };
  if (state.self.peer) give(state.self.peer, 0);
  for (const id of [...state.peers.keys()].sort()) give(id, 1);
}

function sampleLoss(state) {
  const values = new Map();
  const rest = [];
  if (state.status.loss !== undefined) values.set(state.self.peer, state.status.loss);
  for (const p of state.peers.values()) {
    if (p.loss === undefined || p.self) continue;
    if (state.slots.has(p.id)) values.set(p.id, p.loss);
    else rest.push(p.loss);
  }
  addLoss(state, state.now, values, rest);
}

function forgetLoss({loss}) {
  loss.t.length = loss.low.length = loss.high.length = 0;
  loss.of.clear();
}

/** Aligned columns: a time; a value or null for each peer that has a line; the range of the rest. When they are full,
 *  every other one of the older half goes. */
function addLoss(state, t, values, rest = []) {
  const {loss} = state;
  if (loss.t.length > 0 && t < loss.t.at(-1) - 5000) forgetLoss(state); // the peer's clock was set back
  if (loss.t.length > 0 && t <= loss.t.at(-1)) return;
  if (values.size + rest.length === 0 && loss.t.length === 0) return;
  loss.t.push(t);
  loss.low.push(rest.length > 0 ? Math.min(...rest) : null);
  loss.high.push(rest.length > 0 ? Math.max(...rest) : null);
  for (const column of loss.of.values()) column.push(null);
  for (const [id, value] of values) {
    let column = loss.of.get(id);
    if (!column && loss.of.size < lossSeriesMax) {
      column = new Array(loss.t.length).fill(null);
      loss.of.set(id, column);
    }
    if (column) column[column.length - 1] = value;
  }
  if (loss.t.length <= lossSamplesMax) return;
  const half = loss.t.length >> 1;
  const stays = (_, i) => i >= half || i % 2 === 0;
  for (const name of ['t', 'low', 'high']) loss[name] = loss[name].filter(stays);
  for (const [id, column] of loss.of) {
    const kept = column.filter(stays);
    if (kept.every(x => x === null)) loss.of.delete(id);
    else loss.of.set(id, kept);
  }
}

// -- what is asked of it ------------------------------------------------------------------------------

export const isNode = state => state.self.role === 'node' || state.status.phase === 'node';
const trains = p => p.role !== 'node';

/** Trainers that are alive, as this peer sees them. */
export const trainers = state => [...state.peers.values()].filter(trains);
export const speed = state => {
  const known = trainers(state).map(p => p.speed).filter(x => x !== undefined);
  return known.length > 0 ? known.reduce((a, b) => a + b, 0) : state.status.samples_per_second;
};
export const epoch = state => state.status.global_epoch ?? state.status.epoch;

/** This peer, then slow ones, then the rest by name. */
export function peerRows(state) {
  return [...state.peers.values()].sort((a, b) => Number(b.self) - Number(a.self) || Number(!!b.slow) - Number(!!a.slow) || (a.id < b.id ? -1 : 1));
}

/** The settings of each peer in which it differs from most: [name, its value, that of the others]. Without a value it has the default. */
export function differing(state) {
  const known = [...state.peers.values()].filter(p => p.settings.size > 0);
  const out = new Map(known.map(p => [p.id, /** @type {string[][]} */ ([])]));
  for (const name of new Set(known.flatMap(p => [...p.settings.keys()]))) {
    const among = name === 'version' ? known : known.filter(p => p.role !== 'node'); // a node does not train
    const value = p => p.settings.get(name) ?? 'default';
    const counts = new Map();
    for (const p of among) counts.set(value(p), (counts.get(value(p)) ?? 0) + 1);
    if (counts.size < 2) continue;
    const [usual, most] = [...counts].sort((a, b) => b[1] - a[1])[0];
    for (const p of among)
      if (value(p) !== usual || 2 * most <= among.length) out.get(p.id)?.push([name, value(p), value(p) === usual ? [...counts.keys()].find(x => x !== usual) : usual]);
  }
  return out;
}

/** How late each member's last part came in the last rounds, as shares of the round. The result: for each peer its
 *  cells, oldest first, of 0 (in time) to 3 (half of the round later than usual, or more), 4 (nothing came), or null
 *  (not known, or it took no part). */
export function lateness(state) {
  const recent = state.rounds.slice(-lateRounds);
  const cells = new Map([...state.peers.keys()].map(id => [id, new Array(recent.length).fill(null)]));
  recent.forEach((r, i) => {
    for (const m of r.members) {
      const row = cells.get(m.peer);
      if (!row) continue;
      if (m.contributed && (m.last === undefined || r.usualLast === undefined)) continue; // who reduces nothing sees no parts
      const share = (m.last - r.usualLast) / Math.max(r.duration, 1e-3);
      row[i] = !m.contributed ? 4 : share < 0.1 ? 0 : share < 0.25 ? 1 : share < 0.5 ? 2 : 3;
    }
  });
  return cells;
}

/** "left 3 times, last 14:02:11, the connection was closed" */
export const leaving = (state, x) => `${x.lost ? 'left' : 'left as ordered'}${x.times > 1 ? ` ${x.times} times, last` : ''} ${clock(x.t, state.now)}${x.reason ? `, ${x.reason}` : ''}`;

const name = (state, id) => (id === state.self.peer ? 'this peer' : 'peer ' + shortId(id));

/** How the run is: one short sentence, and what to do; `more`: what was measured, and what else is wrong. `level`: good,
 *  wait, warn or bad. `key` changes when the matter does, and not with each number. */
export function headline(state) {
  const s = state.status;
  const others = trainers(state).filter(p => !p.self).length;
  const all = trainers(state).length;
  const numbers = [epoch(state) === undefined ? '' : `epoch ${epoch(state)}`, speed(state) ? `${compact(speed(state))} samples/s` : ''].filter(Boolean).join(', ');
  let level = 'good';
  let head;
  const early = ['starting', 'joining', 'syncing'].includes(s.phase);
  const rest = others > 0 ? `; ${plural(others, 'other peer')} train${others === 1 ? 's' : ''}` : '';
  if (!isNode(state) && early) {
    level = 'wait';
    const what = s.phase === 'starting' ? 'is starting' : s.phase === 'joining' ? 'is joining the run' : 'takes the model from another peer';
    head = `This peer ${what}${s.waiting_for ? ', waiting for ' + s.waiting_for : ''}${rest}`;
  } else if (['finished', 'stopped', 'paused'].includes(s.phase)) {
    level = 'wait';
    head = `This peer ${s.phase === 'paused' ? 'is' : 'has'} ${s.phase}${rest}`;
  } else if (all === 0 && state.rounds.length > 0) { // of `waggle average`, or of trainers whose reports are on their way
    const n = state.rounds.at(-1).members.length;
    head = n < 2 ? 'This peer averaged alone in the last round' : `${n} peers averaged together in the last round`;
  } else if (all === 0) {
    level = 'wait';
    head = isNode(state) ? 'No peer trains yet; this node waits for the first' : 'This peer trains';
  } else {
    head = all > 1 ? `${plural(all, 'peer')} train together` : others === 0 ? 'This peer trains alone' : 'One peer trains';
  }
  const wrong = [...s.notices];
  const say = (matter, says, seen = '') => wrong.push({level: 'warn', matter, says, seen, cure: ''});
  const gone = state.left.filter(x => x.lost && state.now - x.t < 60_000);
  const [a, b] = gone;
  const kind = x => (x.reason ?? '').replace(/\d+/g, '');
  const when = x => `left ${ago(Math.max(0, state.now - x.t))}`;
  if (gone.length === 2 && Math.abs(a.t - b.t) < 2000 && kind(a) === kind(b)) // of a link or a network that was cut
    say('left', `peers ${shortId(a.peer)} and ${shortId(b.peer)} ${when(a)}`, a.reason);
  else if (gone.length > 2)
    say('left', `${plural(gone.length, 'peer')} left in the last minute`);
  else
    for (const x of gone) say('left', `${name(state, x.peer)} ${when(x)}`, x.reason);
  const recent = state.rounds.slice(-8);
  const failed = recent.filter(r => r.outcome === 'failed');
  if (failed.length > 1) say('failed', `${failed.length} of the last ${recent.length} rounds failed`, failed.at(-1).reason);
  wrong.sort((x, y) => Number(y.level === 'bad') - Number(x.level === 'bad'));
  const [worst] = wrong;
  const whole = x => x.says + (x.cure ? ': ' + x.cure : '');
  const measured = x => (x.seen && x.seen !== x.says ? x.seen : '');
  const more = [worst ? head : '', numbers, worst ? measured(worst) : '', ...wrong.slice(1, 5).map(x => whole(x) + (measured(x) ? ` (${measured(x)})` : ''))];
  return {
    level: worst?.level ?? level, text: sentence(worst ? whole(worst) : head), more: more.filter(Boolean).map(sentence),
    key: [level, head.replace(/\d+/g, ''), all, ...wrong.map(x => x.level + x.matter + x.says.replace(/left .*/, ''))].join(),
  };
}
const sentence = words => cap(words).replace(/[.…]?$/, end => end || '.');

/** Numbers of events as words. */
const words = {
  bytes, samples: compact, count: x => plural(x, 'input'), loss: x => x.toFixed(3), duration_s: x => duration(x * 1000), after_s: x => duration(x * 1000),
};

/** An ordered leave is none, a checkpoint or a download that failed is one. */
export const isProblem = (state, e) => (state.types[e.type]?.problem && !e.ordered)
  || (e.outcome ? !['ok', 'complete', 'shrunk'].includes(e.outcome) : false);

/** One line about an event, by the sentence of its type: what stands in brackets is left out without its field. */
export function describe(state, e) {
  const word = name => {
    if (name === 'other') return e.other && (e.other === state.self.peer ? 'this peer' : 'peer ' + shortId(e.other));
    return typeof e[name] === 'number' ? words[name]?.(e[name]) ?? String(e[name]) : e[name] ?? '';
  };
  if (e.type === 'round') return `Round ${shortId(e.round.id)} (${e.round.kind}) ${e.round.outcome}${e.reason && `: ${e.reason}`}: ${e.round.members.length > 0 ? plural(e.round.members.length, 'member') + ', ' : ''}${duration(e.round.duration)}`;
  let form = state.types[e.type]?.sentence || (e.other && (e.text || e.reason) ? '{other}: ' : '{other}') + (e.text ? '{text}' : '{reason}');
  if (e.type === 'epoch' && e.epochs > 1) form = form.replace('Epoch {epoch} ended', '{epochs} epochs ended, the last is {epoch}');
  if (e.type === 'slow' && !e.cause) form = '{other} is no longer slow';
  return cap(form.replace(/\[([^[{]*)\{(\w+)\}([^\]]*)\]|\{(\w+)\}/g, (_, before, name, after, always) =>
    (always ? word(always) : word(name) && before + word(name) + after))) || e.type;
}
const cap = words => words.slice(0, 1).toUpperCase() + words.slice(1);

/** The newest events of the chosen groups that contain `words`, newest first. */
export function selectEvents(state, chosen, words, max = 150) {
  const wanted = words.trim().toLowerCase();
  const rows = Object.keys(groups).filter(g => chosen.has(g)).flatMap(g => state.events[g]);
  rows.sort((a, b) => b.t - a.t || (b.seq ?? 0) - (a.seq ?? 0));
  const out = [];
  for (const event of rows) {
    const line = (isForeign(state, event) ? `${shortId(event.writer)}: ` : '') + describe(state, event);
    if (wanted && !`${event.type} ${line} ${event.other}`.toLowerCase().includes(wanted)) continue;
    out.push({event, line});
    if (out.length === max) break;
  }
  return out;
}

