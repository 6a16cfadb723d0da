/**
 * When a side made a sound, told from its loudness. All times are the page's, in ms (`performance.now()`).
 *
 * @typedef {{from: number, to: number}} Run  A stretch of sound; `to` grows while it lasts.
 */

/** A pause shorter than this does not end a run. */
const BRIDGE = 280;
const KEPT = 60_000;
const RISE = 1.0015;
const QUIETEST = 1e-4;

export class Activity {
  /** @type {Run[]} */
  #runs = [];
  #floor = 0.003;
  #least;
  #ratio;
  #sounding = 0;

  /**
   * @param {number} least  RMS below which nothing counts as sound, 1 is full scale.
   * @param {number} ratio  How far above the noise floor sound begins; 0 where there is no noise.
   */
  constructor(least, ratio) {
    this.#least = least;
    this.#ratio = ratio;
  }

  /** Whether there is sound now. */
  get active() {
    return this.#sounding > 1;
  }

  /** @returns {readonly Run[]} */
  get runs() {
    return this.#runs;
  }

  /** The newest stretch, if any. */
  get last() {
    return this.#runs.at(-1) ?? null;
  }

  /**
   * @param {number} at   End of the stretch.
   * @param {number} rms
   */
  feed(at, rms) {
    this.#floor = Math.max(QUIETEST, rms < this.#floor ? rms : this.#floor * RISE);
    const sound = rms >= Math.max(this.#least, this.#floor * this.#ratio);
    this.#sounding = sound ? this.#sounding + 1 : 0;
    // A single stretch may be a click.
    if (this.#sounding < 2) return;
    const last = this.last;
    if (last && at - last.to <= BRIDGE) last.to = at;
    else this.#runs.push({ from: at - 22, to: at });
    while (this.#runs.length && this.#runs[0].to < at - KEPT) this.#runs.shift();
  }

  /**
   * The run that lasted at `at` or ended before it, null for none.
   * @param {number} at
   */
  runBefore(at) {
    return this.#runs.findLast((run) => run.from <= at) ?? null;
  }

  /**
   * When sound began after `at`, null for not yet.
   * @param {number} at
   */
  onsetAfter(at) {
    return this.#runs.find((run) => run.from >= at)?.from ?? null;
  }
}
