// Everyone who is here, and who left.

import {html, nothing, svg} from './vendor/lit-html.js';
import {ago, compact, duration, fixed, percent, plural, shortId, whole} from './format.js';
import {differing, epoch, leaving, peerRows} from './state.js';

const glyphs = {training: '●', averaging: '◐', starting: '○', joining: '○', syncing: '◌', finished: '■', stopped: '■', paused: '‖'};

/** The line by which the chart shows a peer. */
export function swatch(state, id) {
  const slot = state.slots.get(id);
  return html`<svg class="swatch" viewBox="0 0 18 8" aria-hidden="true">${svg`<path class="line ${slot === undefined ? 'rest' : 's' + slot}" d="M0 4H18"/>`}</svg>`;
}

const roles = {client: 'client', node: 'node', trainer: ''};

function stateOf(p) {
  const word = p.state || (p.role === 'node' ? 'reducing' : p.connected ? 'linked' : 'known');
  return html`<span class="glyph" aria-hidden="true">${glyphs[p.state] ?? '·'}</span> <span class="word">${word}</span>`;
}

export const activities = ['pass', 'update', 'round', 'agreement', 'search', 'download', 'idle'];
const key = name => html`<span class="key"><i class="a-${name}"></i> ${name}</span>`;

/** Where the time of the last minute went, as a bar. */
function timeBar(p) {
  const of = new Map(p.time);
  if (of.has('agreement')) of.set('round', Math.max(0, (of.get('round') ?? 0) - of.get('agreement'))); // a part of it
  const shown = activities.filter(name => of.get(name) > 0.0005);
  let at = 0;
  const parts = shown.map(name => ({name, from: at, to: at += 100 * of.get(name)}));
  return html`<svg class="time" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=${`Time of the last minute: ${shown.map(name => `${name} ${percent(of.get(name))}`).join(', ')}`}>
    ${parts.map(({name, from, to}) => svg`<path class="a-${name}" d=${`M${from.toFixed(2)} 0H${to.toFixed(2)}V8H${from.toFixed(2)}z`}><title>${name} ${percent(of.get(name))}</title></path>`)}</svg>`;
}

const machineWords = {memory: 'memory', disk: 'disk', load: 'load', gpu: 'GPU', gpu_memory: 'GPU memory'};

/** Where its time goes, its machine, and settings in which it differs from the others. */
function more(p, differs) {
  if (p.time.size + p.machine.size + differs.length === 0) return nothing;
  return html`<tr class="more ${p.slow ? 'slow' : ''}"><td colspan="6"><div>${p.time.size > 0 ? timeBar(p) : nothing}
    <span class="machine quiet">${Object.entries(machineWords).filter(([name]) => p.machine.has(name)).map(([name, word]) => {
      const x = p.machine.get(name);
      return html`<span class=${x > 0.9 && /memory|disk/.test(name) ? 'far' : ''}>${word} ${name === 'load' ? fixed(x, 1) : percent(x)}</span> `;
    })}</span>${differs.map(([name, value, others]) => html`<span class="tag differs"><span aria-hidden="true">≠</span> ${name} ${value}, others ${others}</span>`)}</div></td></tr>`;
}

/** The page of a peer at the address that it claims; undefined: none is known. An address of loopback is on the machine of this page. */
export function pageAt(address, here = location.hostname) {
  const [, host, port] = /^(\[[\da-f:.]+\]|[\w.-]+):(\d{1,5})$/i.exec(address) ?? [];
  if (!host) return undefined;
  return `http://${/^(127\.|localhost$|\[::1\])/i.test(host) ? here : host}:${port}/`;
}

function id(state, p) {
  const code = html`<code>${shortId(p.id)}</code>`;
  const page = p.self || state.replay ? undefined : pageAt(p.address);
  return page ? html`<a href=${page} rel="noopener noreferrer" title="The page of this peer">${code}</a>` : code;
}

function row(state, p, differs) {
  const behind = epoch(state) === undefined || p.epoch === undefined ? 0 : epoch(state) - p.epoch;
  const tag = p.self ? 'this peer' : roles[p.role] ?? p.role;
  return html`<tr class=${p.slow ? 'slow' : ''} data-peer=${p.id}>
      <th scope="row" title=${`${p.id}${p.address ? '\n' + p.address : ''}`}>${swatch(state, p.id)}${id(state, p)}${tag ? html` <span class=${p.self ? 'tag self' : 'tag'}>${tag}</span>` : nothing}</th>
      <td class="text">${stateOf(p)}</td>
      <td>${whole(p.epoch)}${behind > 1 ? html`<span class="behind" title="epochs behind"> −${whole(behind)}</span>` : nothing}</td>
      <td>${compact(p.speed)}</td>
      <td>${fixed(p.loss, 3)}</td>
      <td class="wide">${p.self ? '' : duration(p.rtt)}</td></tr>
    ${more(p, differs)}
    ${p.left ? html`<tr class="why"><td colspan="6" class="quiet">${leaving(state, p.left)}; it is back</td></tr>` : nothing}
    ${p.slow ? html`<tr class="why"><td colspan="6"><span aria-hidden="true">▲</span> slow: ${p.slow.text || p.slow.cause}</td></tr>` : nothing}`;
}

function leftList(state) {
  const gone = state.left;
  if (gone.length === 0) return nothing;
  return html`<h3>Left, and not back <span class="count">${gone.length}</span></h3>
    <ul class="left" tabindex="0" aria-label="Peers that left">${gone.map(x => html`<li data-left=${x.peer}><span class="glyph" aria-hidden="true">${x.lost ? '✕' : '■'}</span> <code title=${x.peer}>${shortId(x.peer)}</code>
      <span class="reason">${leaving(state, x)}</span> <span class="quiet">${ago(Math.max(0, state.now - x.t))}</span></li>`)}</ul>`;
}

export function peers(state) {
  const rows = peerRows(state);
  if (rows.length === 0 && state.left.length === 0)
    return html`<p class="empty">No peer is known yet. Others appear here once they have joined.</p>`;
  const differs = differing(state);
  const times = rows.some(p => p.time.size > 0);
  return html`${times ? html`<p class="legend">Time of the last minute: ${activities.map(key)}</p>` : nothing}
    <div class="scroll" tabindex="0" role="region" aria-label=${`Table of ${plural(rows.length, 'peer')}`}><table>
    <thead><tr><th scope="col">Peer</th><th scope="col" class="text"><span class="word">State</span></th><th scope="col">Epoch</th><th scope="col">Samples<wbr>/s</th><th scope="col">Loss</th><th scope="col" class="wide">Round trip</th></tr></thead>
    <tbody>${rows.map(p => row(state, p, differs.get(p.id) ?? []))}</tbody></table></div>${leftList(state)}`;
}
