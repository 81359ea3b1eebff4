// What happened, newest first, with a filter.

import {html, nothing} from './vendor/lit-html.js';
import {clock} from './format.js';
import {groups, isProblem, selectEvents} from './state.js';

/** What the user has chosen. Rounds and epochs come many times a second; they have panels of their own. */
export const view = {groups: new Set(['peers', 'run', 'problems']), words: ''};

export function toggle(group) {
  if (!view.groups.delete(group)) view.groups.add(group);
}

export function events(state, refresh) {
  const rows = selectEvents(state, view.groups, view.words);
  const narrowed = view.words.trim() !== '' || view.groups.size < Object.keys(groups).length;
  return html`
    <div class="controls"><span class="group" role="group" aria-label="Kinds of events">${Object.entries(groups).map(([name, label], i) => html`
      <button type="button" aria-pressed=${String(view.groups.has(name))} aria-keyshortcuts=${String(i + 1)} data-group=${name} @click=${() => { toggle(name); refresh(); }}>${label}</button>`)}</span>
      <input id="filter" type="search" placeholder="Filter" aria-label="Filter events by text" aria-keyshortcuts="/" maxlength="80" autocomplete="off" spellcheck="false"
        .value=${view.words} @input=${e => { view.words = e.target.value; refresh(); }}></div>
    ${rows.length === 0 ? html`<p class="empty">${narrowed ? 'No event of this kind.' : 'Nothing has happened yet.'}</p>` : html`
    <ol class="log" tabindex="0" aria-label="Events, newest first">${rows.map(({event, line}) => html`<li class=${isProblem(state, event) ? 'bad' : ''} data-type=${event.type}>
      <time>${clock(event.t, state.now)}</time><span class="glyph" aria-hidden="true">${state.types[event.type]?.glyph ?? '!'}</span><span class="kind">${event.type.replaceAll('_', ' ')}</span><span>${line}</span></li>`)}</ol>`}
    ${state.missed > 0 ? html`<p class="quiet">${state.missed} events were left out because they came faster than this page could read them.</p>` : nothing}`;
}
