// The course of the run from its first epoch on, whoever has joined or restarted since: what /api/v1/curves has, and what came after.

import {html, render} from './vendor/lit-html.js';
import {clock, compact, duration, fixed, number, whole} from './format.js';
import {Chart} from './loss.js';
import {speed} from './state.js';

const points = 300;
const pointsMax = 2000;
const readAgainMs = 60_000;
const retryMs = 10_000;
const columns = ['epoch', 'samples', 't', 'loss', 'eval_loss', 'eval_accuracy', 'learning_rate', 'samples_per_second', 'peers'];

/** @type {Record<string, {label: string, lines: [string, string, string][], higher?: boolean}>} */
const charts = {
  loss: {label: 'Loss', lines: [['loss', 'loss', '--s0'], ['eval_loss', 'held-out', '--s2']]},
  accuracy: {label: 'Held-out accuracy', lines: [['eval_accuracy', 'accuracy', '--s2']], higher: true},
  rate: {label: 'Learning rate', lines: [['learning_rate', 'rate', '--s0']]},
  speed: {label: 'Samples a second', lines: [['samples_per_second', 'of all peers', '--s0']]},
  peers: {label: 'Peers', lines: [['peers', 'peers', '--s0']]},
};
const axes = {epoch: 'Epochs', samples: 'Samples', t: 'Time'};

/** What the user has chosen. `smooth`: the weight of what came before, 0 to 0.98. */
const view = {chart: 'loss', axis: 'epoch', log: false, smooth: 0};

/** The lists of a document, checked and of equal length. */
export function readCurves(raw) {
  const doc = raw !== null && typeof raw === 'object' ? raw : {};
  const lists = columns.map(name => (Array.isArray(doc[name]) ? doc[name] : []));
  /** @type {Record<string, any[]>} */
  const out = Object.fromEntries(columns.map(name => [name, []]));
  for (let i = 0; i < Math.min(lists[0].length, pointsMax); ++i) {
    const row = lists.map(list => number(list[i]));
    if (row.slice(0, 3).some((x, j) => x === undefined || x < (out[columns[j]].at(-1) ?? 0))) continue;
    columns.forEach((name, j) => out[name].push(row[j] ?? null));
  }
  /** @type {Record<string, {epoch: number, value: number}>} */
  const best = {};
  for (const name of ['loss', 'eval_loss', 'eval_accuracy']) {
    const epoch = number(doc.best?.[name]?.epoch, 0);
    const value = number(doc.best?.[name]?.value);
    if (epoch !== undefined && value !== undefined) best[name] = {epoch, value};
  }
  return {columns: out, best};
}

/** A mean in which older values weigh less; each value is that of the points up to it. */
export function smoothed(values, weight) {
  let sum = 0;
  let norm = 0;
  return values.map(x => {
    if (x === null) return null;
    sum = weight * sum + (1 - weight) * x;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

export class RunChart extends Chart {
  constructor(section) {
    super(section.querySelector('.content'));
    this.section = section;
    this.controls = document.createElement('div');
    this.controls.className = 'controls';
    this.readout.before(this.controls);
    this.data = readCurves(undefined);
    this.peer = '';
    this.readAt = -Infinity; // when it is read again
  }

  show(state) {
    this.state = state;
    if (state.self.peer !== this.peer) {
      this.peer = state.self.peer;
      this.data = readCurves(undefined);
      this.readAt = -Infinity;
    }
    if (state.replay) { // no log has them
      this.section.hidden = true;
      return;
    }
    if (performance.now() >= this.readAt) this.read();
    this.append(state);
    this.draw();
  }

  async read() {
    this.readAt = performance.now() + retryMs;
    const {peer} = this;
    try {
      const answer = await fetch(`api/v1/curves?points=${points}`, {cache: 'no-store'});
      const data = readCurves(await answer.json());
      if (!answer.ok || peer !== this.peer) return;
      this.data = data;
      if (data.columns.epoch.length > 2) this.readAt = performance.now() + readAgainMs;
      this.draw();
    } catch { /* the page says so itself if the peer is gone */ }
  }

  /** The present status as a further point. */
  append(state) {
    const {columns: c, best} = this.data;
    const s = state.status;
    const last = c.epoch.at(-1);
    if (last === undefined || s.loss === undefined || !(s.epoch > last) || c.epoch.length >= pointsMax) return;
    const measured = s.eval_epoch !== undefined && s.eval_epoch > (this.measured ?? last);
    if (measured) this.measured = s.eval_epoch;
    const now = {epoch: s.epoch, samples: c.samples.at(-1) + (s.effective_batch ?? 0) * (s.epoch - last), t: Math.max(state.now, c.t.at(-1)), loss: s.loss,
      eval_loss: measured ? s.eval_loss : undefined, eval_accuracy: measured ? s.eval_accuracy : undefined, learning_rate: s.learning_rate, samples_per_second: speed(state), peers: s.peers};
    for (const name of columns) c[name].push(now[name] ?? null);
    for (const [name, higher] of /** @type {[string, boolean][]} */ ([['loss', false], ['eval_loss', false], ['eval_accuracy', true]])) {
      const value = now[name];
      const known = best[name]?.value;
      if (value !== undefined && (known === undefined || (higher ? value > known : value < known))) best[name] = {epoch: s.epoch, value};
    }
  }

  draw() {
    const {data} = this;
    this.section.hidden = data.columns.epoch.length === 0;
    if (this.section.hidden) return;
    this.drawControls();
    const {axis, log, smooth} = view;
    const {lines} = charts[view.chart];
    const shown = values => (log ? values.map(x => (x !== null && x > 0 ? x : null)) : values);
    const known = lines.filter(([name]) => data.columns[name].some(x => x !== null));
    const rows = [data.columns[axis].map(x => (axis === 't' ? x / 1000 : x))];
    for (const [name] of known) {
      rows.push(shown(data.columns[name]));
      if (smooth > 0) rows.push(shown(smoothed(data.columns[name], smooth)));
    }
    this.best = known.map(([name]) => name).reverse().find(name => data.best[name]);
    if (this.best) {
      const {epoch, value} = data.best[this.best];
      const at = data.columns.epoch.findIndex(x => x >= epoch);
      rows.push(shown(data.columns.epoch.map((_, i) => (i === at ? value : null))));
    }
    this.plotted([view.chart, axis, log, smooth > 0, known.length, this.best].join(), rows, (color, axis) => this.options(known, rows[0].length < 3, color, axis));
  }

  drawControls() {
    const set = change => { change(); this.draw(); };
    render(html`<label>Show <select @change=${e => set(() => { view.chart = e.target.value; })}>${Object.entries(charts).map(([name, {label}]) => html`<option value=${name} ?selected=${name === view.chart}>${label}</option>`)}</select></label>
      <span class="group" role="group" aria-label="Over">${Object.entries(axes).map(([name, label]) => html`<button type="button" aria-pressed=${String(view.axis === name)} @click=${() => set(() => { view.axis = name; })}>${label}</button>`)}</span>
      <button type="button" aria-pressed=${String(view.log)} @click=${() => set(() => { view.log = !view.log; })}>Log scale</button>
      <label>Smoothing <input type="range" min="0" max="0.98" step="0.02" .value=${String(view.smooth)} @input=${e => set(() => { view.smooth = Number(e.target.value); })}></label>`, this.controls);
  }

  options(known, few, color, axis) {
    const series = known.flatMap(([name, , stroke]) => {
      const line = {stroke: color(stroke), dash: stroke === '--s2' ? [7, 4] : [], width: 1.6, spanGaps: true, points: {show: few || name.startsWith('eval_') ? undefined : false, size: 4}};
      return view.smooth > 0 ? [{...line, stroke: color('--rest'), width: 0.8}, {...line, points: {show: false}}] : [line];
    });
    if (this.best) series.push({stroke: color('--good'), width: 0, spanGaps: false, points: {show: true, size: 9, width: 2, fill: color('--panel')}});
    const dates = [[86400, '{MMM} {D}', null, null, null, null, null, null, 1], [60, '{HH}:{mm}', '\n{MMM} {D}', null, null, null, null, null, 1], [1, '{HH}:{mm}:{ss}', null, null, null, null, null, null, 1]];
    return {
      scales: {x: {time: view.axis === 't'}, y: {distr: view.log ? 3 : 1}},
      axes: [{...axis, space: 90, values: view.axis === 't' ? dates : (_, all) => all.map(x => compact(x))}, {...axis, size: 52, values: (_, all) => all.map(x => (x === null ? '' : Number(x.toPrecision(4)).toString()))}],
      series: [{}, ...series],
    };
  }

  /** The values at the pointer, or the last ones, and the best. */
  describe(at) {
    const {columns: c, best} = this.data;
    const i = Math.min(at ?? Infinity, c.epoch.length - 1);
    const {label, lines} = charts[view.chart];
    const value = (name, j) => { let k = j; while (k > 0 && c[name][k] === null) --k; return c[name][k] ?? undefined; };
    const digits = view.chart === 'loss' || view.chart === 'accuracy' ? 3 : 2;
    const named = lines.map(([name, what, stroke]) => ({name, what, stroke, now: name.startsWith('eval_') || at === undefined ? value(name, i) : c[name][i] ?? undefined})).filter(x => x.now !== undefined);
    const text = (name, x) => (name === 'learning_rate' ? String(Number(x.toPrecision(3))) : name === 'samples_per_second' || name === 'peers' ? compact(x) : fixed(x, digits));
    render(html`<span>epoch ${whole(c.epoch[i])}</span><span>${compact(c.samples[i])} samples</span><time>${clock(c.t[i], this.state.now)}, after ${duration(c.t[i] - c.t[0])}</time>
      ${named.map(x => html`<span class="key"><svg class="swatch" viewBox="0 0 18 8" aria-hidden="true"><line class=${'line ' + x.stroke.slice(2)} y1="4" x2="18" y2="4"></line></svg>${x.what} <b>${text(x.name, x.now)}</b></span>`)}
      ${this.best ? html`<span class="key best">◯ best ${this.best === 'loss' ? 'loss' : 'held-out'} <b>${text(this.best, best[this.best].value)}</b> at epoch ${whole(best[this.best].epoch)}</span>` : ''}
      ${named.length === 0 ? html`<span>${view.chart === 'accuracy' ? 'No accuracy yet: --eval-data measures it.' : 'Not known yet.'}</span>` : ''}`, this.readout);
    this.place.setAttribute('role', 'img');
    const first = lines.map(([name]) => c[name].find(x => x !== null)).find(x => x !== undefined);
    this.place.setAttribute('aria-label', `${label} over ${axes[view.axis].toLowerCase()}, epoch ${whole(c.epoch[0])} to ${whole(c.epoch.at(-1))}${first === undefined ? '' : `: from ${text(lines[0][0], first)} to ${named.length > 0 ? text(named[0].name, named[0].now) : 'now'}`}${this.best ? `, best ${text(this.best, best[this.best].value)}` : ''}`);
  }
}
