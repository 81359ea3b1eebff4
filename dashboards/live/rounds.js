// The last rounds: a strip to choose from, and a waterfall of the chosen ones, a row for each member.

import {html, nothing, svg} from './vendor/lit-html.js';
import {bytes, clock, duration, median, plural, shortId} from './format.js';
import {activities, swatch} from './peers.js';

const spans = ['round', 1, 4, 16]; // a round alone, or epochs
const width = 1000; // of the waterfall, in its own units

/** What the user looks at; `key`: a round, or nothing for the latest. */
/** @type {{key: string | undefined, span: number | string}} */
export const view = {key: undefined, span: 1};

/** The rounds that are shown, oldest first, and the place of the last of them. */
export function shown(state) {
  const all = state.rounds;
  let at = view.key === undefined ? all.length - 1 : all.findIndex(r => r.key === view.key);
  if (at < 0) at = view.key === undefined ? -1 : 0; // it fell out of the memory: the oldest that is left
  return {at, rounds: all.slice(Math.max(0, at + 1 - (Number(view.span) || 1)), at + 1)};
}

export function step(state, by) {
  const {at} = shown(state);
  const next = Math.max(0, Math.min(state.rounds.length - 1, at + by));
  view.key = next === state.rounds.length - 1 ? undefined : state.rounds[next]?.key;
}

export function zoom(by) {
  view.span = spans[Math.max(0, Math.min(spans.length - 1, spans.indexOf(view.span) + by))];
}

const outcomes = {complete: 'complete', shrunk: 'complete without some members', failed: 'failed'};
const outcomeMark = r => (r.outcome === 'complete' ? '●' : r.outcome === 'failed' ? '■' : '▲');

function strip(state, chosen, pick) {
  const all = state.rounds;
  const durations = all.map(r => r.duration);
  const longest = Math.max(...durations, 1e-3);
  const top = Math.min(longest, 5 * Math.max(median(durations) ?? 0, 1e-3)); // one that waited for a lost peer leaves the others their height
  const step_ = width / 64;
  const left = width - all.length * step_;
  const paths = {complete: '', shrunk: '', failed: ''};
  let marked = '';
  all.forEach((r, i) => {
    const h = Math.max(2, 38 * Math.min(1, r.duration / top));
    const x = left + i * step_;
    const w = step_ - 4;
    const head = r.duration > top ? `l${(w / 2).toFixed(1)} 5l${(w / 2).toFixed(1)} -5` : `h${w.toFixed(1)}`; // one that is cut looks cut
    const d = `M${(x + 2).toFixed(1)} ${(40 - h).toFixed(1)}${head}v${h.toFixed(1)}h${(-w).toFixed(1)}z`;
    const name = r.outcome in paths ? r.outcome : 'shrunk';
    paths[name] += d + (name === 'failed' ? `M${(x + 2).toFixed(1)} 0h${(step_ - 4).toFixed(1)}v3h${(4 - step_).toFixed(1)}z` : '');
    if (chosen.includes(r)) marked += `M${x.toFixed(1)} 42h${step_.toFixed(1)}v3h-${step_.toFixed(1)}z`;
  });
  const click = e => {
    const box = e.currentTarget.getBoundingClientRect();
    pick(all[Math.floor(((e.clientX - box.left) / box.width * width - left) / step_)]);
  };
  const text = `The last ${plural(all.length, 'round')}; the longest took ${duration(longest)}${longest > top ? `, and bars end at ${duration(top)}` : ''}. ← and → choose one.`;
  return html`<svg class="strip" viewBox="0 0 ${width} 45" preserveAspectRatio="none" role="img" aria-label=${text} @click=${click}><title>${text}</title>
    ${Object.entries(paths).map(([name, d]) => (d ? svg`<path class=${name} d=${d}/>` : nothing))}
    <path class="chosen" d=${marked}/></svg>`;
}

function niceStep(span) {
  const raw = span / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map(x => x * power).find(x => x >= raw) ?? 10 * power;
}

function axis(span) {
  const every = niceStep(span);
  const ticks = [];
  for (let t = 0; t <= span * 0.97; t += every) ticks.push(t);
  return html`<div class="axis" aria-hidden="true"><div>${ticks.map(t => html`<span .style=${`left:${(100 * t / span).toFixed(2)}%`}>${t === 0 ? '0' : duration(t)}</span>`)}</div></div>`;
}

/** An end that lies outside is a notch. */
function bar(from, to, t0, span, y, h) {
  if (to < t0 || from > t0 + span) return '';
  const a = Math.max(0, (from - t0) / span * width);
  const b = Math.min(width, Math.max(a + 3, (to - t0) / span * width));
  const cut = x => `L${x.toFixed(1)} ${y + h / 2}`;
  return `M${a.toFixed(1)} ${y}H${b.toFixed(1)}${to > t0 + span + 1e-3 ? cut(b - 8) : ''}L${b.toFixed(1)} ${y + h}H${a.toFixed(1)}${from < t0 - 1e-3 ? cut(a + 8) : ''}z`;
}

/** What this peer did on the time axis. */
function ownTime(rounds, t0, span) {
  const paths = Object.fromEntries(activities.map(name => [name, '']));
  const took = Object.fromEntries(activities.map(name => [name, 0]));
  for (const r of rounds) {
    for (const x of r.spans) {
      paths[x.what] += bar(r.began + x.from, r.began + x.to, t0, span, 2, 12);
      took[x.what] += x.to - x.from;
    }
    if (r.spans.length > 0 && r.agreement > 0) paths.agreement += bar(r.began + r.duration - r.agreement, r.began + r.duration, t0, span, 2, 12);
  }
  const words = activities.filter(name => took[name] > 0).map(name => `${name} ${duration(took[name])}`);
  if (words.length === 0) return nothing;
  const [most] = activities.filter(name => took[name] > 0).sort((a, b) => took[b] - took[a]);
  return html`<div class="member own" role="listitem" aria-label=${`This peer: ${words.join(', ')}`}><span class="who">time<span class="wide"> of this peer</span></span>
    <svg viewBox="0 0 ${width} 16" preserveAspectRatio="none" aria-hidden="true">${activities.map(name => (paths[name] ? svg`<path class="a-${name}" d=${paths[name]}/>` : nothing))}</svg>
    <span class="lag">${most} ${duration(took[most])}</span></div>`;
}

/** Everyone who was in one of the rounds, in the order of the list of peers: slow ones are not below the edge. */
function membersOf(state, rounds) {
  const out = new Map();
  for (const r of [...rounds].reverse()) for (const m of r.members) if (!out.has(m.peer)) out.set(m.peer, m);
  const isSlow = m => (state.peers.get(m.peer)?.slow ? 1 : 0);
  return [...out.values()].sort((a, b) => b.self - a.self || isSlow(b) - isSlow(a) || (a.peer < b.peer ? -1 : 1));
}

function waterfall(state, rounds) {
  const t0 = rounds[0].began + (view.span === 'round' ? 0 : Math.min(0, ...rounds[0].spans.slice(0, 1).map(x => x.from), -(rounds[0].search ?? 0)));
  const last = rounds.at(-1);
  const span = Math.max(...rounds.map(r => r.began - t0 + Math.max(r.duration, ...r.members.map(m => m.resultLast ?? m.last ?? 0))), 0.1);
  const rows = membersOf(state, rounds);
  const late = last.members.filter(m => m.last !== undefined && !m.self);
  const slowest = late.length > 1 ? late.reduce((a, b) => (b.last > a.last ? b : a)) : undefined;
  const lag = slowest && last.usualLast !== undefined ? slowest.last - last.usualLast : 0;
  const stands = slowest && lag > 0.1 * last.duration;
  let ends = '';
  for (const r of rounds) ends += `M${Math.min(width - 1, (r.began - t0 + r.duration) / span * width).toFixed(1)} 0v16`;
  return html`<div class="waterfall" role="list" aria-label="Members of the round">
    ${axis(span)}
    ${ownTime(rounds, t0, span)}
    ${rows.map(m => {
      let sent = '';
      let results = '';
      for (const r of rounds) {
        const x = r.by.get(m.peer);
        if (!x) continue;
        const at = r.began;
        if (x.first !== undefined && x.last !== undefined) sent += bar(at + x.first, at + x.last, t0, span, 2, 6);
        if (x.resultFirst !== undefined && x.resultLast !== undefined) results += bar(at + x.resultFirst, at + x.resultLast, t0, span, 9, 5);
      }
      const isLate = stands && m.peer === slowest.peer;
      const own = last.by.get(m.peer);
      const end = own?.last;
      const note = !own ? 'not in this round' : isLate ? `+${duration(lag)}` : end !== undefined ? duration(end) : own.contributed || own.self ? '' : 'nothing came';
      const words = `${m.self ? 'this peer' : 'peer ' + shortId(m.peer)}: ${own?.first === undefined ? 'no part came' : `parts from ${duration(own.first)} to ${duration(own.last)}`}${own?.resultLast === undefined ? '' : `, results until ${duration(own.resultLast)}`}${isLate ? ', the slowest' : ''}`;
      return html`<div class="member ${isLate ? 'late' : ''}" role="listitem" aria-label=${words} data-member=${m.peer}>
        <span class="who">${swatch(state, m.peer)}<code>${shortId(m.peer)}</code>${m.self ? html` <span class="tag">this peer</span>` : nothing}${own?.reduces === false ? html` <span class="tag">does not reduce</span>` : nothing}</span>
        <svg viewBox="0 0 ${width} 16" preserveAspectRatio="none" aria-hidden="true"><path class="end" d=${ends}/><path class="sent" d=${sent}/><path class="result" d=${results}/></svg>
        <span class="lag">${isLate ? html`<span aria-hidden="true">▲</span> ` : nothing}${note}</span></div>`;
    })}</div>`;
}

function facts(r, self) {
  const parts = [['search', r.search], ['agreement', r.agreement], ['recovery', r.recovery]].filter(([, v]) => v > 0.005);
  const moved = r.members.reduce((a, m) => a + (m.bytesIn ?? 0), 0);
  return html`<p class="facts" data-round=${r.id}><span class="outcome ${r.outcome}"><span aria-hidden="true">${outcomeMark(r)}</span> ${outcomes[r.outcome] ?? r.outcome}${r.reason ? `: ${r.reason}` : nothing}</span>
    <span><code>${shortId(r.id)}</code> ${r.kind}</span>${r.epoch === undefined ? nothing : html`<span>epoch ${r.epoch}</span>`}
    <span>${clock(r.began)}</span><span>${duration(r.duration)}</span>${parts.map(([name, v]) => html`<span>${name} ${duration(v)}</span>`)}
    ${r.by.get(self)?.reduces === false && r.usualLast === undefined ? html`<span>this peer reduces nothing, so it sees results only</span>` : nothing}
    ${moved > 0 ? html`<span>${bytes(moved)} received</span>` : nothing}</p>`;
}

export function rounds(state, refresh) {
  const {at, rounds: chosen} = shown(state);
  if (chosen.length === 0)
    return html`<p class="empty">${state.self.role === 'node' ? 'This node has reduced in no round yet; rounds of the trainers among themselves are shown on their own pages.' : 'No round has ended yet.'}</p>`;
  const act = change => () => { change(); refresh(); };
  const pick = r => { if (r) { view.key = r === state.rounds.at(-1) ? undefined : r.key; refresh(); } };
  return html`
    <div class="controls">
      <button type="button" aria-label="Earlier round" ?disabled=${at <= 0} @click=${act(() => step(state, -1))}>←</button>
      <button type="button" aria-label="Later round" ?disabled=${view.key === undefined} @click=${act(() => step(state, 1))}>→</button>
      <button type="button" aria-pressed=${String(view.key === undefined)} @click=${act(() => { view.key = view.key === undefined ? state.rounds.at(-1).key : undefined; })}>Follow</button>
      <span class="group" role="group" aria-label="What the time axis spans: a round, or epochs">${spans.map(n => html`<button type="button" aria-pressed=${String(view.span === n)} @click=${act(() => { view.span = n; })}>${n}</button>`)}</span>
      <span class="legend"><span class="key"><i class="sent"></i> parts came</span><span class="key"><i class="result"></i> results came</span></span>
    </div>
    ${strip(state, chosen, pick)}
    ${facts(chosen.at(-1), state.self.peer)}
    <div class="scroll" tabindex="0" role="region" aria-label="Waterfall of the round">${waterfall(state, chosen)}</div>`;
}
