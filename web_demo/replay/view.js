/** Which stretch of a session is looked at: between hours and milliseconds. Free of the browser, times in seconds. */

export const SHORTEST = 0.01;

export class View {
  from = 0;
  span = 30;
  /** The length of the session. */
  length = 0;

  /** @param {number} length */
  open(length) {
    this.length = Math.max(length, SHORTEST);
    this.set(0, Math.min(30, this.length));
  }

  get to() {
    return this.from + this.span;
  }

  /**
   * @param {number} from
   * @param {number} span
   */
  set(from, span) {
    this.span = Math.max(SHORTEST, Math.min(this.length, span));
    this.from = Math.max(0, Math.min(this.length - this.span, from));
  }

  /** @param {number} seconds */
  pan(seconds) {
    this.set(this.from + seconds, this.span);
  }

  /**
   * Makes the span `factor` times as long; what is at `at` stays where it is.
   * @param {number} factor
   * @param {number} at
   */
  zoom(factor, at) {
    const span = Math.max(SHORTEST, Math.min(this.length, this.span * factor));
    const share = (at - this.from) / this.span;
    this.set(at - share * span, span);
  }

  /** Brings `at` into view, a third from the left, unless it is there. @param {number} at */
  reveal(at) {
    if (at < this.from || at > this.from + this.span * 0.96) this.set(at - this.span / 3, this.span);
  }
}

const STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
];

/** The distance of lines of time, so that about `most` stand in `span`. @param {number} span @param {number} most */
export const gridStep = (span, most) => STEPS.find((step) => span / step <= most) ?? 7200;

/**
 * A time as people read it: 1:02:03.450.
 * @param {number} seconds
 * @param {number} [digits]
 */
export function clock(seconds, digits = 3) {
  const unit = 10 ** digits;
  const all = Math.max(0, Math.round(seconds * unit));
  const whole = Math.floor(all / unit);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (/** @type {number} */ number) => String(number).padStart(2, '0');
  const fraction = digits ? `.${String(all % unit).padStart(digits, '0')}` : '';
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(rest)}${fraction}`;
}

/**
 * What a link says: `#t=12.5&span=30&loop=3-4.5`.
 * @param {string} hash
 * @returns {{at: number|null, span: number|null, loop: [number, number]|null}}
 */
export function readLink(hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ''));
  const number = (/** @type {string|null|undefined} */ text) =>
    text !== null && text !== undefined && /^\d+(\.\d+)?$/.test(text) ? Number(text) : null;
  const [from, to] = (said.get('loop') ?? '').split('-').map(number);
  const loop = from !== null && from !== undefined && to !== null && to !== undefined && to > from;
  return { at: number(said.get('t')), span: number(said.get('span')), loop: loop ? [from, to] : null };
}

/**
 * @param {number} at
 * @param {number} span
 * @param {[number, number]|null} loop
 */
export function writeLink(at, span, loop) {
  const short = (/** @type {number} */ value) => String(Number(value.toFixed(3)));
  return `#t=${short(at)}&span=${short(span)}${loop ? `&loop=${short(loop[0])}-${short(loop[1])}` : ''}`;
}
