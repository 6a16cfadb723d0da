/**
 * A conversation over as many calls as it takes: a call that is lost is followed by one that joins the same session.
 *
 * idle → opening → live ⇄ rejoining → idle. Dispatches 'state', 'server' (detail: the event), 'playback' (detail) and
 * 'problem' (detail: a `Problem`).
 */

import { Call } from './call.js';
import { Explained, LOST } from './explain.js';
import { keepResume, keptResume } from './settings.js';

/** @typedef {import('./call.js').ServerEvent} ServerEvent */
/** @typedef {'idle'|'opening'|'live'|'rejoining'} State */

/** Codes with which the server says that there is nothing to join any more. */
const OVER = new Set(['unknown_session', 'invalid_token', 'not_resumable']);
/** Pauses between tries, ms; the last one is repeated. */
const PAUSES = [0, 300, 700, 1500, 2500];
/** How long to try, ms; the server's own patience ends it earlier with an answer. */
const GIVE_UP = 60_000;
/** How often it is looked whether the server answers, ms. */
const LOOK = 500;
/**
 * So many looks without a sign of the server mean that the way to it is gone: 3.5 s. They are counted, not timed, as a
 * page that was itself held up for so long has the answers still before it.
 */
const MISSED = 7;
/** How long an answer may take after the network came back, ms. */
const ANSWER = 800;

export class Session extends EventTarget {
  /** @type {State} */
  state = 'idle';
  /** @type {Call|null} */
  call = null;
  /** The server's id of the session. */
  id = '';
  /** Whether the server says that it records it. */
  recorded = false;
  /** Whether its engine takes images. */
  sees = false;
  #abort = new AbortController();
  #track = /** @type {MediaStreamTrack|null} */ (null);
  /** When the server was last heard of. */
  #heard = 0;
  #missed = 0;
  #watch = 0;

  /** @param {State} state */
  #enter(state) {
    this.state = state;
    this.dispatchEvent(new Event('state'));
  }

  /** @param {Explained|unknown} error */
  #complain(error) {
    const problem =
      error instanceof Explained
        ? error.problem
        : { code: 'failed', title: 'The call failed.', remedy: String(error), retry: true };
    this.dispatchEvent(new CustomEvent('problem', { detail: problem }));
  }

  /**
   * Begins a new conversation.
   * @param {MediaStreamTrack|null} track
   * @param {object} wanted  The session object.
   */
  async open(track, wanted) {
    this.#abort = new AbortController();
    this.#track = track;
    this.#enter('opening');
    try {
      await this.#connect(wanted);
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      this.#enter('idle');
      this.#complain(error);
    }
  }

  /**
   * Goes on with the kept conversation: after a reload, or when the connection was lost.
   * @param {MediaStreamTrack|null} track
   */
  async rejoin(track) {
    this.#abort = new AbortController();
    const signal = this.#abort.signal;
    this.#track = track;
    this.#enter('rejoining');
    const began = performance.now();
    for (let tries = 0; performance.now() - began < GIVE_UP; tries += 1) {
      await pause(PAUSES[Math.min(tries, PAUSES.length - 1)], signal);
      const resume = keptResume();
      if (signal.aborted) return;
      if (!resume) break;
      const { session, token } = resume;
      try {
        await this.#connect({ type: 'realtime', x_talkover: { resume: { session, token } } });
        return;
      } catch (error) {
        if (signal.aborted) return;
        const code = error instanceof Explained ? error.problem.code : '';
        if (OVER.has(code)) break;
        if (code === 'api_key') {
          this.#enter('idle');
          this.#complain(error);
          return;
        }
      }
    }
    keepResume(null);
    this.#enter('idle');
    this.#complain(new Explained(LOST));
  }

  /** @param {object} wanted */
  async #connect(wanted) {
    const call = new Call(this.#track);
    this.call = call;
    call.addEventListener('server', (event) => this.#server(call, /** @type {CustomEvent} */ (event).detail));
    call.addEventListener('playback', (event) => {
      this.#answered();
      this.dispatchEvent(new CustomEvent('playback', { detail: /** @type {CustomEvent} */ (event).detail }));
    });
    call.addEventListener('lost', () => this.#lost(call));
    await call.open(wanted, this.#abort.signal);
    this.#answered();
    clearInterval(this.#watch);
    this.#watch = setInterval(() => this.#listen(call), LOOK);
    this.#enter('live');
  }

  #answered() {
    this.#heard = performance.now();
    this.#missed = 0;
  }

  /**
   * @param {Call} call
   * @param {ServerEvent} event
   */
  #server(call, event) {
    this.#answered();
    if (event.type === 'session.created' || event.type === 'session.updated') {
      this.id = event.session.id ?? this.id;
      this.recorded = event.session.x_talkover?.recording === true;
      this.sees = event.session.x_talkover?.images === true;
      const token = event.session.x_talkover?.resume_token;
      if (token) keepResume({ session: this.id, token, at: Date.now() });
    }
    if (call === this.call) this.dispatchEvent(new CustomEvent('server', { detail: event }));
  }

  /** @param {Call} call */
  #listen(call) {
    if (call !== this.call || this.state !== 'live') return;
    const resume = keptResume();
    if (resume) keepResume({ ...resume, at: Date.now() });
    // Also where no sound runs that would carry reports: the answer tells that the server is there.
    call.report({ rtp: null, at_ms: performance.now() });
    this.#missed += 1;
    if (this.#missed > MISSED) this.#drop(call);
  }

  /** @param {Call} call */
  #drop(call) {
    call.close();
    this.#lost(call);
  }

  /** @param {Call} call */
  #lost(call) {
    if (call !== this.call || this.state !== 'live') return;
    clearInterval(this.#watch);
    if (keptResume()) void this.rejoin(this.#track);
    else {
      this.#enter('idle');
      this.#complain(new Explained(LOST));
    }
  }

  /** The browser says that it has a network again: what does not answer at once will not answer any more. */
  networkChanged() {
    const { call } = this;
    if (this.state !== 'live' || !call) return;
    const asked = performance.now();
    call.report({ rtp: null, at_ms: asked });
    setTimeout(() => {
      if (call === this.call && this.state === 'live' && this.#heard < asked) this.#drop(call);
    }, ANSWER);
  }

  /**
   * Another microphone for the running call.
   * @param {MediaStreamTrack|null} track
   */
  async replaceTrack(track) {
    this.#track = track;
    await this.call?.sender.replaceTrack(track);
  }

  /** @param {ServerEvent} event */
  send(event) {
    this.call?.send(event);
  }

  /** Ends the conversation; resolves when the server knows. */
  async end() {
    this.#abort.abort(new DOMException('ended here', 'AbortError'));
    clearInterval(this.#watch);
    keepResume(null);
    const call = this.call;
    this.call = null;
    this.#enter('idle');
    await call?.hangUp();
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 */
const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve(undefined)), { once: true });
  });
