/**
 * What the timeline shows beside loudness: speech, holds, epochs, words, each at its page time (ms). It touches
 * neither page nor network.
 *
 * @typedef {import('./call.js').ServerEvent} ServerEvent
 * @typedef {{from: number, to: number|null}} Span   `to` is null while it lasts.
 * @typedef {{at: number, text: string, side: 'user'|'agent', response: string, unheard: boolean}} Label
 * @typedef {{at: number, epoch: number, cause: string}} Edge
 */

const KEPT = 60_000;
/** Words are told as soon as their audio may leave, this much ahead of being heard. */
const AHEAD = 180;
/** @type {Record<string, string>} */
const CAUSES = {
  barge_in: 'barge-in',
  withdrawn: 'withdrawn',
  client_cancel: 'stopped',
  client_clear: 'stopped',
  detached: 'reconnected',
  superseded: 'superseded',
};

export class Marks {
  /** @type {Span[]} */
  speech = [];
  /** @type {Span[]} */
  holds = [];
  /** @type {Edge[]} */
  epochs = [];
  /** @type {Label[]} */
  words = [];
  /** Words of each response so far. @type {Map<string, number>} */
  #total = new Map();

  /**
   * @param {ServerEvent} event
   * @param {number} at  When it arrived.
   */
  take(event, at) {
    switch (event.type) {
      case 'input_audio_buffer.speech_started':
        close(this.speech, at);
        // Over the agent it is said only when the interruption is decided; the hold began with the sound itself.
        this.speech.push({ from: open(this.holds)?.from ?? at, to: null });
        break;
      case 'input_audio_buffer.speech_stopped':
        close(this.speech, at);
        break;
      case 'x_talkover.held':
        close(this.holds, at);
        this.holds.push({ from: at, to: null });
        break;
      case 'x_talkover.resumed':
        close(this.holds, at);
        break;
      case 'x_talkover.epoch_began':
        close(this.holds, at);
        this.epochs.push({ at, epoch: event.epoch, cause: CAUSES[event.cause] ?? event.cause });
        break;
      case 'x_talkover.playback_cleared':
        this.#strike(event.response, event.text, at);
        break;
      case 'response.output_audio_transcript.delta':
        this.#say(event.delta, event.response_id, at + AHEAD);
        break;
      case 'conversation.item.input_audio_transcription.completed': {
        const span = this.speech.at(-1);
        const text = event.transcript.trim();
        if (text) this.words.push({ at: span?.from ?? at, text, side: 'user', response: '', unheard: false });
        break;
      }
    }
    this.#forget(at - KEPT);
  }

  /** The connection is gone: nothing that lasts goes on. @param {number} at */
  end(at) {
    close(this.speech, at);
    close(this.holds, at);
  }

  /**
   * @param {string} text
   * @param {string} response
   * @param {number} at
   */
  #say(text, response, at) {
    const said = text.trim().split(/\s+/).filter(Boolean);
    for (const word of said) this.words.push({ at, text: word, side: 'agent', response, unheard: false });
    this.#total.set(response, (this.#total.get(response) ?? 0) + said.length);
  }

  /**
   * @param {string} response
   * @param {string} heard
   * @param {number} at
   */
  #strike(response, heard, at) {
    const count = heard.trim().split(/\s+/).filter(Boolean).length;
    const said = this.words.filter((word) => word.response === response);
    // The oldest words may have been forgotten, so it is counted from the end.
    const total = this.#total.get(response) ?? 0;
    this.#total.delete(response);
    for (const word of said.slice(Math.max(0, said.length - (total - count)))) {
      word.unheard = true;
      word.at = Math.min(word.at, at + 40);
    }
  }

  /** @param {number} before */
  #forget(before) {
    const recent = (/** @type {{at: number}} */ mark) => mark.at >= before;
    if (this.words.length && !recent(this.words[0])) this.words = this.words.filter(recent);
    if (this.epochs.length && !recent(this.epochs[0])) this.epochs = this.epochs.filter(recent);
    this.speech = this.speech.filter(({ to }) => to === null || to >= before);
    this.holds = this.holds.filter(({ to }) => to === null || to >= before);
  }
}

/** @param {Span[]} spans */
const open = (spans) => (spans.at(-1)?.to === null ? spans.at(-1) : undefined);

/**
 * @param {Span[]} spans
 * @param {number} at
 */
function close(spans, at) {
  const span = open(spans);
  if (span) span.to = at;
}
