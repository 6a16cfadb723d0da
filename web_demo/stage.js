/**
 * Where the conversation stands, from server events: who has the floor. It touches neither page nor network.
 *
 * @typedef {import('./call.js').ServerEvent} ServerEvent
 */

export class Stage {
  held = false;
  hearing = false;
  /** The response that is being made, '' for none. */
  active = '';
  /** The response that sounds, '' for none. */
  sounding = '';
  /** An answer is owed: the turn ended and nothing came yet. */
  owed = false;

  /** Whether there is something of the agent that can be cut. */
  get cuttable() {
    return Boolean(this.active || this.sounding);
  }

  /** @returns {'held'|'hearing'|'speaking'|'thinking'|'listening'} */
  get value() {
    if (this.held) return 'held';
    if (this.hearing) return 'hearing';
    if (this.sounding) return 'speaking';
    return this.active || this.owed ? 'thinking' : 'listening';
  }

  /** @param {ServerEvent} event */
  take(event) {
    switch (event.type) {
      case 'session.created':
        Object.assign(this, { held: false, hearing: false, active: '', sounding: '', owed: false });
        break;
      case 'input_audio_buffer.speech_started':
        this.hearing = true;
        break;
      case 'input_audio_buffer.speech_stopped':
        this.hearing = false;
        break;
      case 'x_talkover.held':
        this.held = true;
        break;
      case 'x_talkover.resumed':
      case 'x_talkover.epoch_began':
        this.held = false;
        break;
      case 'x_talkover.turn_ended':
        this.owed = true;
        break;
      case 'conversation.item.input_audio_transcription.completed':
        if (!event.transcript.trim()) this.owed = false;
        break;
      case 'response.created':
        if (event.response.conversation_id === null) break;
        this.active = event.response.id;
        this.owed = false;
        break;
      case 'response.done':
        if (event.response.id === this.active) this.active = '';
        break;
      case 'output_audio_buffer.started':
        this.sounding = event.response_id;
        break;
      case 'output_audio_buffer.stopped':
      case 'output_audio_buffer.cleared':
        if (event.response_id === this.sounding) this.sounding = '';
        break;
    }
  }
}
