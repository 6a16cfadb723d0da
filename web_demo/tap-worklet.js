/** Runs on the audio thread: tells how loud each stretch of 512 samples is (10.7 ms at 48 kHz). */

const STRETCH = 512;

class Tap extends AudioWorkletProcessor {
  #square = 0;
  #peak = 0;
  #count = 0;

  /** @param {Float32Array[][]} inputs */
  process(inputs) {
    const samples = inputs[0]?.[0];
    if (samples) {
      for (const sample of samples) {
        this.#square += sample * sample;
        const size = Math.abs(sample);
        if (size > this.#peak) this.#peak = size;
      }
    }
    this.#count += samples?.length ?? 128;
    if (this.#count >= STRETCH) {
      const end = (currentFrame + 128) / sampleRate;
      this.port.postMessage([end, Math.sqrt(this.#square / this.#count), this.#peak]);
      this.#square = this.#peak = this.#count = 0;
    }
    return true;
  }
}

registerProcessor('tap', Tap);
