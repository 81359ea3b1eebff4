// A matrix of what this peer sees of its links: one row a peer, the last rounds as columns.

import {html, nothing, svg} from './vendor/lit-html.js';
import {bytes, duration, median, shortId} from './format.js';
import {lateness, peerRows} from './state.js';
import {swatch} from './peers.js';

const columns = 16;
/** @type {((x: number) => string)[]} By shade, the last for a round without this peer. */
const shapes = [x => `M${x + 1} 6h8v4h-8z`, x => `M${x + 1} 4h8v8h-8z`, x => `M${x + 1} 1h8v14h-8z`, x => `M${x + 1} 1h8v14h-8z`,
  x => `M${x + 1.5} 4.5l1.5-1.5 2 2 2-2 1.5 1.5-2 2.5 2 2.5-1.5 1.5-2-2-2 2-1.5-1.5 2-2.5z`, x => `M${x + 4} 7h2v2h-2z`];
const names = ['in time', 'late by a tenth of the round', 'late by a quarter', 'late by half or more', 'nothing came'];

/** One path for each shade: a row is six elements, however many rounds it shows. */
function heat(cells) {
  const paths = shapes.map(() => '');
  cells.forEach((cell, i) => {
    const shade = cell === null ? 5 : cell;
    paths[shade] += shapes[shade]((columns - cells.length + i) * 10);
  });
  const late = cells.filter(c => c !== null && c > 0).length;
  const seen = cells.filter(c => c !== null).length;
  const worst = Math.max(0, ...cells.filter(c => c !== null));
  const words = seen === 0 ? 'in none of the last rounds' : late === 0 ? `in time in all of ${seen} rounds` : `late in ${late} of ${seen} rounds; at worst ${names[worst]}`;
  return html`<svg class="heat" viewBox="0 0 ${columns * 10} 16" role="img" aria-label=${words}>
    ${paths.map((d, i) => (d ? svg`<path class="h${i}" d=${d}/>` : nothing))}</svg>`;
}

export function links(state) {
  const others = peerRows(state).filter(p => !p.self);
  if (others.length === 0) return html`<p class="empty">This peer has no link to another one.</p>`;
  const cells = lateness(state);
  const usual = median(others.map(p => p.rtt).filter(x => x !== undefined));
  const far = p => p.rtt !== undefined && usual !== undefined && p.rtt > 3 * usual && p.rtt > 5;
  return html`<p class="legend">Last parts of the last ${columns} rounds: ${[['in time', 0], ['late', 1], ['by half a round', 3], ['nothing came', 4]].map(([word, shade]) =>
      html`<span class="key"><svg viewBox="0 0 10 16" aria-hidden="true">${svg`<path class="h${shade}" d=${shapes[shade](0)}/>`}</svg> ${word}</span>`)}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Matrix of links"><table>
    <thead><tr><th scope="col">To</th><th scope="col" class="text wide">By</th><th scope="col">Round trip</th><th scope="col">In/s</th><th scope="col">Out/s</th><th scope="col" class="rounds">Rounds</th></tr></thead>
    <tbody>${others.map(p => html`<tr class=${p.connected ? '' : 'off'} data-link-to=${p.id}><th scope="row" title=${p.id}>${swatch(state, p.id)}<code>${shortId(p.id)}</code></th>
      <td class="text wide">${p.connected ? (p.link || 'link').replace('shared ', '') : 'no link'}</td><td class=${far(p) ? 'far' : ''}>${duration(p.rtt)}</td><td>${bytes(p.bytesIn)}</td><td>${bytes(p.bytesOut)}</td>
      <td class="rounds">${heat(cells.get(p.id))}</td></tr>`)}</tbody></table></div>`;
}
