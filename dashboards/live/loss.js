// Loss over the time of day, a line for each peer.

import {html, render} from './vendor/lit-html.js';
import {clock, fixed, shortId} from './format.js';
import {isNode, slotsMax, trainers} from './state.js';
import {swatch} from './peers.js';

const dashes = [[], [], [7, 4], [2, 3], [10, 3, 2, 3], [5, 5], [1, 4], [12, 4]];

/** A chart of uPlot's below a line of text with the values at the pointer. */
export class Chart {
  constructor(box) {
    this.readout = document.createElement('p');
    this.readout.className = 'legend readout';
    this.place = document.createElement('div');
    this.place.className = 'chart';
    box.append(this.readout, this.place);
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.place);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { this.drawn = ''; this.draw(); });
  }

  /** Shows what is known once more. */
  draw() {}

  /** The values at this place of the rows, or the last ones. */
  describe(_at) {}

  size() {
    return {width: this.place.clientWidth || 300, height: Math.max(220, this.place.clientHeight)};
  }

  /** Shows `rows`. The plot is made anew, with `options`, where `drawn`, which names what it shows, has changed. */
  plotted(drawn, rows, options) {
    if (drawn === this.drawn) {
      this.plot.setData(rows);
    } else {
      this.drawn = drawn;
      this.plot?.destroy();
      const style = getComputedStyle(document.documentElement);
      const color = name => style.getPropertyValue(name).trim();
      const axis = {stroke: color('--quiet'), grid: {stroke: color('--line'), width: 1}, ticks: {show: false}, font: `11px ${color('--sans')}`};
      this.plot = new uPlot({...this.size(), legend: {show: false}, padding: [8, 28, 0, 0], cursor: {y: false, drag: {x: false, y: false}, points: {size: 5}},
        hooks: {setCursor: [u => this.describe(u.cursor.idx ?? undefined)]}, ...options(color, axis)}, rows, this.place);
    }
    this.describe(this.plot.cursor?.idx ?? undefined);
  }
}

export class LossChart extends Chart {
  ids = /** @type {string[]} */ ([]);

  draw() {
    if (this.state) this.show(this.state);
  }

  show(state) {
    this.state = state;
    const ids = [...state.loss.of.keys()].sort((a, b) => (state.slots.get(b) ?? slotsMax) - (state.slots.get(a) ?? slotsMax)); // own line last: on top
    const times = state.loss.t.map(t => t / 1000);
    if (ids.length === 0) {
      this.plot?.destroy();
      this.plot = undefined;
      this.drawn = '';
      this.place.removeAttribute('role');
      render(isNode(state) ? 'A node has no model and no loss. Those of the trainers appear here once they report them.' : 'No loss yet: it appears after the first pass.', this.readout);
      return;
    }
    this.ids = ids;
    const data = [times, state.loss.low, state.loss.high, ...ids.map(id => state.loss.of.get(id))];
    this.plotted(ids.map(id => id + (state.slots.get(id) ?? '')).join(), data, (color, axis) => this.options(state, times.length < 3, color, axis));
  }

  options(state, few, color, axis) {
    const rest = {stroke: color('--rest'), width: 1, points: {show: false}};
    return {
      scales: {x: {time: true}},
      axes: [{...axis, space: 90, values: [[86400, '{MMM} {D}', null, null, null, null, null, null, 1], [60, '{HH}:{mm}', null, null, null, null, null, null, 1],
        [1, '{HH}:{mm}:{ss}', null, null, null, null, null, null, 1]]}, {...axis, size: 46}],
      series: [{}, rest, rest, ...this.ids.map(id => {
        const slot = state.slots.get(id);
        return {stroke: color(slot === undefined ? '--rest' : `--s${slot}`), width: id === state.self.peer ? 2.2 : slot === undefined ? 0.7 : 1.3, dash: dashes[slot ?? 0],
          points: {show: few}, spanGaps: true};
      })],
      bands: [{series: [2, 1], fill: color('--band')}],
    };
  }

  describe(at) {
    const {state} = this;
    const {t, of, low, high} = state.loss;
    const i = at ?? t.length - 1;
    const named = this.ids.map(id => ({id, value: of.get(id)?.[i]})).filter(x => x.value !== null && x.value !== undefined);
    const first = named.filter(x => state.slots.has(x.id)).sort((a, b) => state.slots.get(a.id) - state.slots.get(b.id)).slice(0, 5);
    const all = [...named.map(x => x.value), ...[low[i], high[i]].filter(x => x !== null)];
    const more = trainers(state).filter(p => p.loss !== undefined).length - first.length;
    render(html`<time>${clock(t[i], state.now)}</time>${first.map(x => html`<span class="key">${swatch(state, x.id)} <code>${x.id === state.self.peer ? 'this peer' : shortId(x.id)}</code> ${fixed(x.value, 3)}</span>`)}
      ${more > 0 && at === undefined ? html`<span class="key">${low[i] === null ? '' : html`<i class="band"></i> `}${more} more; all ${fixed(Math.min(...all))} to ${fixed(Math.max(...all))}</span>` : ''}`, this.readout);
    this.place.setAttribute('role', 'img');
    const own = of.get(state.self.peer)?.filter(x => x !== null);
    this.place.setAttribute('aria-label', own?.length ? `Loss of this peer from ${fixed(own[0], 3)} to ${fixed(own.at(-1), 3)}` : `Loss of ${first.length + Math.max(0, more)} peers, now ${fixed(Math.min(...all))} to ${fixed(Math.max(...all))}`);
  }
}
