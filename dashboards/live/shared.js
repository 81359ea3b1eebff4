// The stream of events of a peer for all tabs of a browser that show its page (a SharedWorker).

import {follow} from './stream.js';

const ports = new Set();
let link = {up: false, why: ''};
/** @type {(() => void) | undefined} */
let begin;
const send = message => { for (const port of ports) port.postMessage(message); };

/** @type {any} */ (self).onconnect = ({ports: [port]}) => {
  ports.add(port);
  if (link.up || link.why) port.postMessage(['link', link]);
  port.onmessage = () => { // it leaves
    ports.delete(port);
    setTimeout(() => { if (ports.size === 0) self.close(); }, 5000); // unless another one comes, as when a tab is loaded again
  };
  if (begin) begin(); // anew, for the snapshot that comes first
  else begin = follow(() => '../api/v1/events', {frame: (kind, data) => send(['frame', kind, data]), link(now) { link = now; send(['link', now]); }});
};
