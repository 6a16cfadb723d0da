/**
 * A recording on the server: what it holds, its marks, peaks and samples. Everything is fetched when it is looked at,
 * and kept for a while. Times are seconds of the session timeline.
 */

import { authorization } from '../settings.js';

/** Ticks of a second. */
export const TICKS = 48_000;
/** Samples of a bucket of peaks of level 0, and by how much each level is coarser. */
const BUCKET = 64;
const FACTOR = 4;
const LEVELS = 8;
/** Samples that one request for peaks covers at most; the server reads them all. */
const TILE_SAMPLES = 8 * BUCKET * FACTOR ** (LEVELS - 1);
const TILE_BUCKETS = 4096;
const TILES_KEPT = 600;
/** Seconds of samples in one request, and how many of these are kept. */
export const STRETCH = 5;
const STRETCHES_KEPT = 60;
const CHAPTERS_KEPT = 80;
/** Requests at a time. */
const AT_ONCE = 3;

/**
 * @typedef {{name: string, rate: number, starts: number, length: number}} Track  `starts` and `length` in seconds.
 * @typedef {{now: number, epoch: number, cause: string}} Interruption
 * @typedef {Record<string, any>} Marks
 * @typedef {{n: number, now: number, event: Record<string, any>, effects: Record<string, any>[]}} Step
 */

/** What the server refused, with its code. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * @param {string} path  Below the recordings.
 * @param {{method?: string, body?: object, bytes?: Blob}} [given]  `body`: JSON that is posted; `bytes`: of a file.
 * @throws {Refused}
 */
export async function ask(path, { method, body, bytes } = {}) {
  const kind = bytes ? 'application/octet-stream' : 'application/json';
  const headers = { ...authorization(), ...(body || bytes ? { 'Content-Type': kind } : {}) };
  const sent = bytes ?? (body && JSON.stringify(body));
  let answer;
  try {
    answer = await fetch(`/v1/talkover/recordings${path}`, { method: method ?? (body ? 'POST' : 'GET'), headers, body: sent });
  } catch {
    throw new Refused(0, 'unreachable', 'The server does not answer.');
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: null }));
  throw new Refused(answer.status, error?.code ?? 'error', error?.message ?? `The server answered ${answer.status}.`);
}

/** A cache that forgets what was used the longest ago. @template V */
class Kept {
  /** @type {Map<string, V>} */
  #map = new Map();

  /** @param {number} most */
  constructor(most) {
    this.most = most;
  }

  /** @param {string} key */
  get(key) {
    const value = this.#map.get(key);
    if (value !== undefined) {
      this.#map.delete(key);
      this.#map.set(key, value);
    }
    return value;
  }

  /**
   * @param {string} key
   * @param {V} value
   */
  set(key, value) {
    this.#map.set(key, value);
    if (this.#map.size > this.most) this.#map.delete(/** @type {string} */ (this.#map.keys().next().value));
  }
}

/** Dispatches 'more' when something that was asked for has come, and 'problem' (detail: a `Refused`). */
export class Source extends EventTarget {
  id = '';
  length = 0;
  live = false;
  /** Whether it was opened from a folder of whoever looks. */
  brought = false;
  /** @type {Track[]} */
  tracks = [];
  /** @type {number[]} */
  chapters = [];
  /** @type {Interruption[]} */
  interruptions = [];
  /** @type {Record<string, any>} */
  manifest = {};
  /** @type {{name: string, size_bytes: number}[]} */
  files = [];
  /** @type {Kept<Int8Array>} */
  #tiles = new Kept(TILES_KEPT);
  /** @type {Kept<Marks>} */
  #marks = new Kept(CHAPTERS_KEPT);
  /** @type {Kept<Int16Array>} */
  #stretches = new Kept(STRETCHES_KEPT);
  /** @type {Map<number, Promise<Step[]>>} */
  #events = new Map();
  /** What is wanted and not on its way yet, the most urgent last. @type {Map<string, () => Promise<void>>} */
  #wanted = new Map();
  /** @type {Set<string>} */
  #running = new Set();

  /** @param {string} id */
  async open(id) {
    this.id = id;
    const told = await (await this.#ask('')).json();
    this.live = told.live;
    this.brought = told.brought;
    this.length = told.length / TICKS;
    this.tracks = told.tracks.map((/** @type {Track} */ track) => ({
      ...track,
      starts: track.starts / TICKS,
      length: track.length / TICKS,
    }));
    this.chapters = told.chapters.map((/** @type {number} */ ticks) => ticks / TICKS);
    this.manifest = told.manifest;
    this.files = told.files;
  }

  /** Looks through all chapters for epochs, which takes the server a while in a long session. */
  async findInterruptions() {
    try {
      const { interruptions } = await (await this.#ask('/interruptions')).json();
      this.interruptions = interruptions.map((/** @type {Interruption} */ one) => ({ ...one, now: one.now / TICKS }));
      this.dispatchEvent(new Event('more'));
    } catch (error) {
      this.#complain(error);
    }
  }

  /**
   * @param {string} path
   * @param {object} [body]
   */
  #ask(path, body) {
    return ask(`/${encodeURIComponent(this.id)}${path}`, body ? { body } : {});
  }

  /**
   * Asks for what takes a while, again and again until it is there.
   * @param {string} path
   * @param {(seconds: number) => void} running  Is told for how long it has been running.
   * @param {object} [body]
   */
  async #askLong(path, running, body) {
    for (;;) {
      const answer = await this.#ask(path, body);
      if (answer.status !== 202) return answer;
      running((await answer.json()).running_s);
    }
  }

  /** The session in words. @param {(seconds: number) => void} running */
  async explanation(running) {
    return (await this.#askLong('/explanation', running)).text();
  }

  /**
   * The session run otherwise.
   * @param {{set?: string[], drop?: string[], shift?: string[]}} wanted
   * @param {(seconds: number) => void} running
   * @returns {Promise<{same: boolean, text: string, limits: string[], marks: Marks}>}
   */
  async whatIf(wanted, running) {
    return (await this.#askLong('/what-if', running, wanted)).json();
  }

  /** @param {unknown} error */
  #complain(error) {
    if (error instanceof Refused) this.dispatchEvent(new CustomEvent('problem', { detail: error }));
    else throw error;
  }

  /** @param {string} name */
  track(name) {
    return this.tracks.find((track) => track.name === name) ?? null;
  }

  /** The chapter that holds this time. @param {number} at */
  chapterAt(at) {
    let low = 0;
    let high = this.chapters.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.chapters[middle] <= at) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /**
   * Asks for something once; it comes with 'more'. What is asked for last is fetched first.
   * @param {string} key
   * @param {() => Promise<void>} fetchIt
   */
  #want(key, fetchIt) {
    if (this.#running.has(key)) return;
    this.#wanted.delete(key);
    this.#wanted.set(key, fetchIt);
    // What was wanted long ago has left the screen.
    if (this.#wanted.size > 120) this.#wanted.delete(/** @type {string} */ (this.#wanted.keys().next().value));
    this.#pump();
  }

  #pump() {
    while (this.#running.size < AT_ONCE && this.#wanted.size) {
      const [key, fetchIt] = /** @type {[string, () => Promise<void>]} */ ([...this.#wanted].at(-1));
      this.#wanted.delete(key);
      this.#running.add(key);
      fetchIt()
        .then(() => this.dispatchEvent(new Event('more')))
        .catch((error) => this.#complain(error))
        .finally(() => {
          this.#running.delete(key);
          this.#pump();
        });
    }
  }

  /** Whether everything that was asked for has come. */
  get settled() {
    return this.#running.size === 0 && this.#wanted.size === 0;
  }

  /**
   * The marks of a chapter; null while they are on their way.
   * @param {number} chapter
   * @returns {Marks|null}
   */
  marks(chapter) {
    const key = `marks ${chapter}`;
    const marks = this.#marks.get(key);
    if (marks) return marks;
    this.#want(key, async () => {
      this.#marks.set(key, await (await this.#ask(`/chapters/${chapter}`)).json());
    });
    return null;
  }

  /**
   * Every event of a chapter. The two newest chapters that were asked for are kept.
   * @param {number} chapter
   * @returns {Promise<Step[]>}
   */
  events(chapter) {
    let events = this.#events.get(chapter);
    if (!events) {
      events = this.#ask(`/chapters/${chapter}/events`)
        .then((answer) => answer.json())
        .then(({ events: found }) => found);
      events.catch(() => this.#events.delete(chapter));
      this.#events.set(chapter, events);
      if (this.#events.size > 2) this.#events.delete(/** @type {number} */ (this.#events.keys().next().value));
    }
    return events;
  }

  /**
   * The coarsest level whose buckets are no longer than `seconds`.
   * @param {Track} track
   * @param {number} seconds
   */
  level(track, seconds) {
    const level = Math.floor(Math.log((seconds * track.rate) / BUCKET) / Math.log(FACTOR));
    return Math.max(0, Math.min(LEVELS - 1, level));
  }

  /** Seconds of a bucket. @param {Track} track @param {number} level */
  bucket(track, level) {
    return (BUCKET * FACTOR ** level) / track.rate;
  }

  /**
   * The peaks of a track around bucket `first`: the tile that holds it, and the bucket at which it begins. Null while
   * it is on its way.
   * @param {Track} track
   * @param {number} level
   * @param {number} first
   * @param {boolean} [wanted]  Whether it is to be fetched where it is not here.
   * @returns {{data: Int8Array, begin: number, size: number}|null}
   */
  peaks(track, level, first, wanted = true) {
    const size = Math.min(TILE_BUCKETS, TILE_SAMPLES / (BUCKET * FACTOR ** level));
    const begin = Math.floor(first / size) * size;
    const key = `peaks ${track.name} ${level} ${begin}`;
    const data = this.#tiles.get(key);
    if (data) return { data, begin, size };
    if (wanted) {
      this.#want(key, async () => {
        const path = `/peaks/${encodeURIComponent(track.name)}?level=${level}&first=${begin}&count=${size}`;
        this.#tiles.set(key, new Int8Array(await (await this.#ask(path)).arrayBuffer()));
      });
    }
    return null;
  }

  /**
   * The samples of stretch `number` of a track, which begins at `number * STRETCH` of the track. Null while on its way.
   * @param {Track} track
   * @param {number} number
   * @returns {Int16Array|null}
   */
  stretch(track, number) {
    const key = `samples ${track.name} ${number}`;
    const samples = this.#stretches.get(key);
    if (samples) return samples;
    this.#want(key, async () => {
      const from = number * STRETCH * TICKS;
      const path = `/audio/${encodeURIComponent(track.name)}?from=${from}&to=${from + STRETCH * TICKS}`;
      const wav = await (await this.#ask(path)).arrayBuffer();
      this.#stretches.set(key, new Int16Array(wav, 44));
    });
    return null;
  }
}
