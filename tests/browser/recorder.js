// Runs on the audio thread: every sample of three inputs: the microphone, what is heard, and what has arrived.

class Recorder extends AudioWorkletProcessor {
  #blocks = [];

  process(inputs) {
    const block = new Int16Array(3 * 128);
    for (const [side, channels] of inputs.entries()) {
      const samples = channels[0];
      if (!samples) continue;
      for (let at = 0; at < 128; at += 1) {
        block[side * 128 + at] = Math.max(-1, Math.min(1, samples[at])) * 32767;
      }
    }
    this.#blocks.push(block);
    if (this.#blocks.length === 75) {
      this.port.postMessage({ first: currentFrame - 74 * 128, blocks: this.#blocks });
      this.#blocks = [];
    }
    return true;
  }
}

registerProcessor('recorder', Recorder);
