/**
 * A recording that lies on the machine of whoever looks: found in a folder that was chosen, and brought to the server,
 * which reads the format, explains and runs it as one of its own.
 */

import { byId, make, write } from '../dom.js';
import { Refused, ask } from './source.js';

const MANIFEST = 'manifest.json';
/** The files of a recording; what else lies there stays there. */
const WANTED = /^(manifest\.json|events\.jsonl(\.zst)?|[a-z0-9_]{1,64}\.(flac|wav))$/;
/** Recordings of a folder that are listed. */
const LISTED = 200;

/** @typedef {{name: string, began: string, files: File[]}} Found */

/**
 * The recordings among the files of a folder and those below it, the newest first.
 * @param {readonly File[]} files
 * @returns {Promise<Found[]>}
 */
export async function recordingsIn(files) {
  /** @type {Map<string, File[]>} */
  const folders = new Map();
  for (const file of files) {
    const folder = file.webkitRelativePath.split('/').slice(0, -1).join('/');
    if (WANTED.test(file.name)) folders.set(folder, [...(folders.get(folder) ?? []), file]);
  }
  /** @type {Found[]} */
  const found = [];
  for (const [folder, inside] of folders) {
    const manifest = inside.find(({ name }) => name === MANIFEST);
    if (!manifest) continue;
    const { session, began } = await manifest.text().then(JSON.parse).catch(() => ({}));
    found.push({
      name: typeof session === 'string' ? session : folder,
      began: typeof began === 'string' ? began : '',
      files: inside,
    });
  }
  return found.sort((a, b) => (a.began < b.began ? 1 : -1));
}

/**
 * Brings a recording to the server; returns the id by which it is looked at there.
 * @param {readonly File[]} files
 * @param {(share: number) => void} progress
 * @throws {Refused}
 */
export async function bring(files, progress) {
  const { id, piece } = await (await ask('', { body: {} })).json();
  const all = files.reduce((sum, { size }) => sum + size, 0);
  let done = 0;
  try {
    for (const file of files) {
      for (let at = 0; at === 0 || at < file.size; at += piece) {
        const path = `/${encodeURIComponent(id)}/${encodeURIComponent(file.name)}?at=${at}`;
        await ask(path, { method: 'PUT', bytes: file.slice(at, at + piece) });
        progress((done + Math.min(file.size, at + piece)) / Math.max(1, all));
      }
      done += file.size;
    }
  } catch (error) {
    // Half of a recording is of no use to anybody.
    await ask(`/${encodeURIComponent(id)}`, { method: 'DELETE' }).catch(() => {});
    throw error;
  }
  return id;
}

/** The part of the list where a folder is opened. Dispatches 'opened' (detail: the id) and 'problem' (a `Refused`). */
export class FolderOpener extends EventTarget {
  #button = byId('open-folder', HTMLButtonElement);
  #input = byId('folder', HTMLInputElement);
  #progress = byId('folder-progress', HTMLProgressElement);
  #found = byId('found');

  constructor() {
    super();
    this.#button.addEventListener('click', () => this.#input.click());
    this.#input.addEventListener('change', () => {
      const files = [...(this.#input.files ?? [])];
      this.#input.value = '';
      if (files.length) void this.#choose(files);
    });
  }

  /** @param {File[]} files */
  async #choose(files) {
    const found = await recordingsIn(files);
    this.#found.hidden = found.length < 2;
    this.#found.replaceChildren();
    if (!found.length) this.#complain('There is no recording in this folder: none of its folders has a manifest.json.');
    else if (found.length === 1) await this.#open(found[0]);
    else this.#list(found);
  }

  /** @param {Found[]} found */
  #list(found) {
    const rows = found.slice(0, LISTED).map((one) => {
      const size = one.files.reduce((sum, file) => sum + file.size, 0);
      const when = one.began ? new Date(one.began).toLocaleString() : '';
      const row = make('button', 'recorded', make('b', '', one.name));
      row.setAttribute('type', 'button');
      row.append(make('span', '', [when, `${(size / 1e6).toFixed(1)} MB`].filter(Boolean).join(' · ')));
      row.addEventListener('click', () => void this.#open(one));
      const item = make('li');
      item.append(row);
      return item;
    });
    const left = found.length - rows.length;
    this.#found.replaceChildren(...rows, ...(left > 0 ? [make('li', 'none', `and ${left} older ones`)] : []));
  }

  /** @param {Found} found */
  async #open(found) {
    this.#button.disabled = true;
    this.#progress.hidden = false;
    this.#progress.value = 0;
    const word = this.#button.textContent ?? '';
    write(this.#button, 'Opening …');
    try {
      const id = await bring(found.files, (share) => (this.#progress.value = share));
      this.dispatchEvent(new CustomEvent('opened', { detail: id }));
    } catch (error) {
      if (!(error instanceof Refused)) this.#complain(`The files cannot be read: ${String(error)}`);
      else this.dispatchEvent(new CustomEvent('problem', { detail: error }));
    } finally {
      write(this.#button, word);
      this.#button.disabled = false;
      this.#progress.hidden = true;
    }
  }

  /** @param {string} message */
  #complain(message) {
    this.dispatchEvent(new CustomEvent('problem', { detail: new Refused(0, 'no_recording', message) }));
  }
}
