// Reads server-sent events with `fetch`: unlike EventSource it tells why a peer refuses, and when nothing comes.

const silenceMs = 3000; // a peer sends something each second
const frameMax = 16 << 20;
const resumeMs = 10_000;
const pausesMs = [250, 500, 1000, 2000, 4000];

/** Connects to `address()`, and connects again for ever. `on.frame(kind, data)`; `on.link({up, why, retryMs})` when that changes.
 *  The result ends the connection and begins another one. */
export function follow(address, on) {
  let lastId = '';
  let lastAt = 0;
  let tries = 0;
  let moved = false;
  /** @type {() => void} */
  let leave = () => {};

  async function once() {
    const stop = new AbortController();
    leave = () => stop.abort();
    let silent = false;
    let timer;
    const heard = () => {
      if (silent) on.link({up: true});
      silent = false;
      clearTimeout(timer);
      timer = setTimeout(() => {
        silent = true;
        on.link({up: false, why: 'This peer is silent'});
        timer = setTimeout(() => stop.abort(), 10_000);
      }, silenceMs);
    };
    try {
      heard();
      const headers = {Accept: 'text/event-stream'};
      if (lastId && performance.now() - lastAt < resumeMs) headers['Last-Event-ID'] = lastId;
      const answer = await fetch(address(), {headers, signal: stop.signal, cache: 'no-store'});
      if (!answer.ok || !answer.body) return await refusal(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const {done, value} = await reader.read();
        if (done) return 'The peer closed the connection';
        heard();
        rest += value;
        if (rest.length > frameMax) { stop.abort(); return 'The peer sends too much at once'; }
        const frames = rest.split(/\r?\n\r?\n/);
        rest = frames.pop() ?? '';
        for (const frame of frames) take(frame);
      }
    } catch {
      return tries === 0 && lastAt > 0 ? 'The connection to this peer is lost' : 'This peer does not answer';
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  function take(frame) {
    let kind = 'message';
    const lines = [];
    for (const line of frame.split(/\r?\n/)) {
      if (line.startsWith('event:')) kind = line.slice(6).trim();
      else if (line.startsWith('data:')) lines.push(line.slice(5));
      else if (line.startsWith('id:')) lastId = line.slice(3).trim();
    }
    if (lines.length === 0) return;
    let data;
    try { data = JSON.parse(lines.join('\n')); } catch { return; }
    if (kind === 'snapshot' || lastAt === 0 || tries > 0) on.link({up: true});
    tries = 0;
    lastAt = performance.now();
    on.frame(kind, data);
  }

  async function refusal(answer) {
    let why = '';
    try { why = (await answer.text()).slice(0, 400); } catch { /* the status alone says enough */ }
    try { why = JSON.parse(why).error ?? why; } catch { /* it was plain text */ }
    return `This peer refuses its events (${answer.status}${why ? `: ${String(why).trim()}` : ''})`;
  }

  (async () => {
    for (;;) {
      const why = await once();
      if (moved) {
        moved = false;
        lastId = '';
        continue;
      }
      const pause = pausesMs[Math.min(tries, pausesMs.length - 1)];
      on.link({up: false, why, retryMs: pause});
      ++tries;
      await new Promise(done => {
        leave = () => done(undefined);
        setTimeout(leave, pause);
      });
      moved = false;
    }
  })();
  return () => {
    moved = true;
    leave();
  };
}

/** The same, by a stream that the tabs of this browser share (shared.js): they are one reader to the peer. Each has a
 *  stream of its own where the browser has no such workers, and of a replay, whose time each tab chooses. */
export function followTogether(address, on) {
  /** @type {(() => void) | undefined} */
  let begin;
  /** @type {MessagePort | undefined} */
  let port;
  const leave = () => { port?.postMessage('leave'); port?.close(); port = undefined; };
  const alone = () => { leave(); begin ??= follow(address, on); };
  const join = () => {
    if (begin) return;
    if (typeof SharedWorker === 'undefined') return alone();
    const worker = new SharedWorker(new URL('shared.js', import.meta.url), {type: 'module'});
    const late = setTimeout(alone, 2 * silenceMs);
    worker.onerror = alone;
    port = worker.port;
    port.onmessage = ({data: [what, ...rest]}) => {
      clearTimeout(late);
      on[what](...rest);
      if (rest[0] === 'snapshot' && rest[1]?.replay) alone();
    };
  };
  join();
  addEventListener('pagehide', leave);
  addEventListener('pageshow', event => { if (event.persisted) join(); });
  return () => begin?.();
}
