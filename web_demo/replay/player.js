/**
 * Plays both sides of a recording on one clock. Samples are scheduled ahead on the audio thread's own clock, so the
 * sides stay together to the sample. Dispatches 'state'.
 */

import { STRETCH } from './source.js';

/** @typedef {import('./source.js').Source} Source */
/** @typedef {'user'|'agent'} Side */

/** How far ahead is scheduled, and how often it is looked whether to, seconds. */
const AHEAD = 2.5;
const LOOK_MS = 120;
/** The first sound comes so much after the press, so that nothing of it is lost, seconds. */
const BEGIN = 0.06;

export class Player extends EventTarget {
  playing = false;
  /** Waits for samples. */
  waiting = false;
  /** @type {[number, number]|null} */
  loop = null;
  #at = 0;
  #context = /** @type {AudioContext|null} */ (null);
  /** @type {Record<Side, GainNode>|null} */
  #gains = null;
  /** @type {Record<Side, boolean>} */
  #muted = { user: false, agent: false };
  /** Context time less session time. */
  #offset = 0;
  /** Up to where it is scheduled, session time. */
  #until = 0;
  /** @type {Set<AudioBufferSourceNode>} */
  #nodes = new Set();
  #timer = 0;

  /** @param {Source} source */
  constructor(source) {
    super();
    this.source = source;
  }

  /** Where it is, seconds of the session. */
  get at() {
    if (!this.playing || this.waiting || !this.#context) return this.#at;
    return Math.max(this.#at, Math.min(this.#until, this.#context.currentTime - this.#offset));
  }

  /** @param {number} at */
  seek(at) {
    const going = this.playing;
    this.#silence();
    this.#at = Math.max(0, Math.min(this.source.length, at));
    if (going) this.#begin();
    this.dispatchEvent(new Event('state'));
  }

  async play() {
    if (this.playing) return;
    if (!this.#context) {
      this.#context = new AudioContext();
      const side = (/** @type {number} */ pan) => {
        const context = /** @type {AudioContext} */ (this.#context);
        const gain = new GainNode(context);
        gain.connect(new StereoPannerNode(context, { pan })).connect(context.destination);
        return gain;
      };
      this.#gains = { user: side(-0.4), agent: side(0.4) };
      this.#applyMutes();
    }
    this.playing = true;
    await this.#context.resume();
    if (this.#at >= this.source.length - 0.01) this.#at = 0;
    if (this.loop && (this.#at < this.loop[0] || this.#at >= this.loop[1])) this.#at = this.loop[0];
    this.#begin();
    this.dispatchEvent(new Event('state'));
  }

  pause() {
    this.#at = this.at;
    this.playing = false;
    this.#silence();
    this.dispatchEvent(new Event('state'));
  }

  /** @param {Side} side */
  muted(side) {
    return this.#muted[side];
  }

  /** @param {Side} side */
  toggle(side) {
    this.#muted[side] = !this.#muted[side];
    this.#applyMutes();
    this.dispatchEvent(new Event('state'));
  }

  #applyMutes() {
    if (!this.#gains) return;
    for (const side of /** @type {Side[]} */ (['user', 'agent'])) {
      this.#gains[side].gain.value = this.#muted[side] ? 0 : 1;
    }
  }

  #begin() {
    this.waiting = true;
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
    this.#look();
  }

  #silence() {
    clearInterval(this.#timer);
    for (const node of this.#nodes) node.stop();
    this.#nodes.clear();
    this.waiting = false;
  }

  /** Schedules what comes next. */
  #look() {
    const context = this.#context;
    if (!context || !this.playing) return;
    if (this.waiting) {
      if (!this.#there(this.#at)) return;
      this.waiting = false;
      this.#offset = context.currentTime + BEGIN - this.#at;
      this.#until = this.#at;
    }
    const end = this.loop ? this.loop[1] : this.source.length;
    const now = context.currentTime - this.#offset;
    while (this.#until < Math.min(end, now + AHEAD)) {
      if (!this.#there(this.#until)) break;
      const to = Math.min(end, this.#edge(this.#until));
      this.#schedule('user', this.#until, to);
      this.#schedule('agent', this.#until, to);
      this.#until = to;
    }
    if (now >= end) {
      if (this.loop) this.seek(this.loop[0]);
      else {
        this.#at = end;
        this.pause();
      }
    } else if (now >= this.#until) {
      // What comes next is not here yet.
      this.#at = this.#until;
      this.#silence();
      this.#begin();
    } else this.#at = Math.max(this.#at, now);
  }

  /** @param {Side} side */
  #track(side) {
    return this.source.track(side === 'user' ? 'user_in' : 'agent_heard');
  }

  /** The next border of the stretches of either track after `at`. @param {number} at */
  #edge(at) {
    const edges = /** @type {Side[]} */ (['user', 'agent']).map((side) => {
      const starts = this.#track(side)?.starts ?? 0;
      return (Math.floor((at - starts) / STRETCH + 1e-9) + 1) * STRETCH + starts;
    });
    return Math.min(...edges);
  }

  /** Whether both sides can be heard at `at`; what is not there is asked for, and what comes after it too. @param {number} at */
  #there(at) {
    const sides = /** @type {Side[]} */ (['user', 'agent']);
    return sides.map((side) => this.#has(side, at + STRETCH) && false || this.#has(side, at)).every(Boolean);
  }

  /**
   * @param {Side} side
   * @param {number} at
   */
  #has(side, at) {
    const track = this.#track(side);
    if (!track || at < track.starts || at >= track.starts + track.length) return true;
    return this.source.stretch(track, Math.floor((at - track.starts) / STRETCH + 1e-9)) !== null;
  }

  /**
   * @param {Side} side
   * @param {number} from
   * @param {number} to
   */
  #schedule(side, from, to) {
    const track = this.#track(side);
    const context = this.#context;
    if (!track || !context || !this.#gains || from < track.starts || from >= track.starts + track.length) return;
    const number = Math.floor((from - track.starts) / STRETCH + 1e-9);
    const samples = this.source.stretch(track, number);
    if (!samples?.length) return;
    const buffer = new AudioBuffer({ length: samples.length, numberOfChannels: 1, sampleRate: track.rate });
    const channel = buffer.getChannelData(0);
    for (let at = 0; at < samples.length; at += 1) channel[at] = samples[at] / 32768;
    const node = new AudioBufferSourceNode(context, { buffer });
    node.connect(this.#gains[side]);
    const inside = from - track.starts - number * STRETCH;
    node.start(Math.max(context.currentTime, from + this.#offset), Math.max(0, inside), to - from);
    this.#nodes.add(node);
    node.onended = () => this.#nodes.delete(node);
  }
}
