/**
 * How far the newest answer has been made, stage by stage, as the server tells it. It touches neither page nor network.
 *
 * @typedef {import('./call.js').ServerEvent} ServerEvent
 */

/** The stages that are shown, with their names. */
export const STEPS = /** @type {const} */ ({
  features: 'Media read',
  first_token: 'First text',
  first_code: 'First code',
  first_audio: 'First sound',
});

export class Steps {
  /** The response that these are of. */
  response = '';
  /** Ms since the answer was waited for, by stage. @type {Map<string, number>} */
  reached = new Map();
  /** When the engine began, where the server tells no times. */
  #began = 0;

  /**
   * @param {ServerEvent} event
   * @param {number} at  When it arrived, ms.
   */
  take(event, at) {
    if (event.type !== 'x_talkover.stage_reached' || !event.response) return;
    if (event.response !== this.response) {
      this.response = event.response;
      this.reached = new Map();
      this.#began = at;
    }
    // Each by itself: the first of a kind is the one that counts.
    if (event.stage in STEPS && !this.reached.has(event.stage)) {
      this.reached.set(event.stage, event.elapsed_ms ?? at - this.#began);
    }
  }
}
