/**
 * Images for an agent that sees: chosen, pasted or dropped, and made small enough for a message of a data channel. They
 * wait above the line of text until something is said to them.
 */

import { byId, make } from './dom.js';
import { Explained } from './explain.js';

/** The model looks at no more than about this many pixels a side. */
const SIDES = [1024, 768, 512, 384, 256, 128];
const QUALITIES = [0.86, 0.7, 0.5];
/** Images that can wait at a time. */
const MOST = 4;
/** Pixels of a thumbnail's side. */
const THUMBNAIL = 56;
/** A larger file is not opened: a browser may not come back from it. */
const LARGEST = 64 << 20;
/** Bytes of a message with an image: a server that is behind keeps no more than some of the longest. */
const ROOM = 160 * 1024;
/** Bytes of a message that are not the image. */
const AROUND = 512;
/** Pictures of images that were sent, for the captions. */
const KEPT = 40;

/** @typedef {{url: string, digest: string, picture: HTMLCanvasElement}} Attached  `url`: a data URL. */

/** Dispatches 'problem' (detail: a `Problem`) and 'changed'. */
export class Images extends EventTarget {
  #button = byId('attach', HTMLButtonElement);
  #input = byId('image-file', HTMLInputElement);
  #tray = byId('attached');
  /** @type {Attached[]} */
  #attached = [];
  /** What was sent, by the digest by which the server speaks of it. @type {Map<string, HTMLCanvasElement>} */
  #pictures = new Map();
  #takes = false;
  /** Bytes of the longest message that can be sent. */
  #longest = 0;

  constructor() {
    super();
    this.#button.addEventListener('click', () => this.#input.click());
    this.#input.addEventListener('change', () => {
      void this.add([...(this.#input.files ?? [])]);
      this.#input.value = '';
    });
    document.addEventListener('paste', (event) => {
      const files = imagesOf(event.clipboardData);
      if (!this.#takes || !files.length) return;
      event.preventDefault();
      void this.add(files);
    });
    document.addEventListener('dragover', (event) => this.#over(event));
    document.addEventListener('dragleave', (event) => {
      if (!event.relatedTarget) this.#mark(false);
    });
    document.addEventListener('drop', (event) => {
      if (!this.#takes) return;
      // Otherwise the browser opens the file in place of this page, and the conversation is gone.
      event.preventDefault();
      this.#mark(false);
      void this.add([...(event.dataTransfer?.files ?? [])]);
    });
  }

  /** @param {DragEvent} event */
  #over(event) {
    if (!this.#takes || !event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    this.#mark(true);
  }

  /** @param {boolean} over */
  #mark(over) {
    document.body.dataset.dropping = String(over);
  }

  /**
   * @param {boolean} takes    Whether the agent sees, and can be shown something now.
   * @param {number} longest   Bytes of the longest message that the call takes.
   */
  show(takes, longest) {
    this.#takes = takes;
    this.#longest = longest;
    this.#button.hidden = !takes;
    if (!takes) this.#forget(this.#attached);
  }

  get any() {
    return this.#attached.length > 0;
  }

  /** Those that wait; they wait no longer. */
  take() {
    const taken = this.#attached;
    for (const { digest, picture } of taken) {
      this.#pictures.set(digest, picture);
      if (this.#pictures.size > KEPT) this.#pictures.delete(/** @type {string} */ (this.#pictures.keys().next().value));
    }
    this.#forget(taken);
    return taken;
  }

  /** A picture of an image that was sent from this page; null for another. @param {string} digest */
  picture(digest) {
    const known = this.#pictures.get(digest);
    return known ? thumbnail(known) : null;
  }

  /** @param {File[]} files */
  async add(files) {
    for (const file of files) {
      if (this.#attached.length >= MOST) {
        this.#complain('too_many_images', 'No more images fit.', `Send these ${MOST} first.`);
        return;
      }
      try {
        const attached = await made(file, Math.min(this.#longest, ROOM) - AROUND);
        if (!this.#takes) return;
        this.#attached = [...this.#attached, attached];
      } catch (error) {
        if (!(error instanceof Explained)) throw error;
        this.dispatchEvent(new CustomEvent('problem', { detail: error.problem }));
      }
      this.#draw();
    }
  }

  /** @param {readonly Attached[]} gone */
  #forget(gone) {
    if (!gone.length) return;
    this.#attached = this.#attached.filter((one) => !gone.includes(one));
    this.#draw();
  }

  #draw() {
    this.#tray.hidden = !this.any;
    this.#tray.replaceChildren(
      ...this.#attached.map((attached, index) => {
        const remove = make('button', 'remove', '×');
        remove.setAttribute('type', 'button');
        remove.setAttribute('aria-label', `Remove image ${index + 1}`);
        remove.addEventListener('click', () => this.#forget([attached]));
        return make('li', '', attached.picture, remove);
      }),
    );
    this.dispatchEvent(new Event('changed'));
  }

  /**
   * @param {string} code
   * @param {string} title
   * @param {string} remedy
   */
  #complain(code, title, remedy) {
    this.dispatchEvent(new CustomEvent('problem', { detail: { code, title, remedy } }));
  }
}

/**
 * What is put into the conversation for images and words, an item each: the words lie with the last image where both
 * fit into a message.
 * @param {readonly string[]} urls  Data URLs.
 * @param {string} text             '' for none.
 * @param {number} longest          Bytes of a message.
 * @returns {object[][]}            The content of each item.
 */
export function contents(urls, text, longest) {
  const items = urls.map((url) => /** @type {object[]} */ ([{ type: 'input_image', image_url: url }]));
  if (!text) return items;
  const words = { type: 'input_text', text };
  const last = items.at(-1);
  if (last && bytesOf([...last, words]) + AROUND <= longest) last.push(words);
  else items.push([words]);
  return items;
}

/** @param {unknown} value */
const bytesOf = (value) => new TextEncoder().encode(JSON.stringify(value)).length;

/** @param {DataTransfer|null} data */
const imagesOf = (data) => [...(data?.files ?? [])].filter(({ type }) => type.startsWith('image/'));

/**
 * An image file as it is sent.
 * @param {File} file
 * @param {number} room  Characters that its data URL may have.
 * @returns {Promise<Attached>}
 * @throws {Explained}
 */
async function made(file, room) {
  const unreadable = new Explained({
    code: 'invalid_image',
    title: `${file.name || 'This'} cannot be shown to the agent.`,
    remedy: 'Choose an image that this browser can display, such as a PNG, JPEG or WebP of less than 64 MB.',
  });
  if (file.size > LARGEST) throw unreadable;
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw unreadable;
  }
  try {
    const canvas = document.createElement('canvas');
    for (const side of SIDES) {
      draw(canvas, bitmap, Math.min(1, side / Math.max(bitmap.width, bitmap.height)));
      for (const quality of QUALITIES) {
        const blob = await encoded(canvas, quality);
        if (blob && Math.ceil(blob.size / 3) * 4 + 32 <= room) {
          return { url: await urlOf(blob), digest: await digestOf(blob), picture: thumbnail(bitmap) };
        }
      }
    }
  } finally {
    bitmap.close();
  }
  throw unreadable;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {ImageBitmap} bitmap
 * @param {number} scale
 */
function draw(canvas, bitmap, scale) {
  // Not less than the server takes, however long and thin it is.
  canvas.width = Math.max(8, Math.round(bitmap.width * scale));
  canvas.height = Math.max(8, Math.round(bitmap.height * scale));
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  // What was transparent would be black.
  c.fillStyle = '#fff';
  c.fillRect(0, 0, canvas.width, canvas.height);
  c.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
}

/**
 * As WebP where the browser writes it, which is smaller, and else as JPEG.
 * @param {HTMLCanvasElement} canvas
 * @param {number} quality
 * @returns {Promise<Blob|null>}
 */
async function encoded(canvas, quality) {
  const as = (/** @type {string} */ type) =>
    /** @type {Promise<Blob|null>} */ (new Promise((resolve) => canvas.toBlob(resolve, type, quality)));
  const webp = await as('image/webp');
  return webp?.type === 'image/webp' ? webp : as('image/jpeg');
}

/** @param {Blob} blob @returns {Promise<string>} */
const urlOf = (blob) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });

/** SHA-256 in hexadecimal, by which the server names an image; '' where the browser does not compute it. @param {Blob} blob */
async function digestOf(blob) {
  if (!crypto.subtle) return '';
  const bytes = new Uint8Array(await crypto.subtle.digest('SHA-256', await blob.arrayBuffer()));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The middle of an image as a small square. @param {ImageBitmap|HTMLCanvasElement} image */
function thumbnail(image) {
  const canvas = document.createElement('canvas');
  canvas.className = 'thumbnail';
  canvas.width = canvas.height = 2 * THUMBNAIL;
  const side = Math.min(image.width, image.height);
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  c.fillStyle = '#fff';
  c.fillRect(0, 0, canvas.width, canvas.height);
  c.imageSmoothingQuality = 'high';
  const [left, top] = [(image.width - side) / 2, (image.height - side) / 2];
  c.drawImage(image, left, top, side, side, 0, 0, canvas.width, canvas.height);
  return canvas;
}
