/** The word on how it stands, and the notice of a problem with its remedy. */

import { byId, write } from './dom.js';

/** @typedef {import('./explain.js').Problem} Problem */
/** @typedef {'idle'|'loading'|'opening'|'listening'|'hearing'|'thinking'|'speaking'|'held'|'rejoining'|'muted'} Stage */

/** @type {Record<Stage, string>} */
const WORDS = {
  idle: 'Ready',
  loading: 'Preparing',
  opening: 'Connecting',
  listening: 'Listening',
  hearing: 'Hearing you',
  thinking: 'Thinking',
  speaking: 'Speaking',
  held: 'Holding',
  rejoining: 'Reconnecting',
  muted: 'Muted',
};

/**
 * What a screen reader says, into the conversation: only what one does not hear by itself.
 * @type {Partial<Record<Stage, string>>}
 */
const ANNOUNCED = { opening: 'Connecting', listening: 'Connected', muted: 'Muted', rejoining: 'Reconnecting', idle: 'Not connected' };

export class Status {
  #announced = byId('announced');
  #state = byId('state');
  #word = byId('state-word');
  #notice = byId('notice');
  #retry = byId('notice-retry');
  #hear = byId('unheard-notice');

  constructor() {
    byId('notice-close').addEventListener('click', () => this.clear());
  }

  /** @param {Stage} stage */
  show(stage) {
    this.#state.dataset.stage = stage;
    write(this.#word, WORDS[stage]);
    const announced = ANNOUNCED[stage];
    if (announced) write(this.#announced, announced);
  }

  /** @param {Problem} problem */
  explain(problem) {
    this.#notice.hidden = false;
    this.#notice.dataset.code = problem.code;
    write(byId('notice-title'), problem.title);
    write(byId('notice-remedy'), problem.remedy);
    this.#retry.hidden = !problem.retry;
  }

  /** The code of the problem that is shown, '' for none. */
  get code() {
    return this.#notice.hidden ? '' : (this.#notice.dataset.code ?? '');
  }

  clear() {
    this.#notice.hidden = true;
  }

  /** @param {() => void} action */
  onRetry(action) {
    this.#retry.addEventListener('click', action);
  }

  /** Whether sound waits for a gesture of the user. @param {boolean} blocked */
  showBlocked(blocked) {
    this.#hear.hidden = !blocked;
  }
}
