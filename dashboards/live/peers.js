// Everyone who is here, and who left.

import {html, nothing, svg} from './vendor/lit-html.js';
import {ago, compact, duration, fixed, plural, shortId, whole} from './format.js';
import {epoch, leaving, peerRows} from './state.js';

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

function row(state, p) {
  const behind = epoch(state) === undefined || p.epoch === undefined ? 0 : epoch(state) - p.epoch;
  const tag = p.self ? 'this peer' : roles[p.role] ?? p.role;
  return html`<tr class=${p.slow ? 'slow' : ''} data-peer=${p.id}>
      <th scope="row" title=${`${p.id}${p.address ? '\n' + p.address : ''}`}>${swatch(state, p.id)}<code>${shortId(p.id)}</code>${tag ? html` <span class=${p.self ? 'tag self' : 'tag'}>${tag}</span>` : nothing}</th>
      <td class="text">${stateOf(p)}</td>
      <td>${whole(p.epoch)}${behind > 1 ? html`<span class="behind" title="epochs behind"> −${whole(behind)}</span>` : nothing}</td>
      <td>${compact(p.speed)}</td>
      <td>${fixed(p.loss, 3)}</td>
      <td class="wide">${p.self ? '' : duration(p.rtt)}</td></tr>
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
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Table of ${plural(rows.length, 'peer')}`}><table>
    <thead><tr><th scope="col">Peer</th><th scope="col" class="text"><span class="word">State</span></th><th scope="col">Epoch</th><th scope="col">Samples<wbr>/s</th><th scope="col">Loss</th><th scope="col" class="wide">Round trip</th></tr></thead>
    <tbody>${rows.map(p => row(state, p))}</tbody></table></div>${leftList(state)}`;
}
