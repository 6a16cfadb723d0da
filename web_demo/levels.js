/** The loudness of one side, from a tap on the audio graph. */

import { Activity } from './activity.js';

/**
 * @typedef {object} Level
 * @property {number} at    Page time of its end, ms.
 * @property {number} rms   0..1
 * @property {number} peak  0..1
 */

/** Seconds of levels that are kept: a little more than the timeline shows. */
const KEPT_MS = 40_000;

/** Loads the tap into a context; needed once per context. @param {AudioContext} context */
export const loadTap = (context) => context.audioWorklet.addModule(new URL('./tap-worklet.js', import.meta.url));

/** Page time less context time, from the messages that were delayed least. */
class Clock {
  #offset = Infinity;

  /**
   * @param {number} seconds  Context time at which the audio thread spoke.
   * @returns {number} The page time of it.
   */
  toPage(seconds) {
    // Creeping up by 0.1 ms a second follows the drift of two clocks.
    this.#offset = Math.min(this.#offset + 0.001, performance.now() - seconds * 1000);
    return this.#offset + seconds * 1000;
  }
}

export class Levels extends EventTarget {
  /** @type {Level[]} */
  history = [];
  /** @type {Level} */
  now = { at: 0, rms: 0, peak: 0 };
  #clock = new Clock();
  /** @type {AudioWorkletNode|null} */
  #node = null;

  /** @param {Activity} activity */
  constructor(activity) {
    super();
    this.activity = activity;
  }

  /**
   * Listens to `source` from now on.
   * @param {AudioNode} source  In a context that `loadTap` was called for.
   */
  listen(source) {
    this.stop();
    const node = new AudioWorkletNode(source.context, 'tap', { channelCount: 1, channelCountMode: 'explicit' });
    node.port.onmessage = ({ data: [seconds, rms, peak] }) => this.#take(this.#clock.toPage(seconds), rms, peak);
    // It gives silence; without a way to the destination it would not be run.
    source.connect(node).connect(source.context.destination);
    this.#node = node;
  }

  stop() {
    if (this.#node) {
      this.#node.port.onmessage = null;
      this.#node.disconnect();
      this.#node = null;
    }
    this.now = { at: performance.now(), rms: 0, peak: 0 };
    this.#clock = new Clock();
  }

  /**
   * @param {number} at
   * @param {number} rms
   * @param {number} peak
   */
  #take(at, rms, peak) {
    this.now = { at, rms, peak };
    this.history.push(this.now);
    if (this.history[0].at < at - KEPT_MS - 5000) {
      this.history = this.history.filter((level) => level.at >= at - KEPT_MS);
    }
    this.activity.feed(at, rms);
    this.dispatchEvent(new Event('level'));
  }
}
