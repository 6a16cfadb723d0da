/** One peer connection with the server: offer, answer, both data channels, and the figures of the network. */

import { Explained, NO_MEDIA, UNREACHABLE, callProblem } from './explain.js';
import { authorization } from './settings.js';

/** Gathering ends by itself in well under this; a resolver that does not answer must not keep the call waiting. */
const GATHER_MS = 1500;
const OPEN_MS = 10_000;
const POST_MS = 20_000;
/** Bytes of a message that every peer takes (RFC 8841 section 6.1), and that the server takes at most. */
const SAFE_MESSAGE = 64 * 1024;
const LONGEST_MESSAGE = 256 * 1024;

/**
 * @typedef {Record<string, any>} ServerEvent  An event of the Realtime API.
 * @typedef {object} NetworkFigures  In ms and 0..1; null where not known.
 * @property {number|null} roundTrip
 * @property {number|null} jitter
 * @property {number|null} buffer     What the jitter buffer held on average since the last look.
 * @property {number|null} loss       Share of packets lost since the last look.
 */

/**
 * Dispatches 'server' (detail: a `ServerEvent`), 'playback' (detail: a message of the playback channel) and 'lost'
 * (once, unless the call was closed from here).
 */
export class Call extends EventTarget {
  #peer = new RTCPeerConnection({ iceServers: [] });
  #events = this.#peer.createDataChannel('oai-events');
  #playback = this.#peer.createDataChannel('talkover-playback', { ordered: false, maxRetransmits: 0 });
  #closed = false;
  #location = '';
  #before = { delay: 0, emitted: 0, lost: 0, received: 0 };
  /** How long the parts of connecting took, ms. @type {Record<string, number>} */
  took = {};

  /** @param {MediaStreamTrack|null} track  null: listens only. */
  constructor(track) {
    super();
    const transceiver = this.#peer.addTransceiver(track ?? 'audio', { direction: track ? 'sendrecv' : 'recvonly' });
    this.sender = transceiver.sender;
    this.receiver = transceiver.receiver;
    this.#events.onmessage = ({ data }) => this.#tell('server', data);
    this.#playback.onmessage = ({ data }) => this.#tell('playback', data);
    this.#events.onclose = () => this.#lose();
    this.#peer.onconnectionstatechange = () => {
      if (['failed', 'closed'].includes(this.#peer.connectionState)) this.#lose();
    };
  }

  /**
   * @param {'server'|'playback'} kind
   * @param {string} data
   */
  #tell(kind, data) {
    this.dispatchEvent(new CustomEvent(kind, { detail: JSON.parse(data) }));
  }

  #lose() {
    if (this.#closed) return;
    this.close();
    this.dispatchEvent(new Event('lost'));
  }

  /** Whether media may be flowing. */
  get connected() {
    return !this.#closed && this.#peer.connectionState === 'connected';
  }

  /**
   * Connects; resolves when the events' channel is open.
   * @param {object} session  The session object for the server.
   * @param {AbortSignal} signal
   * @throws {Explained}
   */
  async open(session, signal) {
    const began = performance.now();
    const mark = (/** @type {string} */ name) => (this.took[name] = Math.round(performance.now() - began));
    const abort = new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));
    abort.catch(() => {});
    const opened = new Promise((resolve) => (this.#events.onopen = () => resolve(undefined)));
    try {
      await this.#peer.setLocalDescription(await this.#peer.createOffer());
      await Promise.race([this.#gathered(), abort]);
      mark('gathered');
      const answer = await this.#post(session, signal);
      mark('answered');
      await this.#peer.setRemoteDescription({ type: 'answer', sdp: answer });
      await Promise.race([opened, abort, refuseAfter(OPEN_MS)]);
      mark('open');
    } catch (error) {
      void this.hangUp();
      throw error;
    }
  }

  #gathered() {
    return new Promise((resolve) => {
      const done = () => this.#peer.iceGatheringState === 'complete' && resolve(undefined);
      this.#peer.addEventListener('icegatheringstatechange', done);
      setTimeout(resolve, GATHER_MS);
      done();
    });
  }

  /**
   * @param {object} session
   * @param {AbortSignal} signal
   * @returns {Promise<string>}
   */
  async #post(session, signal) {
    const body = new FormData();
    const offer = this.#peer.localDescription?.sdp ?? '';
    body.append('sdp', new Blob([offer], { type: 'application/sdp' }));
    body.append('session', new Blob([JSON.stringify(session)], { type: 'application/json' }));
    let answer;
    try {
      answer = await fetch('/v1/realtime/calls', {
        method: 'POST',
        headers: authorization(),
        body,
        signal: AbortSignal.any([signal, AbortSignal.timeout(POST_MS)]),
      });
    } catch {
      signal.throwIfAborted();
      throw new Explained(UNREACHABLE);
    }
    const text = await answer.text();
    if (!answer.ok) throw new Explained(callProblem(answer.status, errorOf(text)));
    this.#location = answer.headers.get('Location') ?? '';
    return text;
  }

  /** Bytes of the longest message that the server takes of a call. */
  get longest() {
    return Math.min(this.#peer.sctp?.maxMessageSize ?? SAFE_MESSAGE, LONGEST_MESSAGE);
  }

  /** @param {ServerEvent} event */
  send(event) {
    if (this.#events.readyState === 'open') this.#events.send(JSON.stringify(event));
  }

  /** @param {object} state  Newest counts; not sent while the channel has no room. */
  report(state) {
    if (this.#playback.readyState === 'open' && this.#playback.bufferedAmount < 1024) {
      this.#playback.send(JSON.stringify(state));
    }
  }

  /** @returns {Promise<NetworkFigures>} */
  async network() {
    /** @type {NetworkFigures} */
    const figures = { roundTrip: null, jitter: null, buffer: null, loss: null };
    if (this.#closed) return figures;
    for (const stat of (await this.#peer.getStats()).values()) {
      if (stat.type === 'candidate-pair' && stat.nominated && stat.currentRoundTripTime !== undefined) {
        figures.roundTrip = stat.currentRoundTripTime * 1000;
      } else if (stat.type === 'inbound-rtp' && stat.kind === 'audio') {
        const before = this.#before;
        this.#before = {
          delay: stat.jitterBufferDelay ?? 0,
          emitted: stat.jitterBufferEmittedCount ?? 0,
          lost: stat.packetsLost ?? 0,
          received: stat.packetsReceived ?? 0,
        };
        const emitted = this.#before.emitted - before.emitted;
        const lost = Math.max(0, this.#before.lost - before.lost);
        const sent = this.#before.received - before.received + lost;
        if (stat.jitter !== undefined) figures.jitter = stat.jitter * 1000;
        if (emitted > 0) figures.buffer = ((this.#before.delay - before.delay) / emitted) * 1000;
        if (sent > 0) figures.loss = lost / sent;
      }
    }
    return figures;
  }

  /** Leaves the session to whoever joins it again. */
  close() {
    this.#closed = true;
    this.#peer.close();
  }

  /** Ends the session at the server too; resolves when the server knows, or cannot be told. */
  async hangUp() {
    this.#closed = true;
    try {
      // Before the connection ends: a session whose connection is gone waits for another one.
      // keepalive: also from a page that is being closed.
      if (this.#location) {
        await fetch(`${this.#location}/hangup`, { method: 'POST', headers: authorization(), keepalive: true });
      }
    } catch {
      // Then the server ends it after its time of grace.
    }
    this.#peer.close();
  }
}

/** @param {number} ms @returns {Promise<never>} */
const refuseAfter = (ms) => new Promise((_, reject) => setTimeout(() => reject(new Explained(NO_MEDIA)), ms));

/**
 * @param {string} body
 * @returns {{code?: string, message?: string}}
 */
function errorOf(body) {
  try {
    return JSON.parse(body).error ?? {};
  } catch {
    return {};
  }
}
