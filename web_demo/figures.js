/**
 * What the page measures: from what its own audio graph heard on both sides, and from what the server says happened.
 *
 * @typedef {import('./activity.js').Activity} Activity
 * @typedef {{last: number|null, median: number|null, count: number}} Figure  In ms.
 */

/** A reply to something said longer ago than this is not the answer to it, ms. */
const BELATED = 20_000;
/** After a cut the sound is looked at for this long, ms. */
const SETTLE = 350;

/** @param {readonly number[]} values */
export function median(values) {
  if (!values.length) return null;
  const ordered = [...values].sort((a, b) => a - b);
  const middle = ordered.length >> 1;
  return ordered.length % 2 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
}

export class Figures {
  /** @type {number[]} */
  #firstAudio = [];
  /** @type {number[]} */
  #stops = [];
  /** End of the speech that waits for its answer. @type {number|null} */
  #asked = null;
  /** Since when that speech counts as ended. */
  #endedAt = 0;
  /** When the server said that a cut was made; null where all are counted. @type {number|null} */
  #cut = null;

  /**
   * @param {Activity} user
   * @param {Activity} agent
   */
  constructor(user, agent) {
    this.user = user;
    this.agent = agent;
  }

  /** From the end of the user's speech to the first sound of the answer. */
  get firstAudio() {
    return figure(this.#firstAudio);
  }

  /** From the onset of speech over the agent to its silence. */
  get stop() {
    return figure(this.#stops);
  }

  /** Whether a cut is still looked at. */
  get settling() {
    return this.#cut !== null;
  }

  /**
   * @param {import('./call.js').ServerEvent} event
   * @param {number} at
   */
  take(event, at) {
    if (event.type === 'x_talkover.turn_ended' || event.type === 'input_audio_buffer.committed') {
      const run = this.user.runBefore(at);
      if (this.#asked !== null && run && this.#asked === run.to) return;
      this.#asked = run && at - run.to < BELATED ? run.to : null;
      this.#endedAt = at;
    } else if (event.type === 'x_talkover.epoch_began' && event.cause === 'barge_in') {
      this.#cut = at;
    }
    this.look(at);
  }

  /**
   * Sees whether something that was waited for has happened.
   * @param {number} at
   */
  look(at) {
    if (this.#asked !== null) {
      const onset = this.agent.onsetAfter(this.#asked);
      if (onset !== null && onset > this.#endedAt - SETTLE) {
        this.#firstAudio.push(onset - this.#asked);
        this.#asked = null;
      } else if (at - this.#asked > BELATED) this.#asked = null;
    }
    if (this.#cut !== null && at - this.#cut >= SETTLE) {
      // Only now are the levels of before the cut sure to be here: they come another way than the server's word.
      const speech = this.user.runBefore(this.#cut);
      const sounding = this.agent.runBefore(this.#cut);
      // What sounds on past the cut is counted too: that is what this figure is to show. Who speaks in a pause of the
      // agent silences nothing.
      if (speech && sounding && sounding.to > speech.from) this.#stops.push(Math.min(sounding.to, at) - speech.from);
      this.#cut = null;
    }
  }
}

/** @param {readonly number[]} values @returns {Figure} */
const figure = (values) => ({ last: values.at(-1) ?? null, median: median(values), count: values.length });
