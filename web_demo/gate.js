/**
 * When what arrives may be heard: the epoch gate of docs/webrtc.md. It decides and touches nothing, so that it can be
 * tested without sound. RTP timestamps are unsigned 32-bit counts of 1/48000 s that wrap around.
 */

/** How far the timestamp leads what is heard on a good day, at most: 30 ms. */
export const MARGIN = 1440;
/** On a bad day the browser holds more behind it; so what arrives must also have been silent for so many looks. */
export const QUIET = 2;
/** An answer that follows the cut at once leaves no silence: it is waited for so long after the timestamp, ms. */
export const IMPATIENT = 250;
/** A mute of our own accord ends after this if the server begins no epoch, ms: there was nothing to cut. */
export const UNANSWERED = 500;
/** A mute by an epoch ends after this at the latest, ms: silence packets follow a cut, so a timestamp always comes. */
const STUCK = 3000;

/**
 * How far `a` lies behind `b`, in ticks; negative where it lies before it.
 * @param {number} a
 * @param {number} b
 */
export const rtpDistance = (a, b) => (a - b) | 0;

export class Gate {
  /** The newest epoch that is known; null before the first word of one. @type {number|null} */
  epoch = null;
  muted = false;
  /** @type {number|null} */
  #from = null;
  #since = 0;
  #own = false;
  /** When the timestamp passed the start of the epoch. @type {number|null} */
  #passed = null;
  #quiet = 0;

  /**
   * An epoch, as the server states it; stale and repeated statements are passed over.
   * @param {number} epoch
   * @param {number|null} from  RTP timestamp of its first packet.
   * @param {number} now        Page time, ms.
   * @param {number|null} [rtp] What sounds now.
   * @returns {boolean} Whether it is a new one of which nothing sounds yet, so that all is muted now.
   */
  begin(epoch, from, now, rtp = null) {
    if (this.epoch !== null && epoch < this.epoch) return false;
    // A statement that was long on its way comes when there is nothing left to mute, unless the page had muted already.
    const late = from !== null && rtp !== null && rtpDistance(rtp, from) >= IMPATIENT * 48 && !this.muted;
    const grown = this.epoch !== null && epoch > this.epoch && !late;
    this.epoch = epoch;
    if (grown) {
      this.muted = true;
      this.#own = false;
      this.#since = now;
      this.#from = from;
      this.#passed = null;
      this.#quiet = 0;
    } else if (this.muted && !this.#own && this.#from === null) {
      this.#from = from;
    }
    return grown;
  }

  /**
   * Mutes because this page asks for a cut, before the server knows of it.
   * @param {number} now
   */
  muteForCut(now) {
    if (this.muted) return;
    this.muted = true;
    this.#own = true;
    this.#since = now;
    this.#from = null;
    this.#passed = null;
    this.#quiet = 0;
  }

  /**
   * Looks whether it may open; to be called for each stretch of what arrives.
   * @param {number|null} rtp  What sounds now.
   * @param {boolean} loud     Whether what arrived last was no silence.
   * @param {number} now
   * @returns {boolean} Whether it has just opened.
   */
  look(rtp, loud, now) {
    if (!this.muted) return false;
    this.#quiet = loud ? 0 : this.#quiet + 1;
    const distance = this.#from === null || rtp === null ? -1 : rtpDistance(rtp, this.#from);
    if (distance >= 0) this.#passed ??= now;
    const silent = this.#quiet >= QUIET || (this.#passed !== null && now - this.#passed >= IMPATIENT);
    const waited = now - this.#since > (this.#own ? UNANSWERED : STUCK);
    if (!(distance >= MARGIN && silent) && !waited) return false;
    this.muted = false;
    return true;
  }
}
