/**
 * How far a session was at a moment: up to where the user's audio had come, and what had been heard of the agent. Free
 * of the browser; times in seconds of the session.
 */

import { TICKS } from './source.js';

/** @typedef {import('./source.js').Marks} Marks */

/** Notes of the input are this far apart while it comes; a hole is longer, seconds. */
const HOLE = 0.5;

/**
 * The input watermark as it went: for each note when it was taken and how far the input lay behind then; `hole`: nothing
 * had come since the note before.
 * @param {Marks} marks  Of a chapter.
 * @returns {{now: number, behind: number, hole: boolean}[]}
 */
export function inputLag(marks) {
  let before = -Infinity;
  return marks.arrived.map((/** @type {[number, number]} */ [at, end]) => {
    const now = at / TICKS;
    const hole = now - before > HOLE && before !== -Infinity;
    before = now;
    return { now, behind: Math.max(0, now - (end + marks.offset) / TICKS), hole };
  });
}

/**
 * Where both watermarks stood at `at`, each as a place on the session timeline; null where nothing is known.
 * @param {Marks[]} chapters
 * @param {number} at
 * @returns {{input: number|null, heard: number|null}}
 */
export function watermarks(chapters, at) {
  const now = at * TICKS;
  let input = null;
  let report = null;
  for (const marks of chapters) {
    for (const [came, end] of marks.arrived) if (came <= now) input = (end + marks.offset) / TICKS;
    for (const one of marks.reports) if (one[0] <= now) report = one;
  }
  return { input, heard: report && placeOf(chapters, report[1], report[2]) };
}

/**
 * Where a position of an answer lies on the session timeline.
 * @param {Marks[]} chapters
 * @param {string} response
 * @param {number} position  Ticks.
 */
function placeOf(chapters, response, position) {
  let found = null;
  for (const marks of chapters) {
    for (const [placed, length, of, content] of marks.sent) {
      if (of === response && content <= position) found = (placed + Math.min(length, position - content)) / TICKS;
    }
  }
  return found;
}
