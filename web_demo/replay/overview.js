/** The whole session in a strip: loudness of both sides, where it was interrupted, and what is looked at. */

/**
 * @typedef {import('./source.js').Source} Source
 * @typedef {import('./view.js').View} View
 */

export class Overview extends EventTarget {
  #canvas;
  #context;
  #width = 0;
  #height = 0;
  #frame = 0;
  /** Its waves; drawn again only when more of them is here. */
  #waves = document.createElement('canvas');
  #stale = true;

  /**
   * Dispatches 'go' (detail: the time) for a click or a drag.
   * @param {HTMLCanvasElement} canvas
   * @param {Source} source
   * @param {View} view
   */
  constructor(canvas, source, view) {
    super();
    this.#canvas = canvas;
    this.#context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    this.source = source;
    this.view = view;
    new ResizeObserver(() => this.#measure()).observe(canvas);
    this.#measure();
    source.addEventListener('more', () => this.refresh());
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.#go(event);
    });
    canvas.addEventListener('pointermove', (event) => event.buttons & 1 && this.#go(event));
  }

  /** @param {PointerEvent} event */
  #go(event) {
    const at = (event.offsetX / this.#width) * this.source.length;
    this.dispatchEvent(new CustomEvent('go', { detail: Math.max(0, Math.min(this.source.length, at)) }));
  }

  #measure() {
    const { width, height } = this.#canvas.getBoundingClientRect();
    const scale = window.devicePixelRatio || 1;
    this.#width = width;
    this.#height = height;
    for (const canvas of [this.#canvas, this.#waves]) {
      canvas.width = Math.max(1, Math.round(width * scale));
      canvas.height = Math.max(1, Math.round(height * scale));
    }
    this.#context.setTransform(scale, 0, 0, scale, 0, 0);
    this.refresh();
  }

  /** Draws all of it anew. */
  refresh() {
    this.#stale = true;
    this.redraw();
  }

  redraw() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const c = this.#context;
    const { source, view } = this;
    c.clearRect(0, 0, this.#width, this.#height);
    if (!source.length || !this.#width) return;
    if (this.#stale) {
      this.#stale = false;
      this.#drawWaves();
    }
    c.drawImage(this.#waves, 0, 0, this.#width, this.#height);
    const style = getComputedStyle(document.documentElement);
    c.fillStyle = style.getPropertyValue('--cut').trim();
    for (const { now } of source.interruptions) c.fillRect((now / source.length) * this.#width, 0, 1, 5);
    const left = (view.from / source.length) * this.#width;
    const size = Math.max(3, (view.span / source.length) * this.#width);
    c.fillStyle = `color-mix(in srgb, ${style.getPropertyValue('--focus').trim()} 18%, transparent)`;
    c.fillRect(left, 0, size, this.#height);
    c.strokeStyle = style.getPropertyValue('--focus').trim();
    c.strokeRect(left + 0.5, 0.5, size - 1, this.#height - 1);
  }

  #drawWaves() {
    const scale = window.devicePixelRatio || 1;
    const c = /** @type {CanvasRenderingContext2D} */ (this.#waves.getContext('2d'));
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, this.#width, this.#height);
    const style = getComputedStyle(document.documentElement);
    const middle = this.#height / 2;
    for (const [name, colour, way] of /** @type {[string, string, 1|-1][]} */ ([['user_in', '--user', -1], ['agent_heard', '--agent', 1]])) {
      const track = this.source.track(name);
      if (!track) continue;
      c.fillStyle = style.getPropertyValue(colour).trim();
      const perPixel = this.source.length / this.#width;
      const level = this.source.level(track, perPixel);
      const bucket = this.source.bucket(track, level);
      for (let x = 0; x < this.#width; x += 1) {
        const first = Math.floor((x * perPixel - track.starts) / bucket);
        if (first < 0 || first * bucket > track.length) continue;
        const tile = this.source.peaks(track, level, first);
        if (!tile) continue;
        const place = (first - tile.begin) * 2;
        if (place + 1 >= tile.data.length) continue;
        const size = (Math.max(-tile.data[place], tile.data[place + 1]) / 127) * (middle - 2);
        c.fillRect(x, way < 0 ? middle - size : middle, 1, Math.max(0.5, size));
      }
    }
  }
}
