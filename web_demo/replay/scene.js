/** Draws what is looked at: lanes with waveforms, words, speech, holds and epochs, the stages of answers, a ruler. */

import { clock, gridStep } from './view.js';
import { TICKS, STRETCH } from './source.js';
import { inputLag, watermarks } from './watermarks.js';

/**
 * @typedef {import('./source.js').Source} Source
 * @typedef {import('./source.js').Track} Track
 * @typedef {import('./source.js').Marks} Marks
 * @typedef {import('./view.js').View} View
 * @typedef {{name: string, label: string, side: 'user'|'agent', hears: string[]}} Lane
 */

/** @type {readonly Lane[]} */
export const LANES = [
  { name: 'user_in', label: 'User', side: 'user', hears: ['speech', 'words', 'vad', 'arrival'] },
  { name: 'agent_sent', label: 'Sent', side: 'agent', hears: ['holds'] },
  { name: 'agent_heard', label: 'Heard', side: 'agent', hears: ['words'] },
];
/** Marks are drawn up to this many chapters; beyond, the epochs alone. */
const CHAPTERS_MOST = 14;
const RULER = 22;
const STAGES = 74;
const ROW = 15;
/** Below so many seconds a pixel the samples themselves are drawn. */
const SAMPLES_BELOW = 0.0004;
const STAGE_ROW = 17;
/** How high the line of the input watermark can rise, pixels, and how late the input is then, seconds. */
const LAG_HEIGHT = 12;
const LAG_MOST = 0.4;

/** The stages of an answer, in order, with the word for what led to each. */
const STAGE_WORDS = /** @type {Record<string, string>} */ ({
  turn: 'end of turn',
  words: 'words',
  first_token: 'first token',
  first_clause: 'clause',
  first_audio: 'voice',
  sent: 'sent',
});

export class Scene {
  #canvas;
  #context;
  #width = 0;
  #height = 0;
  #colours = colours();
  #frame = 0;
  /** How long the last drawings took, ms. @type {number[]} */
  took = [];
  /** The marks of a run that went otherwise, drawn over the recorded ones. @type {Marks|null} */
  altered = null;
  /** Where the watermarks stood at the cursor, when it was drawn last. */
  marked = watermarks([], 0);
  /** Whether the last drawing had everything that it wanted to show. */
  complete = false;
  /** @type {() => {at: number, loop: [number, number]|null}} */
  state = () => ({ at: 0, loop: null });
  /** Called after each drawing. */
  drawn = () => {};

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Source} source
   * @param {View} view
   */
  constructor(canvas, source, view) {
    this.#canvas = canvas;
    this.#context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    this.source = source;
    this.view = view;
    new ResizeObserver(() => this.#measure()).observe(canvas);
    this.#measure();
  }

  recolour() {
    this.#colours = colours();
    this.redraw();
  }

  #measure() {
    const { width, height } = this.#canvas.getBoundingClientRect();
    const scale = window.devicePixelRatio || 1;
    this.#width = width;
    this.#height = height;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    this.#context.setTransform(scale, 0, 0, scale, 0, 0);
    this.redraw();
  }

  /** Draws with the next frame. */
  redraw() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      const began = performance.now();
      this.#draw();
      this.drawn();
      this.took.push(performance.now() - began);
      if (this.took.length > 600) this.took.shift();
    });
  }

  /** The time at a pixel. @param {number} x */
  time(x) {
    return this.view.from + (x / this.#width) * this.view.span;
  }

  get width() {
    return this.#width;
  }

  /** @param {number} at */
  #x(at) {
    return ((at - this.view.from) / this.view.span) * this.#width;
  }

  #draw() {
    const c = this.#context;
    const { view, source } = this;
    const hue = this.#colours;
    c.clearRect(0, 0, this.#width, this.#height);
    this.complete = false;
    if (!source.length || !this.#width) return;
    this.complete = true;
    const laneHeight = (this.#height - RULER - STAGES) / LANES.length;
    const chapters = this.#chapters();
    this.#ruler(laneHeight);
    LANES.forEach((lane, index) => {
      const top = RULER + index * laneHeight;
      const wave = { top: top + 8, height: laneHeight - (lane.hears.includes('words') ? 2 * ROW + 14 : 16) };
      for (const marks of chapters) {
        if (lane.hears.includes('speech')) this.#speech(marks, wave);
        if (lane.hears.includes('holds')) this.#holds(marks, wave);
      }
      const track = source.track(lane.name);
      if (track) this.#wave(track, wave, lane.side === 'user' ? hue.user : lane.name === 'agent_sent' ? hue.sent : hue.agent);
      if (lane.hears.includes('vad') && view.span < 40) for (const marks of chapters) this.#vad(marks, wave);
      if (lane.hears.includes('arrival')) for (const marks of chapters) this.#arrival(marks, top + laneHeight - 3);
      if (lane.hears.includes('words')) this.#words(lane.side, chapters, wave.top + wave.height + 6);
    });
    this.#stages(chapters, RULER + LANES.length * laneHeight);
    this.#epochs(chapters);
    if (this.altered) this.#otherwise(this.altered, RULER + laneHeight, laneHeight);
    this.#reports(chapters, RULER + laneHeight, laneHeight);
    this.marked = watermarks(chapters, this.state().at);
    this.#watermarks(laneHeight);
    this.#cursor();
  }

  /** The marks of the chapters in view, as far as they are here. @returns {Marks[]} */
  #chapters() {
    const { source, view } = this;
    if (!source.chapters.length) return [];
    const first = source.chapterAt(view.from);
    const last = source.chapterAt(view.to);
    if (last - first >= CHAPTERS_MOST) return [];
    const found = [];
    // One before: what was begun there may last.
    for (let chapter = Math.max(0, first - 1); chapter <= last; chapter += 1) {
      const marks = source.marks(chapter);
      if (marks) found.push(marks);
      else this.complete = false;
    }
    return found;
  }

  /** @param {number} laneHeight */
  #ruler(laneHeight) {
    const c = this.#context;
    const { view } = this;
    const step = gridStep(view.span, this.#width / 90);
    const digits = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
    c.font = `11px ${this.#colours.font}`;
    c.textBaseline = 'middle';
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      const x = Math.round(this.#x(at));
      c.fillStyle = this.#colours.grid;
      c.fillRect(x, RULER, 1, this.#height);
      c.fillStyle = this.#colours.faint;
      c.fillText(clock(at, digits), x + 5, RULER / 2);
    }
    c.fillStyle = this.#colours.line;
    for (let lane = 0; lane <= LANES.length; lane += 1) c.fillRect(0, Math.round(RULER + lane * laneHeight), this.#width, 1);
  }

  /**
   * @param {Track} track
   * @param {{top: number, height: number}} place
   * @param {string} colour
   */
  #wave(track, place, colour) {
    const c = this.#context;
    const { view } = this;
    const perPixel = view.span / this.#width;
    c.fillStyle = colour;
    c.strokeStyle = colour;
    if (perPixel < SAMPLES_BELOW && this.#samples(track, place)) return;
    const middle = place.top + place.height / 2;
    const half = place.height / 2;
    const level = this.source.level(track, perPixel);
    const left = Math.max(0, Math.floor(this.#x(track.starts)));
    const right = Math.min(this.#width, Math.ceil(this.#x(track.starts + track.length)));
    c.beginPath();
    for (let x = left; x < right; x += 1) {
      const from = view.from + x * perPixel - track.starts;
      const found = this.#peak(track, level, from, from + perPixel);
      if (!found) continue;
      const [least, greatest] = found;
      const top = middle - (greatest / 127) * half;
      c.rect(x, top, 1, Math.max(1, ((greatest - least) / 127) * half));
    }
    c.fill();
  }

  /**
   * The least and the greatest of a stretch of a track; from a coarser level while the wanted one is on its way.
   * @param {Track} track
   * @param {number} level
   * @param {number} from
   * @param {number} to
   */
  #peak(track, level, from, to) {
    for (let at = level; at < 8; at += 1) {
      const bucket = this.source.bucket(track, at);
      const first = Math.max(0, Math.floor(from / bucket));
      const last = Math.max(first, Math.ceil(to / bucket) - 1);
      let tile = this.source.peaks(track, at, first, at === level);
      if (!tile) {
        this.complete = false;
        continue;
      }
      let least = 127;
      let greatest = -127;
      for (let index = first; index <= last; index += 1) {
        if (index >= tile.begin + tile.size) {
          const next = this.source.peaks(track, at, index, at === level);
          if (!next) {
            this.complete = false;
            break;
          }
          tile = next;
        }
        const place = (index - tile.begin) * 2;
        if (place + 1 >= tile.data.length) break;
        least = Math.min(least, tile.data[place]);
        greatest = Math.max(greatest, tile.data[place + 1]);
      }
      return least > greatest ? null : [least, greatest];
    }
    return null;
  }

  /**
   * @param {Track} track
   * @param {{top: number, height: number}} place
   */
  #samples(track, place) {
    const c = this.#context;
    const { view } = this;
    const from = Math.max(0, view.from - track.starts);
    const to = Math.min(track.length, view.to - track.starts);
    if (to <= from) return true;
    const middle = place.top + place.height / 2;
    c.lineWidth = 1.2;
    c.beginPath();
    let begun = false;
    const dots = (view.span * track.rate) / this.#width < 0.25;
    for (let number = Math.floor(from / STRETCH); number <= Math.floor(to / STRETCH); number += 1) {
      const samples = this.source.stretch(track, number);
      if (!samples) return false;
      const base = number * STRETCH * track.rate;
      const first = Math.max(0, Math.floor(from * track.rate - base) - 1);
      const last = Math.min(samples.length - 1, Math.ceil(to * track.rate - base) + 1);
      for (let index = first; index <= last; index += 1) {
        const x = this.#x(track.starts + (base + index) / track.rate);
        const y = middle - (samples[index] / 32768) * (place.height / 2);
        if (begun) c.lineTo(x, y);
        else c.moveTo(x, y);
        begun = true;
        if (dots) c.fillRect(x - 2, y - 2, 4, 4);
      }
    }
    c.stroke();
    return true;
  }

  /**
   * @param {Marks} marks
   * @param {{top: number, height: number}} place
   */
  #speech(marks, place) {
    for (const [from, to] of marks.speech) {
      this.#band(from / TICKS, to / TICKS, place.top - 3, place.height + 6, this.#colours.userSoft);
    }
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {number} top
   * @param {number} height
   * @param {string} colour
   */
  #band(from, to, top, height, colour) {
    const c = this.#context;
    const [left, right] = [this.#x(from), this.#x(to)];
    if (right < 0 || left > this.#width) return;
    c.fillStyle = colour;
    c.beginPath();
    c.roundRect(left, top, Math.max(2, right - left), height, 5);
    c.fill();
  }

  /**
   * @param {Marks} marks
   * @param {{top: number, height: number}} place
   */
  #holds(marks, place) {
    const c = this.#context;
    let since = null;
    const ends = [...marks.holds];
    for (const { now, what } of ends) {
      if (what === 'hold') since = now;
      else if (since !== null) {
        const [left, right] = [this.#x(since / TICKS), this.#x(now / TICKS)];
        this.#band(since / TICKS, now / TICKS, place.top - 3, place.height + 6, this.#colours.holdSoft);
        if (right > 0 && left < this.#width && right - left > 30) {
          c.fillStyle = this.#colours.hold;
          c.font = `600 11px ${this.#colours.font}`;
          c.textBaseline = 'top';
          c.fillText(what === 'cut' ? 'hold → cut' : 'hold', left + 5, place.top);
        }
        since = null;
      }
    }
  }

  /**
   * @param {Marks} marks
   * @param {{top: number, height: number}} place
   */
  #vad(marks, place) {
    const c = this.#context;
    c.strokeStyle = this.#colours.faint;
    c.lineWidth = 1;
    c.globalAlpha = 0.7;
    c.beginPath();
    let before = -Infinity;
    for (let index = 0; index < marks.vad.length; index += 2) {
      const at = marks.vad[index];
      const x = this.#x(at / TICKS);
      const y = place.top + place.height * (1 - marks.vad[index + 1] / 100);
      if (at - before > 5000) c.moveTo(x, y);
      else c.lineTo(x, y);
      before = at;
    }
    c.stroke();
    c.globalAlpha = 1;
  }

  /**
   * @param {'user'|'agent'} side
   * @param {Marks[]} chapters
   * @param {number} top
   */
  #words(side, chapters, top) {
    const c = this.#context;
    const hue = this.#colours;
    c.font = `12px ${hue.font}`;
    c.textBaseline = 'top';
    const unheard = struck(chapters);
    const ends = [-Infinity, -Infinity];
    for (const marks of chapters) {
      for (const word of marks.words) {
        if (word.side !== side) continue;
        const x = this.#x(word.at / TICKS);
        if (x > this.#width) continue;
        const text = word.text.trim();
        const width = c.measureText(text).width;
        const row = ends.findIndex((end) => x > end + 5);
        if (row < 0) continue;
        ends[row] = x + width;
        if (x + width < 0) continue;
        const cut = unheard.has(word);
        c.fillStyle = cut ? hue.cut : hue.ink;
        c.fillText(text, x, top + row * ROW);
        if (cut) c.fillRect(x - 1, top + row * ROW + 6.5, width + 2, 1.5);
      }
    }
  }

  /**
   * @param {Marks[]} chapters
   * @param {number} top
   */
  #stages(chapters, top) {
    const c = this.#context;
    const hue = this.#colours;
    c.textBaseline = 'middle';
    for (const { turn, steps } of answers(chapters)) {
      let from = turn;
      let row = 0;
      for (const [stage, at] of steps) {
        const [left, right] = [this.#x(from / TICKS), this.#x(at / TICKS)];
        if (right > 0 && left < this.#width) {
          const y = top + 8 + (row % 3) * (STAGE_ROW + 3);
          this.#band(from / TICKS, at / TICKS, y, STAGE_ROW, hue.stage);
          const text = `${STAGE_WORDS[stage] ?? stage} ${Math.round((at - from) / 48)} ms`;
          c.font = `11px ${hue.font}`;
          if (right - left > c.measureText(text).width + 8) {
            c.fillStyle = hue.ink;
            c.fillText(text, left + 5, y + STAGE_ROW / 2);
          }
        }
        from = at;
        row += 1;
      }
    }
  }

  /** @param {Marks[]} chapters */
  #epochs(chapters) {
    const c = this.#context;
    const hue = this.#colours;
    c.textBaseline = 'top';
    const near = this.source.interruptions;
    const labelled = chapters.length > 0;
    for (const { now, epoch, cause } of near) {
      const x = this.#x(now);
      if (x < -100 || x > this.#width) continue;
      c.fillStyle = hue.cut;
      c.fillRect(Math.round(x) - 1, RULER, 2, this.#height - RULER);
      if (!labelled) continue;
      const text = `${epoch} · ${cause}`;
      c.font = `600 11px ${hue.font}`;
      const width = c.measureText(text).width + 12;
      c.beginPath();
      c.roundRect(x - 1, RULER, width, 16, [0, 6, 6, 0]);
      c.fill();
      c.fillStyle = hue.paper;
      c.fillText(text, x + 5, RULER + 3);
    }
  }

  /**
   * What was heard, as it was reported: ticks below the sent lane.
   * @param {Marks[]} chapters
   * @param {number} top
   * @param {number} height
   */
  #reports(chapters, top, height) {
    const c = this.#context;
    c.fillStyle = this.#colours.good;
    for (const marks of chapters) {
      for (const [now] of marks.reports) {
        const x = this.#x(now / TICKS);
        if (x >= 0 && x < this.#width) c.fillRect(Math.round(x), top + height - 6, 1.5, 5);
      }
    }
  }

  /**
   * How the input watermark went: a line that rises where the user's audio came late, broken where none came.
   * @param {Marks} marks
   * @param {number} bottom
   */
  #arrival(marks, bottom) {
    const c = this.#context;
    c.strokeStyle = this.#colours.good;
    c.lineWidth = 1.5;
    c.beginPath();
    let begun = false;
    for (const { now, behind, hole } of inputLag(marks)) {
      const x = this.#x(now);
      const y = bottom - Math.min(1, behind / LAG_MOST) * LAG_HEIGHT;
      if (begun && !hole) c.lineTo(x, y);
      else c.moveTo(x, y);
      begun = true;
    }
    c.stroke();
  }

  /**
   * Where both watermarks stood at the cursor: up to there the user's audio had come, and the agent been heard.
   * @param {number} laneHeight
   */
  #watermarks(laneHeight) {
    const c = this.#context;
    const { input, heard } = this.marked;
    c.fillStyle = this.#colours.good;
    for (const [at, lane] of /** @type {[number|null, number][]} */ ([[input, 0], [heard, 1]])) {
      if (at === null) continue;
      const x = Math.round(this.#x(at));
      const bottom = RULER + (lane + 1) * laneHeight;
      c.fillRect(x - 1, bottom - laneHeight + 2, 1.5, laneHeight - 4);
      c.beginPath();
      c.moveTo(x - 5, bottom);
      c.lineTo(x + 5, bottom);
      c.lineTo(x, bottom - 8);
      c.fill();
    }
  }

  /**
   * How it would have gone: what would have been sent as an outline in the sent lane, epochs as broken lines.
   * @param {Marks} marks
   * @param {number} top
   * @param {number} height
   */
  #otherwise(marks, top, height) {
    const c = this.#context;
    const hue = this.#colours;
    c.strokeStyle = hue.hold;
    c.lineWidth = 1.5;
    for (const [placed, length] of marks.sent) {
      const [left, right] = [this.#x(placed / TICKS), this.#x((placed + length) / TICKS)];
      if (right > 0 && left < this.#width) c.strokeRect(left, top + 4, Math.max(1, right - left), height - 8);
    }
    c.setLineDash([5, 4]);
    c.font = `600 11px ${hue.font}`;
    c.textBaseline = 'top';
    c.fillStyle = hue.hold;
    let labelled = -Infinity;
    for (const { now, cause } of marks.epochs) {
      const x = this.#x(now / TICKS);
      if (x < -100 || x > this.#width) continue;
      c.beginPath();
      c.moveTo(x, RULER);
      c.lineTo(x, this.#height);
      c.stroke();
      if (x < labelled) continue;
      const text = `otherwise: ${cause}`;
      c.fillText(text, x + 5, RULER + 18);
      labelled = x + c.measureText(text).width + 12;
    }
    c.setLineDash([]);
  }

  #cursor() {
    const c = this.#context;
    const { at, loop } = this.state();
    if (loop) {
      const [left, right] = [this.#x(loop[0]), this.#x(loop[1])];
      c.fillStyle = this.#colours.loop;
      c.fillRect(left, 0, Math.max(1, right - left), this.#height);
    }
    const x = Math.round(this.#x(at));
    if (x < -6 || x > this.#width + 6) return;
    c.fillStyle = this.#colours.focus;
    c.fillRect(x - 1, 0, 2, this.#height);
    c.beginPath();
    c.moveTo(x - 6, 0);
    c.lineTo(x + 6, 0);
    c.lineTo(x, 9);
    c.fill();
  }
}

/**
 * The words of the agent that were sent and not heard.
 * @param {Marks[]} chapters
 * @returns {Set<object>}
 */
export function struck(chapters) {
  const found = new Set();
  for (const cut of chapters.flatMap((marks) => marks.cleared)) {
    const words = chapters.flatMap((marks) => marks.words.filter((/** @type {any} */ word) => word.response === cut.response));
    words.forEach((word, index) => {
      // A word is over when the next one begins; of the last one only what the history kept tells.
      const over = words[index + 1]?.content ?? Infinity;
      if (word.content >= cut.heard || (over > cut.heard && !cut.text.trim().endsWith(word.text.trim()))) found.add(word);
    });
  }
  return found;
}

/**
 * The answers in these chapters: when the turn before each ended, and its stages in order.
 * @param {Marks[]} chapters
 * @returns {{response: string, turn: number, steps: [string, number][]}[]}
 */
export function answers(chapters) {
  /** @type {Map<string, Map<string, number>>} */
  const stages = new Map();
  const turns = [];
  for (const marks of chapters) {
    for (const turn of marks.turns) turns.push(turn);
    for (const { now, response, stage } of marks.stages) {
      if (!response || stage === 'played') continue;
      const reached = stages.get(response) ?? new Map();
      if (!reached.has(stage)) reached.set(stage, now);
      stages.set(response, reached);
    }
  }
  const found = [];
  for (const [response, reached] of stages) {
    const sent = reached.get('sent');
    if (sent === undefined) continue;
    const turn = turns.findLast(({ now, end }) => now <= sent && sent - end < 20 * TICKS);
    const steps = /** @type {[string, number][]} */ ([...reached]);
    if (turn) steps.push(['turn', turn.now]);
    steps.sort((a, b) => a[1] - b[1]);
    found.push({ response, turn: turn ? turn.end : steps[0][1], steps: steps.filter(([, at]) => at >= (turn?.end ?? 0)) });
  }
  return found;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    paper: of('--surface'),
    ink: of('--ink-2'),
    faint: of('--ink-3'),
    grid: of('--grid'),
    line: of('--line'),
    user: of('--user'),
    userSoft: of('--user-soft'),
    agent: of('--agent'),
    sent: `color-mix(in srgb, ${of('--agent')} 45%, ${of('--surface')})`,
    stage: `color-mix(in srgb, ${of('--agent')} 14%, ${of('--surface')})`,
    loop: `color-mix(in srgb, ${of('--focus')} 16%, transparent)`,
    hold: of('--hold'),
    holdSoft: of('--hold-soft'),
    cut: of('--cut'),
    good: of('--good'),
    focus: of('--focus'),
    font: style.fontFamily,
  };
}
