/** What is heard of the agent: the track through a gain that obeys the epoch gate, and where playback is. */

import { Activity } from './activity.js';
import { Gate } from './gate.js';
import { Levels } from './levels.js';

/** Short enough to count as at once, long enough not to click. */
const RAMP = 0.005;
/** Below this peak what arrives is silence: -54 dB. */
const SILENCE = 0.002;

export class Playback extends EventTarget {
  gate = new Gate();
  /** @type {RTCRtpReceiver|null} */
  #receiver = null;
  /** @type {MediaStreamAudioSourceNode|null} */
  #source = null;
  /** Chromium decodes a remote track only for a media element; this one is silent. */
  #sink = new Audio();
  /** What arrives, before the gate. */
  #arriving = new Levels(new Activity(SILENCE, 0));
  #input;
  #gain;

  /** @param {AudioContext} context  One that `loadTap` was called for. */
  constructor(context) {
    super();
    this.context = context;
    this.#input = context.createGain();
    this.#gain = context.createGain();
    this.#input.connect(this.#gain).connect(context.destination);
    this.#sink.muted = true;
    this.#arriving.listen(this.#input);
    this.#arriving.addEventListener('level', () => this.#look());
  }

  /** What is heard, for meters and recordings. @returns {AudioNode} */
  get output() {
    return this.#gain;
  }

  /** RTP timestamp of what the browser plays now, null where nothing was received yet. */
  get rtp() {
    return this.#receiver?.getSynchronizationSources()[0]?.rtpTimestamp ?? null;
  }

  /**
   * Plays what this receiver gets, in place of one before; timestamps have a new origin then, so the gate is a new one.
   * @param {RTCRtpReceiver} receiver
   */
  attach(receiver) {
    this.detach();
    this.gate = new Gate();
    this.#receiver = receiver;
    const stream = new MediaStream([receiver.track]);
    this.#sink.srcObject = stream;
    // Muted media may always play; where the browser still refuses, the graph below plays all the same or tells so.
    this.#sink.play().catch(() => {});
    this.#source = this.context.createMediaStreamSource(stream);
    this.#source.connect(this.#input);
    this.#ramp(1);
  }

  detach() {
    this.#source?.disconnect();
    this.#source = null;
    this.#receiver = null;
    this.#sink.srcObject = null;
  }

  /**
   * The server's statement of the epoch in force.
   * @param {number} epoch
   * @param {number|null} from
   */
  begin(epoch, from) {
    if (this.gate.begin(epoch, from, performance.now(), this.rtp)) this.#ramp(0);
  }

  /** Silence at once, because the page asks for a cut. */
  muteForCut() {
    this.gate.muteForCut(performance.now());
    this.#ramp(0);
  }

  /** Opens the gate when it is time: for every stretch of sound, 10.7 ms. */
  #look() {
    if (this.gate.muted && this.gate.look(this.rtp, this.#arriving.now.peak > SILENCE, performance.now())) this.#ramp(1);
  }

  /** @param {0|1} gain */
  #ramp(gain) {
    const now = this.context.currentTime;
    const value = this.#gain.gain;
    value.cancelScheduledValues(now);
    value.setValueAtTime(value.value, now);
    value.linearRampToValueAtTime(gain, now + RAMP);
    this.dispatchEvent(new Event('gate'));
  }
}
