/** Buttons, keys and the line of text: what the user wants, as events. It decides nothing. */

import { byId, write } from './dom.js';

/** @param {EventTarget|null} target */
const isEditable = (target) =>
  target instanceof HTMLElement && Boolean(target.closest('input, textarea, select, [contenteditable]'));
/** @param {EventTarget|null} target */
const isPressable = (target) => target instanceof HTMLElement && Boolean(target.closest('button, a, summary, [role=button]'));

/** Dispatches 'talk', 'mute', 'stop', 'press', 'release' and 'say' (detail: the text). */
export class Controls extends EventTarget {
  #talk = byId('talk', HTMLButtonElement);
  #mute = byId('mute', HTMLButtonElement);
  #stop = byId('stop', HTMLButtonElement);
  #push = byId('push', HTMLButtonElement);
  #text = byId('text', HTMLInputElement);
  #send = byId('send', HTMLButtonElement);
  /** Whether something goes along with the next message, so that it needs no words. */
  attached = false;
  #pressed = false;
  #pushes = false;

  constructor() {
    super();
    this.#talk.addEventListener('click', () => this.#tell('talk'));
    this.#mute.addEventListener('click', () => this.#tell('mute'));
    this.#stop.addEventListener('click', () => this.#tell('stop'));
    this.#push.addEventListener('pointerdown', (event) => {
      this.#push.setPointerCapture(event.pointerId);
      this.#press();
    });
    for (const end of ['pointerup', 'pointercancel', 'lostpointercapture']) {
      this.#push.addEventListener(end, () => this.#release());
    }
    // A long press is the use of this button, not a wish for a menu.
    this.#push.addEventListener('contextmenu', (event) => event.preventDefault());
    byId('say', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      const text = this.#text.value.trim();
      if (!text && !this.attached) return;
      this.#text.value = '';
      this.dispatchEvent(new CustomEvent('say', { detail: text }));
    });
    document.addEventListener('keydown', (event) => this.#down(event));
    document.addEventListener('keyup', (event) => {
      if (event.code === 'Space') this.#release();
    });
    // The key is let go of elsewhere, and nobody tells.
    window.addEventListener('blur', () => this.#release());
  }

  /** @param {string} kind */
  #tell(kind) {
    this.dispatchEvent(new Event(kind));
  }

  #press() {
    if (this.#pressed || !this.#pushes || this.#push.disabled) return;
    this.#pressed = true;
    this.#push.dataset.pressed = 'true';
    this.#tell('press');
  }

  #release() {
    if (!this.#pressed) return;
    this.#pressed = false;
    this.#push.dataset.pressed = 'false';
    this.#tell('release');
  }

  /** @param {KeyboardEvent} event */
  #down(event) {
    if (document.querySelector('dialog[open]') || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') {
      if (event.target === this.#text) this.#text.blur();
      else this.#tell('stop');
      return;
    }
    if (isEditable(event.target)) return;
    if (event.code === 'Space' && this.#pushes && (!isPressable(event.target) || event.target === this.#push)) {
      event.preventDefault();
      if (!event.repeat) this.#press();
    } else if (event.key === 'm' && !event.repeat && !this.#mute.disabled) {
      this.#tell('mute');
    } else if (event.key === '/' && !this.#text.disabled) {
      event.preventDefault();
      this.#text.focus();
    }
  }

  /**
   * @param {object} now
   * @param {import('./session.js').State} now.state
   * @param {boolean} now.ready       Whether a conversation can begin.
   * @param {boolean} now.microphone  Whether there is one.
   * @param {boolean} now.muted
   * @param {boolean} now.pushes      Push to talk.
   * @param {boolean} now.cuttable
   */
  show({ state, ready, microphone, muted, pushes, cuttable }) {
    const running = state !== 'idle';
    const live = state === 'live';
    this.#pushes = pushes && live;
    if (!this.#pushes) this.#release();
    this.#talk.disabled = !running && !ready;
    this.#talk.dataset.running = String(running);
    this.#talk.setAttribute('aria-label', running ? 'End the conversation' : 'Start talking');
    write(byId('talk-word'), running ? 'End' : 'Start talking');
    this.#mute.disabled = !running || !microphone;
    this.#mute.setAttribute('aria-pressed', String(muted));
    this.#mute.title = muted ? 'Unmute (M)' : 'Mute (M)';
    this.#push.hidden = !pushes || !running;
    this.#push.disabled = !live || muted || !microphone;
    this.#stop.disabled = !live || !cuttable;
    this.#text.disabled = this.#send.disabled = !live;
    const message = this.attached ? 'Type or say what about it' : 'Type a message';
    this.#text.placeholder = live ? message : 'Type, once you are connected';
  }
}
