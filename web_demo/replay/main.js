/** The replay page: joins its parts. `app` is for the console and for tests. */

import { byId, make, write } from '../dom.js';
import { apiKey, keepApiKey } from '../settings.js';
import { applyTheme, isDark, switchTheme } from '../theme.js';
import { FolderOpener } from './folder.js';
import { Inspector } from './inspector.js';
import { Overview } from './overview.js';
import { Player } from './player.js';
import { LANES, Scene } from './scene.js';
import { Refused, Source, ask } from './source.js';
import { WhatIf } from './what-if.js';
import { View, clock, readLink, writeLink } from './view.js';

/** A jump lands so much before what it is about, seconds. */
const LEAD_IN = 1.5;
/** How long the first picture is waited for before the rest is asked for too, ms. */
const PICTURE_FIRST = 1500;
/** A press that moved less is a click, pixels. */
const STILL = 4;
const WHEEL = 0.0018;

class App {
  source = new Source();
  view = new View();
  player = new Player(this.source);
  /** From the beginning of the page to its first drawing that shows all that is in view, ms. @type {number|null} */
  openedIn = null;
  #canvas = byId('scene', HTMLCanvasElement);
  scene = new Scene(this.#canvas, this.source, this.view);
  #overview = new Overview(byId('overview', HTMLCanvasElement), this.source, this.view);
  #inspector = new Inspector(this.source);
  /** @type {[number, number]|null} */
  #region = null;
  #linked = 0;
  #inspecting = 0;
  #ticking = false;

  constructor() {
    applyTheme();
    this.scene.state = () => ({ at: this.player.at, loop: this.#region });
    this.source.addEventListener('more', () => this.redraw());
    this.source.addEventListener('problem', (event) => this.#problem(/** @type {CustomEvent} */ (event).detail));
    this.player.addEventListener('state', () => this.#state());
    this.#overview.addEventListener('go', (event) => this.go(/** @type {CustomEvent} */ (event).detail, true));
    this.#inspector.addEventListener('go', (event) => this.go(/** @type {CustomEvent} */ (event).detail));
    new WhatIf(this.source).addEventListener('altered', (event) => {
      this.scene.altered = /** @type {CustomEvent} */ (event).detail;
      this.redraw();
    });
    const opener = new FolderOpener();
    opener.addEventListener('problem', (event) => this.#problem(/** @type {CustomEvent} */ (event).detail));
    opener.addEventListener('opened', (event) => location.assign(`/replay/${/** @type {CustomEvent} */ (event).detail}`));
    this.scene.drawn = () => this.#watermarks();
    this.#gestures();
    this.#controls();
    window.addEventListener('hashchange', () => this.#follow());
    void this.load();
  }

  /** Opens what the address names: a recording, or the list of them. */
  async load() {
    const id = decodeURIComponent(location.pathname.replace(/^\/replay\/?/, ''));
    byId('problem').hidden = true;
    try {
      if (id) await this.#open(id);
      else await this.#listAll();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#problem(error);
    }
  }

  /** @param {string} id */
  async #open(id) {
    await this.source.open(id);
    const { manifest, length, live, brought, tracks } = this.source;
    const name = brought && typeof manifest.session === 'string' ? manifest.session : id;
    document.body.dataset.view = 'recording';
    document.title = `${name} · Talkover`;
    write(byId('title'), name);
    const began = typeof manifest.began === 'string' ? new Date(manifest.began).toLocaleString() : '';
    write(byId('about'), [began, clock(length, 0), live ? 'still recorded' : '', brought ? 'from a folder' : ''].filter(Boolean).join(' · '));
    this.view.open(length);
    byId('heads').replaceChildren(
      ...LANES.map((lane) => {
        const head = make('div', 'head', make('p', '', lane.label));
        head.dataset.side = lane.side;
        head.dataset.there = String(tracks.some(({ name }) => name === lane.name));
        return head;
      }),
      make('div', 'head stages', make('p', '', 'Answer')),
    );
    this.#follow();
    this.redraw();
    this.#overview.refresh();
    this.#state();
    // The server looks at one thing at a time, and what is in view comes first.
    clearTimeout(this.#inspecting);
    await this.#picture();
    void this.source.findInterruptions();
    void this.#inspector.show(this.player.at);
  }

  /** Until all that is in view was drawn, or is not to be had soon. */
  #picture() {
    const began = performance.now();
    return /** @type {Promise<void>} */ (
      new Promise((done) => {
        const drawn = () => {
          if (this.scene.complete) this.openedIn ??= performance.now();
          if (this.scene.complete || performance.now() - began > PICTURE_FIRST) done();
          if (!this.scene.complete) requestAnimationFrame(drawn);
        };
        requestAnimationFrame(drawn);
      })
    );
  }

  async #listAll() {
    const { data, off } = await this.#listed();
    document.body.dataset.view = 'list';
    const rows = data.map((/** @type {any} */ one) => {
      const link = /** @type {HTMLAnchorElement} */ (make('a', 'recorded', make('b', '', one.id)));
      link.href = `/replay/${encodeURIComponent(one.id)}`;
      const length = one.duration_s === null ? 'no length yet' : clock(one.duration_s, 0);
      const size = `${(one.size_bytes / 1e6).toFixed(1)} MB`;
      link.append(make('span', '', [new Date(one.started).toLocaleString(), length, size].join(' · ')));
      const item = make('li');
      item.append(link);
      return item;
    });
    const none = off || 'Nothing was recorded yet.';
    byId('recordings').replaceChildren(...(rows.length ? rows : [make('li', 'none', none)]));
  }

  /** What the server has, or why it has nothing. */
  async #listed() {
    try {
      return { data: (await (await ask('')).json()).data, off: '' };
    } catch (error) {
      if (!(error instanceof Refused) || error.code !== 'recording_off') throw error;
      return { data: [], off: 'This server records nothing; start it with --record DIR.' };
    }
  }

  /** @param {Refused} refused */
  #problem(refused) {
    if (refused.status === 401) {
      byId('key-problem').hidden = !apiKey();
      const dialog = byId('key-dialog', HTMLDialogElement);
      if (!dialog.open) dialog.showModal();
      return;
    }
    byId('problem').hidden = false;
    byId('problem').dataset.code = refused.code;
    write(byId('problem-text'), refused.message);
  }

  /** Says in words where the watermarks stood at the cursor. */
  #watermarks() {
    const { input, heard } = this.scene.marked;
    const told = [
      ...(input === null ? [] : [`in to ${clock(input)}`]),
      ...(heard === null ? [] : [`heard to ${clock(heard)}`]),
    ];
    write(byId('watermarks'), told.join(' · '));
  }

  redraw() {
    this.scene.redraw();
    this.#overview.redraw();
  }

  // --- moving about ------------------------------------------------------------------------------------------------

  /**
   * Puts the cursor at `at`.
   * @param {number} at
   * @param {boolean} [centred]
   */
  go(at, centred = false) {
    this.player.seek(at);
    if (centred) this.view.set(at - this.view.span / 2, this.view.span);
    else this.view.reveal(at);
    this.#moved();
  }

  /** @param {1|-1} way */
  jump(way) {
    const { interruptions } = this.source;
    const at = this.player.at + LEAD_IN;
    const next =
      way > 0 ? interruptions.find(({ now }) => now > at + 0.01) : interruptions.findLast(({ now }) => now < at - 0.01);
    if (!next) return;
    this.player.seek(Math.max(0, next.now - LEAD_IN));
    this.view.set(next.now - this.view.span / 2, Math.min(this.view.span, 30));
    this.#moved();
    void this.#inspector.show(next.now);
    clearTimeout(this.#inspecting);
  }

  /** @param {number} factor */
  zoom(factor) {
    const { at } = this.player;
    const inside = at >= this.view.from && at <= this.view.to;
    this.view.zoom(factor, inside ? at : this.view.from + this.view.span / 2);
    this.#moved();
  }

  #moved() {
    this.redraw();
    clearTimeout(this.#linked);
    this.#linked = setTimeout(() => history.replaceState(null, '', writeLink(this.player.at, this.view.span, this.#region)), 250);
    clearTimeout(this.#inspecting);
    this.#inspecting = setTimeout(() => void this.#inspector.show(this.player.at), 150);
    write(byId('time'), clock(this.player.at));
  }

  /** Goes where the address says. */
  #follow() {
    const { at, span, loop } = readLink(location.hash);
    if (span !== null) this.view.set(this.view.from, span);
    this.#mark(loop);
    if (at !== null) {
      this.player.seek(at);
      this.view.set(at - this.view.span / 2, this.view.span);
    }
    this.#moved();
  }

  /** @param {[number, number]|null} region */
  #mark(region) {
    this.#region = region;
    this.player.loop = region;
    byId('loop').setAttribute('aria-pressed', String(region !== null));
    this.redraw();
  }

  /** Loops what is in view, or nothing any more. */
  loop() {
    this.#mark(this.#region ? null : [this.view.from, this.view.to]);
    this.#moved();
  }

  #gestures() {
    const canvas = this.#canvas;
    /** @type {{x: number, from: number, at: number, moved: boolean, marks: boolean}|null} */
    let press = null;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      press = {
        x: event.offsetX,
        from: this.view.from,
        at: this.scene.time(event.offsetX),
        moved: false,
        marks: event.shiftKey,
      };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!press || !(event.buttons & 1)) return;
      const distance = event.offsetX - press.x;
      if (Math.abs(distance) > STILL) press.moved = true;
      if (!press.moved) return;
      if (press.marks) {
        const to = this.scene.time(event.offsetX);
        this.#mark([Math.max(0, Math.min(press.at, to)), Math.max(press.at, to)]);
      } else {
        this.view.set(press.from - (distance / this.scene.width) * this.view.span, this.view.span);
      }
      this.#moved();
    });
    canvas.addEventListener('pointerup', (event) => {
      if (press && !press.moved) this.go(this.scene.time(event.offsetX));
      press = null;
    });
    canvas.addEventListener(
      'wheel',
      (event) => {
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 16 : 1;
        if (event.ctrlKey || event.metaKey || Math.abs(event.deltaY) > Math.abs(event.deltaX) && !event.shiftKey) {
          this.view.zoom(Math.exp(event.deltaY * lines * WHEEL), this.scene.time(event.offsetX));
        } else {
          const pixels = (event.deltaX || event.deltaY) * lines;
          this.view.pan((pixels / this.scene.width) * this.view.span);
        }
        this.#moved();
      },
      { passive: false },
    );
  }

  #controls() {
    /** @type {Record<string, () => void>} */
    const buttons = {
      play: () => this.#toggle(),
      previous: () => this.jump(-1),
      next: () => this.jump(1),
      closer: () => this.zoom(0.5),
      wider: () => this.zoom(2),
      whole: () => this.whole(),
      loop: () => this.loop(),
      'hear-user': () => this.player.toggle('user'),
      'hear-agent': () => this.player.toggle('agent'),
      'switch-theme': () => {
        switchTheme();
        this.scene.recolour();
        this.#overview.refresh();
        this.#state();
      },
      'problem-retry': () => void this.load(),
      'close-key': () => byId('key-dialog', HTMLDialogElement).close(),
    };
    for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener('click', act);
    byId('key-form').addEventListener('submit', () => {
      keepApiKey(byId('key', HTMLInputElement).value.trim());
      byId('key', HTMLInputElement).value = '';
      void this.load();
    });
    /** @type {Record<string, (event: KeyboardEvent) => void>} */
    const keys = {
      ' ': () => this.#toggle(),
      n: () => this.jump(1),
      p: () => this.jump(-1),
      l: () => this.loop(),
      '+': () => this.zoom(0.5),
      '=': () => this.zoom(0.5),
      '-': () => this.zoom(2),
      0: () => this.whole(),
      ArrowLeft: ({ shiftKey }) => this.go(this.player.at - this.view.span / (shiftKey ? 4 : 40)),
      ArrowRight: ({ shiftKey }) => this.go(this.player.at + this.view.span / (shiftKey ? 4 : 40)),
      Home: () => this.go(0),
      End: () => this.go(this.source.length),
      Escape: () => this.#mark(null),
    };
    document.addEventListener('keydown', (event) => {
      const target = /** @type {Element} */ (event.target);
      if (event.ctrlKey || event.metaKey || event.altKey || target.matches('input, textarea, select')) return;
      if (document.querySelector('dialog[open]')) return;
      // A focused button keeps the keys that press it.
      if (event.key === ' ' && target.matches('button, a')) return;
      const act = keys[event.key];
      if (!act || document.body.dataset.view !== 'recording') return;
      event.preventDefault();
      act(event);
    });
  }

  whole() {
    this.view.set(0, this.source.length);
    this.#moved();
  }

  #toggle() {
    if (this.player.playing) this.player.pause();
    else void this.player.play();
  }

  #state() {
    const { player } = this;
    byId('play').setAttribute('aria-pressed', String(player.playing));
    byId('play').setAttribute('aria-label', player.playing ? 'Pause' : 'Play');
    for (const side of /** @type {const} */ (['user', 'agent'])) {
      byId(`hear-${side}`).setAttribute('aria-pressed', String(!player.muted(side)));
    }
    byId('switch-theme').setAttribute('aria-label', isDark() ? 'Use the light theme' : 'Use the dark theme');
    if (player.playing && !this.#ticking) {
      this.#ticking = true;
      requestAnimationFrame(() => this.#tick());
    }
    this.redraw();
  }

  #tick() {
    if (!this.player.playing) {
      this.#ticking = false;
      this.#moved();
      return;
    }
    const { at } = this.player;
    this.view.reveal(at);
    write(byId('time'), clock(at));
    this.redraw();
    requestAnimationFrame(() => this.#tick());
  }
}

export const app = new App();
