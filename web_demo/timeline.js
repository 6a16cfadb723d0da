/** The last seconds on a canvas: a lane for each side with its loudness, speech, holds, epochs and words. */

import { byId } from './dom.js';

/**
 * @typedef {import('./levels.js').Levels} Levels
 * @typedef {import('./marks.js').Marks} Marks
 * @typedef {{user: Levels, agent: Levels}} Sides
 */

/** Pixels of a second, of a bar with its gap, and of a row of words. */
const SECOND = 84;
const SECOND_NARROW = 56;
const BAR = 4;
const ROW = 15;
/** Below the loudest by this much is silence, dB. */
const RANGE = 48;
/** The newest sound stands this far from the right edge, as words lie a little ahead. */
const AHEAD = 26;
const PERIOD = 1000 / 60;
/** For those who asked their system for less motion: a step now and then instead of a flow. */
const PERIOD_CALM = 500;

export class Timeline {
  #canvas = byId('timeline', HTMLCanvasElement);
  #context = /** @type {CanvasRenderingContext2D} */ (this.#canvas.getContext('2d'));
  #width = 0;
  #height = 0;
  #running = false;
  #drawn = 0;
  #colours = colours();
  #calm = matchMedia('(prefers-reduced-motion: reduce)');

  /**
   * @param {Sides} sides
   * @param {Marks} marks
   */
  constructor(sides, marks) {
    this.sides = sides;
    this.marks = marks;
    new ResizeObserver(() => this.#measure()).observe(this.#canvas);
    this.#measure();
  }

  /** Takes the colours of the theme in force. */
  recolour() {
    this.#colours = colours();
    this.#draw();
  }

  start() {
    if (this.#running) return;
    this.#running = true;
    requestAnimationFrame((now) => this.#step(now));
  }

  stop() {
    this.#running = false;
    this.#draw();
  }

  /** @param {number} now */
  #step(now) {
    if (!this.#running) return;
    if (now - this.#drawn >= (this.#calm.matches ? PERIOD_CALM : PERIOD) - 2) {
      this.#drawn = now;
      this.#draw();
    }
    requestAnimationFrame((next) => this.#step(next));
  }

  #measure() {
    const { width, height } = this.#canvas.getBoundingClientRect();
    const scale = window.devicePixelRatio || 1;
    this.#width = width;
    this.#height = height;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    this.#context.setTransform(scale, 0, 0, scale, 0, 0);
    this.#draw();
  }

  #draw() {
    const { marks, sides } = this;
    const now = performance.now();
    const width = this.#width;
    const narrow = width < 560;
    const second = narrow ? SECOND_NARROW : SECOND;
    const left = now - ((width - AHEAD) / second) * 1000;
    const x = (/** @type {number} */ at) => ((at - left) / 1000) * second;
    const half = this.#height / 2;
    const rows = narrow ? 1 : 2;
    const c = this.#context;
    const hue = this.#colours;

    c.clearRect(0, 0, width, this.#height);
    c.fillStyle = hue.grid;
    for (let at = Math.ceil(left / 1000) * 1000; at < now + 1000; at += 1000) c.fillRect(Math.round(x(at)), 0, 1, this.#height);
    c.fillRect(0, Math.round(half), width, 1);

    const lane = half - rows * ROW - 10;
    const user = { top: 6, lane, words: 6 + lane + 3 };
    const agent = { top: half + 6, lane, words: half + 6 + lane + 3 };
    for (const { from, to } of marks.speech) {
      this.#band(x(from), x(to ?? now), user.top - 2, lane + 4, hue.userSoft);
    }
    for (const { from, to } of marks.holds) this.#hold(x(from), x(to ?? now), agent.top - 2, lane + 4);
    this.#bars(sides.user, left, x, user.top, lane, hue.user);
    this.#bars(sides.agent, left, x, agent.top, lane, hue.agent);

    c.font = `12px ${hue.font}`;
    c.textBaseline = 'top';
    this.#words('user', x, user.words, rows);
    this.#words('agent', x, agent.words, rows);
    for (const { at, epoch, cause } of marks.epochs) this.#epoch(x(at), `${epoch} · ${cause}`);
    c.fillStyle = hue.now;
    c.fillRect(width - AHEAD, 0, 1, this.#height);
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {number} top
   * @param {number} height
   * @param {string} colour
   */
  #band(from, to, top, height, colour) {
    if (to < 0) return;
    const c = this.#context;
    c.fillStyle = colour;
    c.beginPath();
    c.roundRect(from, top, Math.max(3, to - from), height, 6);
    c.fill();
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {number} top
   * @param {number} height
   */
  #hold(from, to, top, height) {
    if (to < 0) return;
    const c = this.#context;
    this.#band(from, to, top, height, this.#colours.holdSoft);
    c.save();
    c.beginPath();
    c.roundRect(from, top, Math.max(3, to - from), height, 6);
    c.clip();
    c.strokeStyle = this.#colours.hold;
    c.globalAlpha = 0.55;
    c.lineWidth = 1.5;
    c.beginPath();
    for (let at = from - height; at < to; at += 7) {
      c.moveTo(at, top + height);
      c.lineTo(at + height, top);
    }
    c.stroke();
    c.restore();
  }

  /**
   * @param {Levels} levels
   * @param {number} left
   * @param {(at: number) => number} x
   * @param {number} top
   * @param {number} height
   * @param {string} colour
   */
  #bars(levels, left, x, top, height, colour) {
    const c = this.#context;
    const middle = top + height / 2;
    // Bars stand on a grid of time, so that they flow and do not flicker.
    const step = (BAR / (x(left + 1000) - x(left))) * 1000;
    let slot = NaN;
    let peak = 0;
    c.fillStyle = colour;
    c.beginPath();
    const bar = () => {
      if (!peak) return;
      const size = Math.max(2, loudness(peak) * height);
      c.roundRect(x(slot * step), middle - size / 2, BAR - 1.5, size, 1.25);
    };
    for (const level of levels.history) {
      if (level.at < left) continue;
      const at = Math.floor(level.at / step);
      if (at !== slot) {
        bar();
        slot = at;
        peak = 0;
      }
      peak = Math.max(peak, level.peak);
    }
    bar();
    c.fill();
  }

  /**
   * @param {'user'|'agent'} side
   * @param {(at: number) => number} x
   * @param {number} top
   * @param {number} rows
   */
  #words(side, x, top, rows) {
    const c = this.#context;
    const hue = this.#colours;
    const ends = new Array(rows).fill(-Infinity);
    for (const word of this.marks.words) {
      if (word.side !== side) continue;
      const at = x(word.at);
      const width = c.measureText(word.text).width;
      const row = ends.findIndex((end) => at > end + 6);
      // No room: the captions have every word.
      if (row < 0) continue;
      ends[row] = at + width;
      if (at + width < 0 || at > this.#width) continue;
      const y = top + row * ROW;
      c.fillStyle = word.unheard ? hue.cut : hue.ink;
      c.fillText(word.text, at, y);
      if (word.unheard) c.fillRect(at - 1, y + 6.5, width + 2, 1.5);
    }
  }

  /**
   * @param {number} x
   * @param {string} text
   */
  #epoch(x, text) {
    if (x < -120) return;
    const c = this.#context;
    c.fillStyle = this.#colours.cut;
    c.fillRect(Math.round(x) - 1, 0, 2, this.#height);
    c.font = `600 11px ${this.#colours.font}`;
    const width = c.measureText(text).width + 12;
    c.beginPath();
    c.roundRect(x - 1, 0, width, 17, [0, 6, 6, 0]);
    c.fill();
    c.fillStyle = this.#colours.paper;
    c.fillText(text, x + 5, 3);
    c.font = `12px ${this.#colours.font}`;
  }
}

/** @param {number} peak 0..1 */
function loudness(peak) {
  const db = 20 * Math.log10(Math.max(peak, 1e-6));
  // A little steeper than decibels, so that syllables stand out.
  return Math.min(1, Math.max(0, (db + RANGE) / (RANGE - 4))) ** 1.7;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    paper: of('--surface'),
    ink: of('--ink-2'),
    grid: of('--grid'),
    now: of('--line-strong'),
    user: of('--user'),
    userSoft: of('--user-soft'),
    agent: of('--agent'),
    hold: of('--hold'),
    holdSoft: of('--hold-soft'),
    cut: of('--cut'),
    font: style.fontFamily,
  };
}
