/** The microphone: asked for, chosen, muted, held. */

import { Explained, microphoneProblem, unsupported } from './explain.js';
import { choices } from './settings.js';

export class Microphone extends EventTarget {
  /** @type {MediaStream|null} */
  stream = null;
  #muted = false;
  #open = true;

  get track() {
    return this.stream?.getAudioTracks()[0] ?? null;
  }

  get muted() {
    return this.#muted;
  }

  set muted(muted) {
    this.#muted = muted;
    this.#apply();
  }

  /** Push to talk: whether sound passes now; always, where it is not used. */
  get open() {
    return this.#open;
  }

  set open(open) {
    this.#open = open;
    this.#apply();
  }

  #apply() {
    // A disabled track sends silence, so that the input keeps its time.
    if (this.track) this.track.enabled = this.#open && !this.#muted;
    this.dispatchEvent(new Event('change'));
  }

  /**
   * Opens the chosen microphone, another one than before if the choice changed.
   * @returns {Promise<MediaStreamTrack>}
   * @throws {Explained}
   */
  async start() {
    const impossible = unsupported();
    if (impossible) throw new Explained(impossible);
    const chosen = choices();
    /** @type {MediaTrackConstraints} */
    const audio = {
      channelCount: 1,
      echoCancellation: chosen.echoCancellation,
      noiseSuppression: chosen.noiseSuppression,
      autoGainControl: chosen.autoGainControl,
    };
    if (chosen.microphone) audio.deviceId = { exact: chosen.microphone };
    const before = this.stream;
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ audio });
    } catch (error) {
      if (audio.deviceId === undefined || !(error instanceof Error) || error.name !== 'OverconstrainedError') {
        throw new Explained(microphoneProblem(error));
      }
      // The chosen one was unplugged: the system's own is better than none.
      delete audio.deviceId;
      try {
        this.stream = await navigator.mediaDevices.getUserMedia({ audio });
      } catch (second) {
        throw new Explained(microphoneProblem(second));
      }
    }
    before?.getTracks().forEach((track) => track.stop());
    const track = /** @type {MediaStreamTrack} */ (this.track);
    track.addEventListener('ended', () => this.dispatchEvent(new Event('unplugged')));
    this.#apply();
    return track;
  }

  stop() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.stream = null;
    this.dispatchEvent(new Event('change'));
  }

  /**
   * The microphones that there are; browsers name them only after one was allowed.
   * @returns {Promise<{id: string, name: string}[]>}
   */
  static async all() {
    const devices = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
    return devices
      .filter((device) => device.kind === 'audioinput' && device.deviceId && device.deviceId !== 'default')
      .map((device, index) => ({ id: device.deviceId, name: device.label || `Microphone ${index + 1}` }));
  }
}
