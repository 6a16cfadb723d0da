/** Whether the server is ready; while its models load, how far they are. */

import { byId, write } from './dom.js';
import { authorization } from './settings.js';

/** How often it is asked while it is not ready, and while it does not answer, ms. */
const LOADING = 700;
const AWAY = 2000;

export class Health extends EventTarget {
  ready = false;
  /** @type {Record<string, unknown>} */
  body = {};
  #box = byId('loading');
  #bar = byId('loading-bar', HTMLProgressElement);
  #timer = 0;

  /** Asks until it is ready; then dispatches 'ready'. */
  async watch() {
    clearTimeout(this.#timer);
    let pause = LOADING;
    try {
      const answer = await fetch('/healthz', { headers: authorization(), cache: 'no-store' });
      this.body = await answer.json();
      this.ready = answer.ok;
      this.#show();
    } catch {
      this.ready = false;
      this.#tell('The server does not answer', 'Trying again …', null);
      pause = AWAY;
    }
    if (this.ready) this.dispatchEvent(new Event('ready'));
    else if (this.body.status !== 'failed') this.#timer = setTimeout(() => void this.watch(), pause);
  }

  #show() {
    if (this.ready) {
      this.#box.hidden = true;
      return;
    }
    if (this.body.status === 'failed') {
      this.#tell('The models could not be loaded', String(this.body.error ?? 'The server log says why.'), null);
      return;
    }
    const { stage, progress } = this.body;
    const share = typeof progress === 'number' && progress > 0 ? progress : null;
    const text = typeof stage === 'string' ? stage : 'This happens once; it begins as soon as they are there.';
    this.#tell('The models are being prepared', share === null ? text : `${text} · ${Math.round(share * 100)} %`, share);
  }

  /**
   * @param {string} title
   * @param {string} text
   * @param {number|null} share
   */
  #tell(title, text, share) {
    this.#box.hidden = false;
    write(byId('loading-title'), title);
    write(byId('loading-text'), text);
    if (share === null) this.#bar.removeAttribute('value');
    else this.#bar.value = share;
  }
}
