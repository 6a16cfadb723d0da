/** A level meter and a light for voice activity, for each side. */

import { byId } from './dom.js';

/** @typedef {import('./levels.js').Levels} Levels */

const RANGE = 54;
/** How fast a meter falls, of its length per stretch of sound; it rises at once. */
const FALL = 0.045;

export class Meter {
  #shown = 0;

  /**
   * @param {'user'|'agent'} side
   * @param {Levels} levels
   */
  constructor(side, levels) {
    this.side = side;
    this.levels = levels;
    this.bar = byId(`${side}-meter`);
    this.light = byId(`${side}-light`);
    levels.addEventListener('level', () => this.#show());
  }

  #show() {
    const { rms } = this.levels.now;
    const db = 20 * Math.log10(Math.max(rms, 1e-6));
    const length = Math.min(1, Math.max(0, (db + RANGE) / RANGE));
    this.#shown = Math.max(length, this.#shown - FALL);
    this.bar.style.transform = `scaleX(${this.#shown.toFixed(3)})`;
    this.light.dataset.on = String(this.levels.activity.active);
  }

  rest() {
    this.#shown = 0;
    this.bar.style.transform = 'scaleX(0)';
    this.light.dataset.on = 'false';
  }
}
