// A recording of some nodes of an audio graph, sample by sample, on one clock.

const HERE = new URL('.', import.meta.url);

export class Recording {
  #chunks = [];
  #offset = Infinity;

  // Begins to record `nodes`, at most three, all in `context`.
  async begin(context, nodes) {
    this.context = context;
    // Requests of a worklet pass by whoever serves this file, so its text is fetched here.
    const source = await (await fetch(new URL('test-recorder.js', HERE))).text();
    await context.audioWorklet.addModule(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })));
    const node = new AudioWorkletNode(context, 'recorder', {
      numberOfInputs: 3,
      channelCount: 1,
      channelCountMode: 'explicit',
    });
    node.port.onmessage = ({ data }) => this.#chunks.push({ ...data, came: performance.now() });
    node.connect(new GainNode(context, { gain: 0 })).connect(context.destination);
    nodes.forEach((from, input) => from.connect(node, 0, input));
    // Many pairs: the one with the least delay between the two clocks counts.
    for (let tries = 0; tries < 40; tries += 1) {
      this.#offset = Math.min(this.#offset, performance.now() - context.currentTime * 1000);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  // What was recorded so far, int16 in base64, with the page time and the frame of the context of the first sample, and
  // the frame behind each chunk with the page time at which the chunk came.
  take() {
    const length = this.#chunks.reduce((sum, chunk) => sum + chunk.blocks.length, 0) * 128;
    const sides = [0, 1, 2].map(() => new Int16Array(length));
    let at = 0;
    for (const { blocks } of this.#chunks) {
      for (const block of blocks) {
        sides.forEach((side, index) => side.set(block.subarray(index * 128, index * 128 + 128), at));
        at += 128;
      }
    }
    const first = this.#chunks[0]?.first ?? 0;
    const rate = this.context.sampleRate;
    const came = this.#chunks.map(({ first: frame, blocks, came: at }) => [frame + blocks.length * 128, at]);
    return { rate, first, began: this.#offset + (first / rate) * 1000, sides: sides.map(encode), came };
  }

  // Forgets what was recorded so far, so that long runs stay small.
  forget() {
    this.#chunks = [];
  }
}

function encode(pcm) {
  const bytes = new Uint8Array(pcm.buffer);
  let text = '';
  for (let from = 0; from < bytes.length; from += 32768) text += String.fromCharCode(...bytes.subarray(from, from + 32768));
  return btoa(text);
}
