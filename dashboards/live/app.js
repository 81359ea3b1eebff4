// The page of a peer: takes frames, folds them into a state, and draws what changed, ten times a second at most.

import {html, render} from './vendor/lit-html.js';
import {clock, shortId} from './format.js';
import {apply, createState, groups, headline} from './state.js';
import {followTogether} from './stream.js';
import {identity, overview} from './overview.js';
import {peers} from './peers.js';
import {links} from './links.js';
import {rounds, step, view as roundView, zoom} from './rounds.js';
import {events, toggle, view as eventView} from './events.js';
import {LossChart} from './loss.js';
import {RunChart} from './curves.js';
import {address, faster, jump, pause, replayBar} from './replay.js';

const frameMs = 90;
const state = createState();
const byId = id => /** @type {HTMLElement} */ (document.getElementById(id));
const content = id => /** @type {HTMLElement} */ (document.querySelector(`#${id} .content`));
const chart = new LossChart(content('loss'));
const course = new RunChart(byId('curves'));
const link = {up: false, why: '', since: 0};

// -- drawing ------------------------------------------------------------------------------------------

const parts = {
  overview() {
    byId('overview').querySelector('.connecting')?.remove();
    render(identity(state), byId('identity'));
    render(overview(state), byId('overview'));
    const h = headline(state);
    announce(h.key, h.text);
    document.title = `${link.up ? '' : '✕ '}${h.level === 'good' ? '' : '▲ '}${state.self.run || 'waggle'} · ${shortId(state.self.peer)}`;
  },
  peers: () => render(peers(state), content('peers')),
  rounds: () => render(rounds(state, () => draw(['rounds'], true)), content('rounds')),
  links: () => render(links(state), content('links')),
  loss: () => chart.show(state),
  curves: () => course.show(state),
  events: () => render(events(state, () => draw(['events'], true)), content('events')),
  replay: () => render(replayBar(state, go), byId('replay')),
};

let said = '';
/** Screen readers hear a new matter, not each new number. */
function announce(key, words) {
  if (key === said) return;
  said = key;
  byId('announce').textContent = words;
}

// Rounds may come ten times a second, and the eye follows them; the rest need not be as quick.
const pauses = {overview: 1000, peers: 200, rounds: frameMs, links: 500, loss: 500, curves: 2000, events: frameMs, replay: 200};
const due = new Map(); // part → when it may be drawn
const drawnAt = {};
let planned;

/** Has parts drawn: at once what has rested for long enough, the others when they have. */
function draw(changed, urgent = false) {
  for (const each of changed)
    if (urgent || !due.has(each)) due.set(each, urgent ? 0 : (drawnAt[each] ?? -Infinity) + pauses[each]);
  plan();
}

function plan() {
  if (due.size === 0) return;
  const at = Math.max(Math.min(...due.values()), performance.now());
  if (planned !== undefined && planned.at <= at + 4) return;
  if (planned) clearTimeout(planned.timer);
  const pause = document.hidden ? 1000 : at - performance.now(); // nobody looks: the state is kept, the page is drawn rarely
  planned = {at, timer: setTimeout(() => (document.hidden ? drawNow() : requestAnimationFrame(drawNow)), pause)};
}

function drawNow() {
  planned = undefined;
  const began = performance.now();
  const now = [...due].filter(([, at]) => at <= began + 60).map(([part]) => part);
  for (const part of now) {
    due.delete(part);
    drawnAt[part] = began;
    if (state.ready) parts[part]();
  }
  plan();
}

function showLink() {
  const words = link.up ? state.replay ? 'replay' : 'live' : link.why ? 'not connected' : 'connecting';
  byId('link').dataset.link = link.up ? 'up' : link.why ? 'down' : 'connecting';
  render(html`<span class="mark" aria-hidden="true">${link.up ? '●' : '✕'}</span> ${words}`, byId('link'));
  document.body.classList.toggle('lost', !link.up && link.why !== '');
  const since = state.ready ? ` What is shown is from ${clock(link.since)}.` : '';
  render(link.up || !link.why ? '' : html`<strong>${link.why}.</strong>${since} Trying again…`, byId('banner'));
}

let next; // of a replay: where it goes on
let waits; // the timer after which it does
const begin = followTogether(() => address(state, next?.at, next?.peer), {
  frame(kind, data) {
    if (next && (waits || kind !== 'snapshot')) return; // of the stream before: it would take the handle back
    const first = !state.replay;
    draw(apply(state, kind, data));
    if (kind === 'snapshot' || kind === 'vitals') draw(['curves']);
    if (state.ready && headline(state).key !== said) draw(['overview'], true); // numbers can wait, news cannot
    if (kind === 'snapshot') next = undefined;
    if (!first || !state.replay) return;
    showLink();
    keys.push(...replayKeys);
    showKeys();
  },
  link({up, why}) {
    if (!up && link.up) link.since = Date.now();
    link.up = up;
    link.why = why ?? '';
    showLink();
    draw(['overview']);
  },
});
showLink();
// What is said in words of time ("8 s ago") grows old without a frame, but not while the peer is gone.
function go(at, peer) {
  draw(['replay'], true);
  if (at === undefined) return;
  next = {at, peer: peer ?? next?.peer};
  state.now = at; // a key that is held down goes on from here
  roundView.key = undefined;
  clearTimeout(waits);
  waits = setTimeout(() => { waits = undefined; begin(); }, 100);
}
setInterval(() => { if (link.up) draw(['overview', 'peers']); }, 1000);

// -- keys ---------------------------------------------------------------------------------------------

function goTo(id) {
  byId(`${id}-title`).focus({preventScroll: true});
  byId(id).scrollIntoView({block: 'start'});
}
const onRounds = change => { if (state.rounds.length > 0) { change(); draw(['rounds'], true); } };
const help = /** @type {HTMLDialogElement} */ (byId('help'));

/** @type {[string, string, () => void][]} */
const keys = [
  ['?', 'show or hide this list', () => (help.open ? help.close() : help.showModal())],
  ['p', 'go to the peers', () => goTo('peers')],
  ['o', 'go to the loss', () => goTo('loss')],
  ['c', 'go to the course of the run', () => goTo('curves')],
  ['r', 'go to the rounds', () => goTo('rounds')],
  ['l', 'go to the links', () => goTo('links')],
  ['e', 'go to the events', () => goTo('events')],
  ['ArrowLeft', 'earlier round', () => onRounds(() => step(state, -1))],
  ['ArrowRight', 'later round', () => onRounds(() => step(state, 1))],
  ['f', 'follow the latest round, or stay', () => onRounds(() => { roundView.key = roundView.key === undefined ? state.rounds.at(-1)?.key : undefined; })],
  ['-', 'more rounds on the time axis', () => onRounds(() => zoom(1))],
  ['+', 'fewer rounds on the time axis', () => onRounds(() => zoom(-1))],
  ['/', 'filter the events by text', () => byId('filter')?.focus()],
  ...Object.entries(groups).map(([group, label], i) => /** @type {[string, string, () => void]} */ ([String(i + 1), `show or hide events: ${label.toLowerCase()}`, () => { toggle(group); draw(['events'], true); }])),
  ['Escape', 'clear the filter, close this list', () => { eventView.words = ''; draw(['events'], true); }],
];
/** @type {[string, string, () => void][]} */
const replayKeys = [
  ['k', 'pause the replay, or go on', () => pause(state, go)],
  [',', 'ten seconds back', () => jump(state, go, -1)],
  ['.', 'ten seconds on', () => jump(state, go, 1)],
  ['<', 'slower', () => faster(state, go, -1)],
  ['>', 'faster', () => faster(state, go, 1)],
];
const printed = {ArrowLeft: '←', ArrowRight: '→', Escape: 'Esc'};

const showKeys = () => render(html`<h2 id="help-title">Keys</h2><table>${keys.map(([key, what]) => html`<tr><td><kbd>${printed[key] ?? key}</kbd></td><td>${what}</td></tr>`)}</table>
  <button type="button" @click=${() => help.close()}>Close</button>`, help);
showKeys();
byId('keys').addEventListener('click', () => help.showModal());

addEventListener('keydown', event => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const target = /** @type {HTMLInputElement} */ (event.target);
  const slides = target.type === 'range';
  if (slides && /^(Arrow|Home|End|Page)/.test(event.key)) return;
  const typing = !slides && /^(INPUT|SELECT)$/.test(target.tagName);
  if (typing && event.key !== 'Escape') return;
  if (help.open && event.key !== '?') return;
  const found = keys.find(([key]) => key === event.key || (key === '+' && event.key === '='));
  if (!found) return;
  // In a table that can scroll sideways, arrows scroll.
  if (event.key.startsWith('Arrow') && target.classList?.contains('scroll') && target.scrollWidth > target.clientWidth) return;
  if (typing) target.blur();
  event.preventDefault();
  found[2]();
});
