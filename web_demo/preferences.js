/** The settings' dialog and the one for the API key. */

import { byId, make } from './dom.js';
import { Microphone } from './microphone.js';
import { apiKey, choices, choose, keepApiKey } from './settings.js';
import { isDark, switchTheme } from './theme.js';

const SWITCHES = /** @type {const} */ (['echoCancellation', 'noiseSuppression', 'autoGainControl']);

/** Dispatches 'microphone', 'turns', 'instructions', 'theme' when one was changed, and 'key' when one was given. */
export class Preferences extends EventTarget {
  #dialog = byId('settings', HTMLDialogElement);
  #microphone = byId('microphone', HTMLSelectElement);
  #instructions = byId('instructions', HTMLTextAreaElement);
  #keyDialog = byId('key-dialog', HTMLDialogElement);
  #key = byId('key', HTMLInputElement);

  constructor() {
    super();
    const kept = choices();
    byId('open-settings').addEventListener('click', () => {
      void this.listMicrophones();
      this.#dialog.showModal();
    });
    byId('switch-theme').addEventListener('click', () => {
      switchTheme();
      this.showTheme();
      this.dispatchEvent(new Event('theme'));
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.showTheme();
      this.dispatchEvent(new Event('theme'));
    });
    for (const dialog of [this.#dialog, this.#keyDialog]) {
      // A click on the dialog itself is one beside its content.
      dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
    }
    this.#microphone.addEventListener('change', () => this.#choose({ microphone: this.#microphone.value }, 'microphone'));
    for (const name of SWITCHES) {
      const box = byId(name, HTMLInputElement);
      box.checked = kept[name];
      box.addEventListener('change', () => this.#choose({ [name]: box.checked }, 'microphone'));
    }
    for (const radio of this.#turns()) {
      radio.checked = radio.value === kept.turns;
      radio.addEventListener('change', () =>
        this.#choose({ turns: /** @type {import('./settings.js').Turns} */ (radio.value) }, 'turns'),
      );
    }
    this.#instructions.value = kept.instructions;
    this.#instructions.addEventListener('change', () =>
      this.#choose({ instructions: this.#instructions.value.trim() }, 'instructions'),
    );
    byId('key-form', HTMLFormElement).addEventListener('submit', () => {
      keepApiKey(this.#key.value.trim());
      this.#key.value = '';
      this.dispatchEvent(new Event('key'));
    });
    byId('change-key').addEventListener('click', () => {
      this.#dialog.close();
      this.askForKey();
    });
    byId('close-settings').addEventListener('click', () => this.#dialog.close());
    byId('close-key').addEventListener('click', () => this.#keyDialog.close());
    navigator.mediaDevices?.addEventListener?.('devicechange', () => void this.listMicrophones());
    this.showTheme();
  }

  #turns() {
    return [...document.querySelectorAll('input[name=turns]')].filter((radio) => radio instanceof HTMLInputElement);
  }

  /**
   * @param {Partial<import('./settings.js').Choices>} changes
   * @param {string} kind
   */
  #choose(changes, kind) {
    choose(changes);
    this.dispatchEvent(new Event(kind));
  }

  showTheme() {
    byId('switch-theme').setAttribute('aria-label', isDark() ? 'Use the light theme' : 'Use the dark theme');
    byId('switch-theme').dataset.dark = String(isDark());
  }

  async listMicrophones() {
    const all = await Microphone.all();
    const chosen = choices().microphone;
    const options = [{ id: '', name: "The system's own" }, ...all].map(({ id, name }) => {
      const option = /** @type {HTMLOptionElement} */ (make('option', '', name));
      option.value = id;
      option.selected = id === chosen;
      return option;
    });
    this.#microphone.replaceChildren(...options);
  }

  askForKey() {
    this.#key.placeholder = apiKey() ? 'another key than the one that was refused' : 'sk-…';
    this.#keyDialog.showModal();
  }
}
