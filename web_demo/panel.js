/** The live figures on the page. */

import { byId, make, write } from './dom.js';
import { STEPS } from './steps.js';

/**
 * @typedef {import('./figures.js').Figures} Figures
 * @typedef {import('./steps.js').Steps} Steps
 */

const NONE = '–';

/** @param {number|null} ms */
const short = (ms) => (ms === null ? NONE : ms < 995 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`);
/** @param {number|null} ms */
const fine = (ms) => (ms === null ? NONE : ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`);

export class Panel {
  /** Round trips by the playback channel: over the way that commands take, unlike ICE's own, every 50 ms. @type {number[]} */
  #trips = [];

  /** What is shown of the answer's stages, as text. */
  #shown = '';

  /**
   * @param {Figures} figures
   * @param {Steps} steps
   */
  constructor(figures, steps) {
    this.figures = figures;
    this.steps = steps;
  }

  /** @param {number} ms */
  roundTrip(ms) {
    this.#trips.push(ms);
    if (this.#trips.length > 40) this.#trips.shift();
  }

  /** What was measured of the turns. */
  show() {
    const { firstAudio, stop } = this.figures;
    write(byId('first-audio'), short(firstAudio.last));
    write(byId('first-audio-median'), firstAudio.count > 1 ? `median ${short(firstAudio.median)}` : '');
    write(byId('stop-time'), short(stop.last));
    write(byId('stop-time-median'), stop.count > 1 ? `median ${short(stop.median)}` : '');
  }

  /** How far the newest answer is made: each stage by itself, never the fastest as "latency". */
  showSteps() {
    const { reached } = this.steps;
    const told = Object.entries(STEPS).flatMap(([stage, name]) => {
      const ms = reached.get(stage);
      return ms === undefined ? [] : [{ stage, name, time: fine(ms) }];
    });
    const text = told.map(({ name, time }) => name + time).join();
    if (text === this.#shown) return;
    this.#shown = text;
    byId('steps').hidden = !told.length;
    byId('steps-list').replaceChildren(
      ...told.map(({ stage, name, time }) => {
        const step = make('span', 'step', make('span', '', name), make('b', '', time));
        step.dataset.stage = stage;
        return step;
      }),
    );
  }

  /** @param {import('./call.js').NetworkFigures} network */
  showNetwork({ roundTrip, jitter, buffer, loss }) {
    const newest = this.#trips.length ? Math.min(...this.#trips) : roundTrip;
    write(byId('round-trip'), fine(newest));
    write(byId('jitter'), fine(jitter));
    write(byId('buffer'), fine(buffer));
    write(byId('loss'), loss === null ? NONE : `${(loss * 100).toFixed(1)} %`);
  }

  /** @param {number|null} epoch */
  showEpoch(epoch) {
    write(byId('epoch'), epoch === null ? NONE : String(epoch));
  }

  /** What the heard position rests on. @param {string} by */
  showHeardBy(by) {
    write(byId('heard-by'), by === 'report' ? 'this page' : by === 'model' ? "the server's model" : NONE);
  }

  forgetNetwork() {
    this.#trips = [];
    this.showNetwork({ roundTrip: null, jitter: null, buffer: null, loss: null });
  }
}
