// Who this peer is, one sentence on how the run is, and its most important numbers.

import {html, nothing} from './vendor/lit-html.js';
import {compact, duration, fixed, median, plural, shortId, whole} from './format.js';
import {epoch, headline, isNode, speed, trainers} from './state.js';

export const marks = {good: '●', wait: '◌', warn: '▲', bad: '■'};

export function identity(state) {
  const {peer, run, role, version} = state.self;
  return html`<span class="run">${run}</span>
    <span><span class="quiet">this peer</span> <code title=${peer}>${shortId(peer)}</code></span>
    <span class="quiet">${role || (isNode(state) ? 'node' : 'trainer')}${version ? ` · ${version}` : nothing}</span>`;
}

function tile(label, value, note, id) {
  return html`<div class="tile"><dt>${label}</dt><dd data-tile=${id}>${value}</dd><dd class="note">${note || '\u00a0'}</dd></div>`;
}

function lossTile(state) {
  const others = trainers(state).filter(p => !p.self && p.loss !== undefined).map(p => p.loss);
  const range = others.length > 1 ? `others ${fixed(Math.min(...others))} to ${fixed(Math.max(...others))}`
    : others.length === 1 ? `other ${fixed(others[0])}` : '';
  if (isNode(state)) return tile('Loss of the others', fixed(median(others), 3), others.length > 0 ? range.replace(/^others? /, '') : 'not reported yet', 'loss');
  const {loss, first_loss} = state.status;
  return tile('Loss', fixed(loss, 3), range || (first_loss === undefined ? '' : `from ${fixed(first_loss, 3)}`), 'loss');
}

function progress(state) {
  const {target_batch_size: target, 'strategy.phase': phase, 'strategy.epoch': done, 'strategy.epochs': all, 'strategy.skips': skips} = state.status;
  if (phase) {
    const rounds = skips > 0 ? `a round every ${skips === 1 ? 'batch' : `${whole(skips)} batches`}` : 'a round after each batch';
    return tile('Epoch of the strategy', html`${whole(done)}${all > 0 ? html`<small> of ${whole(all)}</small>` : nothing}`, `${phase}, ${rounds}`, 'strategy');
  }
  if (!target) return nothing;
  const now = epoch(state);
  const sum = trainers(state).filter(p => p.epoch === undefined || p.epoch >= now).reduce((a, p) => a + (p.toward ?? 0), 0);
  const share = Math.min(1, sum / target);
  return html`<div class="tile"><dt>Next epoch</dt><dd>${Math.floor(share * 100)}<small>%</small></dd>
    <dd class="note"><progress max="1" .value=${share} aria-label="Samples toward the next epoch"></progress>
    ${compact(sum)} of ${compact(target)}</dd></div>`;
}

export function overview(state) {
  const h = headline(state);
  const s = state.status;
  const all = trainers(state);
  const helpers = state.peers.size - all.length;
  const recent = state.rounds.slice(-16);
  const failed = s['rounds.failed'] ?? 0;
  const ended = (s['rounds.complete'] ?? 0) + (s['rounds.shrunk'] ?? 0) + failed;
  const shown = Math.max(ended, state.rounds.length);
  const behind = all.filter(p => p.epoch !== undefined && epoch(state) - p.epoch > 1).length;
  return html`
    <div class=${h.level} id="sentence"><h1 class="sentence ${h.level}"><span class="mark" aria-hidden="true">${marks[h.level]}</span>${h.text}</h1>
      <p class="quiet">${h.more.join(' ')}</p></div>
    <dl class="tiles">
      ${tile('Epoch', whole(epoch(state)), behind > 0 ? `${plural(behind, 'peer')} behind` : s.learning_rate === undefined ? '' : `rate ${Number(s.learning_rate.toPrecision(3))}`, 'epoch')}
      ${tile('Samples a second', compact(speed(state)), s.samples_per_second === undefined || all.length < 2 ? '' : `${compact(s.samples_per_second)} by this peer`, 'speed')}
      ${lossTile(state)}
      ${tile('Peers', whole(all.length), helpers > 0 ? `and ${plural(helpers, 'helper')}` : s.reduces_for_clients ? `reduces for ${s.reduces_for_clients}` : '', 'peers')}
      ${tile('Round', duration(median(recent.map(r => r.duration))), shown === 0 ? 'none yet' : failed > 0 ? `${whole(shown)}, ${whole(failed)} failed` : `median of ${whole(recent.length)}`, 'round')}
      ${s['ranks.count'] > 0 ? tile('Ranks of this peer', whole(s['ranks.count']), s['ranks.slowest'] === undefined ? s['ranks.devices'] : `rank ${s['ranks.slowest']} is slow`, 'ranks') : nothing}
      ${progress(state)}
    </dl>`;
}
