/** What is to be otherwise, and how the session would have gone; also its account in words. */

import { byId, write } from '../dom.js';
import { Refused } from './source.js';

/** @typedef {import('./source.js').Source} Source */
/** @typedef {import('./source.js').Marks} Marks */

/** Dispatches 'altered' (detail: the marks of the altered run, or null when it is put away). */
export class WhatIf extends EventTarget {
  #form = byId('what-if', HTMLFormElement);
  #text = byId('what-if-text');
  #dialog = byId('what-if-dialog', HTMLDialogElement);
  #run = byId('what-if-run', HTMLButtonElement);

  /** @param {Source} source */
  constructor(source) {
    super();
    this.source = source;
    byId('open-what-if').addEventListener('click', () => this.#dialog.showModal());
    byId('open-explanation').addEventListener('click', () => void this.#explain());
    byId('what-if-close').addEventListener('click', () => this.#dialog.close());
    byId('what-if-clear').addEventListener('click', () => this.#show(null, ''));
    this.#form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#go();
    });
  }

  /** What the form says. */
  #wanted() {
    const value = (/** @type {string} */ id) => byId(id, HTMLInputElement).value.trim();
    const more = value('what-if-more').split(/[\s,]+/).filter(Boolean);
    const set = [
      ...(value('what-if-hold') ? [`turn.hold_ms=${value('what-if-hold')}`] : []),
      ...(value('what-if-threshold') ? [`vad.threshold=${value('what-if-threshold')}`] : []),
      ...more,
    ];
    const drop = byId('what-if-drop', HTMLInputElement).checked ? ['playback.ack'] : [];
    const shift = value('what-if-shift') ? [`interruption=${value('what-if-shift')}ms`] : [];
    return { set, drop, shift };
  }

  async #go() {
    this.#run.disabled = true;
    write(this.#run, 'Running …');
    try {
      const running = (/** @type {number} */ seconds) => write(this.#run, `Running … ${Math.round(seconds)} s`);
      const { text, marks } = await this.source.whatIf(this.#wanted(), running);
      this.#show(marks, text);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#show(null, error.message);
    } finally {
      this.#run.disabled = false;
      write(this.#run, 'Run');
    }
  }

  async #explain() {
    const detail = byId('event-detail');
    const button = byId('open-explanation', HTMLButtonElement);
    const said = 'Going through the session …';
    detail.hidden = false;
    write(detail, said);
    button.disabled = true;
    try {
      const running = (/** @type {number} */ seconds) => write(detail, `${said} ${Math.round(seconds)} s`);
      write(detail, await this.source.explanation(running));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      write(detail, error.message);
    } finally {
      button.disabled = false;
    }
  }

  /**
   * @param {Marks|null} marks
   * @param {string} text
   */
  #show(marks, text) {
    this.#text.hidden = !text;
    write(this.#text, text);
    byId('what-if-clear').hidden = marks === null;
    byId('open-what-if').setAttribute('aria-pressed', String(marks !== null));
    this.dispatchEvent(new CustomEvent('altered', { detail: marks }));
  }
}
