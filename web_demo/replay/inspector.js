/** The events around a moment, each with its effects and all its fields. */

import { byId, make, write } from '../dom.js';
import { TICKS } from './source.js';
import { clock } from './view.js';

/**
 * @typedef {import('./source.js').Source} Source
 * @typedef {import('./source.js').Step} Step
 */

/** So many times a second that they hide the others. */
const FREQUENT = new Set(['AudioArrived', 'SpeechProbability', 'TimerDue', 'EngineAudio', 'PlaybackReported', 'DuplexFrame']);
/** Events that are listed around the moment. */
const LISTED = 60;

export class Inspector extends EventTarget {
  #list = byId('events');
  #detail = byId('event-detail');
  #all = byId('all-events', HTMLInputElement);
  #at = 0;
  /** The event that is shown in full. @type {number|null} */
  #chosen = null;
  #asked = 0;

  /** Dispatches 'go' (detail: the time) when an event is chosen. @param {Source} source */
  constructor(source) {
    super();
    this.source = source;
    this.#all.addEventListener('change', () => void this.show(this.#at));
    this.#list.addEventListener('click', (event) => {
      const row = /** @type {HTMLElement|null} */ (/** @type {Element} */ (event.target).closest('button'));
      if (row) void this.#choose(Number(row.dataset.n));
    });
  }

  /** The events around `at`. @param {number} at */
  async show(at) {
    this.#at = at;
    const asked = (this.#asked += 1);
    const { source } = this;
    if (!source.chapters.length) return;
    let steps;
    try {
      steps = await source.events(source.chapterAt(at));
    } catch (error) {
      if (asked === this.#asked) this.#list.replaceChildren(make('li', 'none', String(/** @type {Error} */ (error).message)));
      return;
    }
    if (asked !== this.#asked) return;
    const shown = this.#all.checked ? steps : steps.filter(({ event, effects }) => !FREQUENT.has(event.type) || told(effects));
    const before = shown.findLastIndex(({ now }) => now / TICKS <= at + 1e-9);
    const first = Math.max(0, Math.min(before - LISTED / 2, shown.length - LISTED));
    const rows = shown.slice(first, first + LISTED).map((step, index) => this.#row(step, first + index === before));
    this.#list.replaceChildren(...rows);
    const current = this.#list.querySelector('[data-current=true]');
    if (current) this.#list.scrollTop = /** @type {HTMLElement} */ (current).offsetTop - this.#list.clientHeight / 2;
  }

  /**
   * @param {Step} step
   * @param {boolean} current
   */
  #row({ n, now, event, effects }, current) {
    const row = make(
      'button',
      'event',
      make('time', '', clock(now / TICKS)),
      make('b', '', event.type),
      make('span', '', summary(event)),
    );
    row.dataset.n = String(n);
    row.dataset.current = String(current);
    row.setAttribute('aria-pressed', String(n === this.#chosen));
    const known = told(effects);
    if (known) row.append(make('i', '', known));
    const item = make('li');
    item.append(row);
    item.dataset.current = String(current);
    return item;
  }

  /** @param {number} n */
  async #choose(n) {
    const steps = await this.source.events(this.source.chapterAt(this.#at));
    const step = steps.find((one) => one.n === n);
    if (!step) return;
    this.#chosen = n;
    write(this.#detail, JSON.stringify({ event: step.event, effects: step.effects }, null, 1));
    this.#detail.hidden = false;
    for (const row of this.#list.querySelectorAll('button')) row.setAttribute('aria-pressed', String(row.dataset.n === String(n)));
    this.dispatchEvent(new CustomEvent('go', { detail: step.now / TICKS }));
  }
}

/** What an event says, in short. @param {Record<string, any>} event */
function summary(event) {
  if (event.type === 'SpeechProbability') return `${Math.round(event.probability * 100)} %`;
  if (event.type === 'EngineWords') return event.words.map((/** @type {any} */ word) => word.text).join('').trim();
  if (typeof event.text === 'string') return event.text;
  if (typeof event.stage === 'string') return event.stage;
  if (typeof event.name === 'string') return event.name;
  if (typeof event.reason === 'string') return event.reason;
  if (event.end !== undefined) return `${event.start ?? 0}–${event.end}`;
  return '';
}

/** The kinds of what the core made of an event, but for what comes with every frame. @param {Record<string, any>[]} effects */
function told(effects) {
  const kinds = effects
    .filter(({ type }) => type !== 'AdmitFrame' && type !== 'SetTimer' && type !== 'GrantCredit' && type !== 'Count')
    .map((effect) => (effect.type === 'Notify' ? effect.notice.type : effect.type))
    .filter((kind) => kind !== 'OutputText');
  return [...new Set(kinds)].join(', ');
}
