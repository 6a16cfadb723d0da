/**
 * What was said, as captions: server events in, entries out. It touches neither page nor network.
 *
 * @typedef {import('./call.js').ServerEvent} ServerEvent
 *
 * @typedef {object} Entry
 * @property {string} id          Of the item; or of the sound, while it is not decided what it is.
 * @property {'user'|'agent'|'tool'} side
 * @property {string} text        What was said; of an interrupted answer, what was heard of it.
 * @property {string} unheard     What else had been sent of an interrupted answer.
 * @property {'open'|'done'|'interrupted'|'failed'} state
 * @property {boolean} tentative  The words may still change.
 * @property {boolean} typed
 * @property {string} response    Of an agent's entry.
 * @property {number|null} heardMs  How much of an interrupted answer was heard.
 * @property {string} heardBy     What that rests on: 'report', 'model', or '' where it was not said.
 * @property {string[]} images    Of a user's entry: the digests of the images in it, '' where one is not known.
 * @property {string[]} heeded    What the user said meanwhile without interrupting.
 */

/** The id of the entry for a sound over the agent that may become a turn or nothing. */
const UNDECIDED = 'undecided';
/** Entries that outlive a reload. */
const SAVED = 200;
const TRANSCRIPTION = 'conversation.item.input_audio_transcription';

export class Conversation extends EventTarget {
  /** @type {Entry[]} */
  entries = [];

  /**
   * Dispatches 'entry' (detail: an `Entry`, new or changed) and 'removed' (detail: one that is gone).
   * @param {ServerEvent} event
   */
  take(event) {
    const handler = HANDLERS[event.type];
    if (handler) handler(this, event);
  }

  /** @param {string} id */
  find(id) {
    return this.entries.find((entry) => entry.id === id) ?? null;
  }

  /** The agent's newest entry of this response. @param {string} response */
  of(response) {
    return this.entries.findLast((entry) => entry.side === 'agent' && entry.response === response) ?? null;
  }

  /**
   * The entry with this id, made where it is not there yet.
   * @param {string} id
   * @param {Partial<Entry> & {side: Entry['side']}} first
   */
  upsert(id, first) {
    let entry = this.find(id);
    if (!entry) {
      entry = {
        id,
        text: '',
        unheard: '',
        state: 'open',
        tentative: false,
        typed: false,
        response: '',
        heardMs: null,
        heardBy: '',
        images: [],
        heeded: [],
        ...first,
      };
      this.entries.push(entry);
      this.changed(entry);
    }
    return entry;
  }

  /** @param {Entry|null} entry */
  changed(entry) {
    if (entry) this.dispatchEvent(new CustomEvent('entry', { detail: entry }));
  }

  /** @param {string} id */
  remove(id) {
    const entry = this.find(id);
    if (!entry) return;
    this.entries.splice(this.entries.indexOf(entry), 1);
    this.dispatchEvent(new CustomEvent('removed', { detail: entry }));
  }

  /** Forgets everything. */
  clear() {
    for (const entry of [...this.entries]) this.remove(entry.id);
  }

  /** The newest entries as plain data for `restore`. */
  save() {
    return this.entries.filter((entry) => entry.id !== UNDECIDED).slice(-SAVED);
  }

  /** @param {unknown} saved  What `save` gave in an earlier life of the page. */
  restore(saved) {
    if (!Array.isArray(saved)) return;
    for (const entry of saved) {
      if (typeof entry?.id !== 'string' || typeof entry.text !== 'string') continue;
      if (this.find(entry.id)) continue;
      if (!Array.isArray(entry.images)) entry.images = [];
      // The connection that carried it is gone: nothing more of it comes.
      const ended = entry.side === 'agent' ? 'interrupted' : 'done';
      this.upsert(entry.id, { ...entry, state: entry.state === 'open' ? ended : entry.state });
    }
  }

  /**
   * Divides an answer where it was cut.
   * @param {Entry|null} entry
   * @param {string} heard  What the history keeps: a beginning of what was sent.
   */
  cut(entry, heard) {
    if (!entry) return;
    const known = entry.text + entry.unheard;
    // A page that was loaded anew kept less than the history where the words of its last moments had not come.
    const whole = heard.startsWith(known) ? heard : known;
    const length = whole.startsWith(heard) ? heard.length : commonWords(whole, heard);
    entry.text = whole.slice(0, length);
    entry.unheard = whole.slice(length);
    if (entry.unheard.trim() || entry.state === 'open') entry.state = 'interrupted';
    this.changed(entry);
  }
}

/**
 * How many characters of `whole` the words of `heard` cover, where they are spelled a little differently.
 * @param {string} whole
 * @param {string} heard
 */
function commonWords(whole, heard) {
  const words = heard.trim().split(/\s+/).filter(Boolean).length;
  const spans = [...whole.matchAll(/\S+/g)];
  const last = spans[Math.min(words, spans.length) - 1];
  return words && last ? last.index + last[0].length : 0;
}

/** @type {Record<string, (c: Conversation, event: ServerEvent) => void>} */
const HANDLERS = {
  'input_audio_buffer.speech_started': (c, { item_id }) => {
    const sound = c.find(UNDECIDED);
    const words = sound?.text ?? '';
    c.remove(UNDECIDED);
    c.upsert(item_id, { side: 'user', tentative: true, text: words });
  },
  'input_audio_buffer.committed': (c, { item_id }) => {
    c.upsert(item_id, { side: 'user', tentative: true });
  },
  'x_talkover.input_transcript_hypothesis': (c, { item, text }) => {
    const entry = c.upsert(item || UNDECIDED, { side: 'user', tentative: true });
    if (!entry.tentative || entry.text === text) return;
    entry.text = text;
    c.changed(entry);
  },
  [`${TRANSCRIPTION}.completed`]: (c, { item_id, transcript }) => {
    if (!transcript.trim()) {
      c.remove(item_id);
      return;
    }
    const entry = c.upsert(item_id, { side: 'user' });
    Object.assign(entry, { text: transcript.trim(), tentative: false, state: 'done' });
    c.changed(entry);
  },
  [`${TRANSCRIPTION}.failed`]: (c, { item_id }) => {
    const entry = c.upsert(item_id, { side: 'user' });
    Object.assign(entry, { text: '', tentative: false, state: 'failed' });
    c.changed(entry);
  },
  'conversation.item.added': (c, { item }) => {
    if (item.role !== 'user') return;
    /** @type {Record<string, any>[]} */
    const parts = item.content ?? [];
    const text = parts.find(({ type }) => type === 'input_text')?.text ?? '';
    const images = parts.filter(({ type }) => type === 'input_image').map(({ x_sha256: digest }) => digest ?? '');
    const given = Boolean(text) || (images.length > 0 && !parts.some(({ type }) => type === 'input_audio'));
    if (given) c.upsert(item.id, { side: 'user', typed: Boolean(text), state: 'done', text, images });
    else c.upsert(item.id, { side: 'user', tentative: true, images });
  },
  'conversation.item.deleted': (c, { item_id }) => c.remove(item_id),
  'conversation.item.truncated': () => {},
  'x_talkover.resumed': (c, { words }) => {
    c.remove(UNDECIDED);
    const entry = c.entries.findLast(({ side }) => side === 'agent');
    if (!entry || !words) return;
    entry.heeded.push(words.trim());
    c.changed(entry);
  },
  'response.output_item.added': (c, { item, response_id }) => {
    if (item.type === 'function_call') c.upsert(item.id, { side: 'tool', response: response_id, text: item.name });
    else if (item.role === 'assistant') c.upsert(item.id, { side: 'agent', response: response_id });
  },
  'response.output_audio_transcript.delta': (c, event) => append(c, event),
  'response.output_text.delta': (c, event) => append(c, event),
  'response.function_call_arguments.done': (c, { item_id, name, arguments: given }) => {
    const entry = c.find(item_id);
    if (!entry) return;
    Object.assign(entry, { text: `${name}(${given})`, state: 'done' });
    c.changed(entry);
  },
  'x_talkover.playback_cleared': (c, { response, heard, text, heard_by }) => {
    const entry = c.of(response);
    if (!entry) return;
    entry.heardMs = heard / 48;
    entry.heardBy = heard_by ?? '';
    c.cut(entry, text);
  },
  'response.output_audio_transcript.done': (c, { item_id, transcript }) => {
    // Of an interrupted answer it tells what was heard; a client without our notices learns it from here.
    const entry = c.find(item_id);
    if (entry && entry.state === 'open' && transcript !== entry.text) c.cut(entry, transcript);
  },
  'response.done': (c, { response }) => {
    for (const entry of c.entries.filter(({ side, response: id }) => side === 'agent' && id === response.id)) {
      if (entry.state !== 'open') continue;
      if (response.status === 'failed') entry.state = 'failed';
      else if (response.status === 'cancelled') entry.state = 'interrupted';
      else entry.state = 'done';
      if (entry.text || entry.state === 'failed') c.changed(entry);
      else c.remove(entry.id);
    }
  },
};

/**
 * @param {Conversation} c
 * @param {ServerEvent} event
 */
function append(c, { item_id, response_id, delta }) {
  const entry = c.upsert(item_id, { side: 'agent', response: response_id });
  entry.text += delta;
  c.changed(entry);
}
