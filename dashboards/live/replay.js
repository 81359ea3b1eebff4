// The bar of a replay: what time it is in the recording, how fast time goes, and whose page is shown.

import {html, nothing} from './vendor/lit-html.js';
import {clock, duration, shortId} from './format.js';

const speeds = [1, 10, 100, 1000];
const stepMs = 10_000;

/** What the user has chosen. `at`: where the handle of the slider is while it is dragged. */
/** @type {{speed: number, paused: boolean, at: number | undefined}} */
export const view = {speed: 1, paused: false, at: undefined};

/** The stream of a peer, or of its recording from `at` on. */
export function address(state, at = state.now, peer = state.self.peer) {
  return state.replay ? `api/v1/events?at=${Math.round(at)}&speed=${view.paused ? 0 : view.speed}&peer=${peer}` : 'api/v1/events';
}

const spoken = (t, {from, to}) => `${clock(t, to)}, ${duration(t - from)} of ${duration(to - from)}`;

/** `go(at, peer)` begins the stream anew. */
export function replayBar(state, go) {
  const {replay} = state;
  if (!replay) return nothing;
  const at = view.at ?? Math.min(Math.max(state.now, replay.from), replay.to);
  const drag = e => { view.at = Number(e.target.value); go(undefined); };
  const drop = e => { view.at = undefined; go(Number(e.target.value)); };
  return html`
    <button type="button" aria-keyshortcuts="k" aria-pressed=${String(view.paused)} @click=${() => pause(state, go)}>Pause</button>
    <time>${clock(at, replay.to)}</time>
    <input id="time" type="range" list="marks" min=${replay.from} max=${replay.to} step="100" aria-label="Time of the recording" aria-valuetext=${spoken(at, replay)} .value=${String(at)} @input=${drag} @change=${drop}>
    <datalist id="marks">${replay.marks.map(x => html`<option value=${x.t} label=${x.what}></option>`)}</datalist>
    <span class="quiet">${duration(replay.to - replay.from)}</span>
    <span class="group" role="group" aria-label="Speed">${speeds.map(x => html`<button type="button" aria-pressed=${String(view.speed === x)} @click=${() => setSpeed(state, go, x)}>×${x}</button>`)}</span>
    <label>Page of <select @change=${e => go(state.now, e.target.value)}>${replay.peers.map(id => html`<option value=${id} ?selected=${id === state.self.peer}>${shortId(id)}</option>`)}</select></label>`;
}

function setSpeed(state, go, speed) {
  view.speed = speed;
  view.paused = false;
  go(state.now);
}

export function pause(state, go) {
  view.paused = !view.paused;
  go(state.now);
}

export const jump = (state, go, by) => go(Math.min(Math.max(state.now + by * stepMs, state.replay.from), state.replay.to));

export const faster = (state, go, by) => setSpeed(state, go, speeds[Math.min(Math.max(speeds.indexOf(view.speed) + by, 0), speeds.length - 1)]);
