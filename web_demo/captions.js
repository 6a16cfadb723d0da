/** The conversation on the page: one block per entry, the newest in view unless the reader scrolled away. */

import { byId, make } from './dom.js';

/** @typedef {import('./conversation.js').Entry} Entry */

const NAMES = { user: 'You', agent: 'Agent', tool: 'Tool' };
/** Pixels from the end within which the reader counts as being at it. */
const AT_END = 60;

export class Captions {
  #list = byId('captions');
  #jump = byId('jump');
  #frame = byId('conversation');
  /** @type {Map<string, HTMLElement>} */
  #blocks = new Map();
  #follows = true;

  /**
   * @param {import('./conversation.js').Conversation} conversation
   * @param {(digest: string) => HTMLElement|null} picture  Of an image in it, where this page has one.
   */
  constructor(conversation, picture) {
    this.picture = picture;
    conversation.addEventListener('entry', (event) => this.#show(/** @type {CustomEvent} */ (event).detail));
    conversation.addEventListener('removed', (event) => this.#remove(/** @type {CustomEvent} */ (event).detail));
    this.#frame.addEventListener('scroll', () => {
      const left = this.#frame.scrollHeight - this.#frame.scrollTop - this.#frame.clientHeight;
      this.#follows = left < AT_END;
      this.#jump.hidden = this.#follows;
    });
    this.#jump.addEventListener('click', () => {
      this.#follows = true;
      this.#follow();
    });
  }

  /** @param {Entry} entry */
  #show(entry) {
    let block = this.#blocks.get(entry.id);
    if (!block) {
      block = make('li', 'caption');
      this.#blocks.set(entry.id, block);
      this.#list.append(block);
    }
    block.dataset.side = entry.side;
    block.dataset.state = entry.state;
    block.dataset.tentative = String(entry.tentative);
    block.hidden = entry.side === 'agent' && !entry.text && !entry.unheard && entry.state === 'open';
    block.replaceChildren(
      make('span', 'who', NAMES[entry.side], ...(entry.typed ? [make('span', 'how', 'typed')] : [])),
      ...(entry.images.length ? [this.#images(entry)] : []),
      ...(entry.images.length && !entry.text && entry.state === 'done' ? [] : [words(entry)]),
      make('span', 'remarks', ...remarks(entry).map((remark) => make('span', 'remark', remark))),
    );
    this.#follow();
  }

  /** @param {Entry} entry */
  #images(entry) {
    const pictures = entry.images.map((digest) => {
      const picture = this.picture(digest);
      picture?.setAttribute('role', 'img');
      picture?.setAttribute('aria-label', 'Image');
      // After a reload the page knows only that there was one.
      return picture ?? make('span', 'remark', 'image');
    });
    return make('span', 'pictures', ...pictures);
  }

  /** @param {Entry} entry */
  #remove(entry) {
    this.#blocks.get(entry.id)?.remove();
    this.#blocks.delete(entry.id);
  }

  #follow() {
    if (!this.#follows) return;
    this.#frame.scrollTop = this.#frame.scrollHeight;
    this.#jump.hidden = true;
  }
}

/** @param {Entry} entry */
function words(entry) {
  if (entry.state === 'failed') return make('p', 'words failed', entry.side === 'user' ? 'not understood' : 'no answer came');
  if (!entry.text && !entry.unheard) return make('p', 'words waiting', make('i'), make('i'), make('i'));
  const line = make('p', 'words', entry.text.trimStart());
  if (entry.unheard.trim()) {
    const lead = /^\s/.test(entry.unheard) || !entry.text ? ' ' : '';
    const tail = make('s', 'unheard', entry.unheard.trim());
    tail.title = 'Sent, but never heard';
    line.append(lead, tail);
  }
  return line;
}

/** @param {Entry} entry */
function remarks(entry) {
  const said = entry.heeded.map((what) => `went on after “${what.replace(/[.,!?]+$/, '')}”`);
  if (entry.state !== 'interrupted') return said;
  const at = entry.heardMs === null ? '' : ` after ${(entry.heardMs / 1000).toFixed(1)} s`;
  return [...said, `interrupted${at}`];
}
