// In place of the device: a microphone that hears a quiet room and whatever `testMicrophone.say` puts into it.

window.testMicrophone = {
  context: null,
  stream: null,

  open() {
    if (this.stream) return;
    this.context = new AudioContext({ sampleRate: 48000 });
    this.out = this.context.createMediaStreamDestination();
    const room = this.context.createBuffer(1, 48000, 48000);
    const samples = room.getChannelData(0);
    for (let at = 0; at < samples.length; at += 1) samples[at] = (Math.random() - 0.5) * 0.0006;
    const noise = new AudioBufferSourceNode(this.context, { buffer: room, loop: true });
    noise.connect(this.out);
    noise.start();
    this.stream = this.out.stream;
  },

  // Mono int16 PCM in base64; resolves with the page time at which its first sample is taken.
  async say(encoded, rate) {
    const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
    const pcm = new Int16Array(bytes.buffer);
    const buffer = this.context.createBuffer(1, pcm.length, rate);
    const samples = buffer.getChannelData(0);
    for (let at = 0; at < pcm.length; at += 1) samples[at] = pcm[at] / 32768;
    const source = new AudioBufferSourceNode(this.context, { buffer });
    source.connect(this.out);
    const at = this.context.currentTime + 0.03;
    source.start(at);
    return performance.now() + (at - this.context.currentTime) * 1000;
  },
};

navigator.mediaDevices.getUserMedia = async (wanted) => {
  window.testMicrophone.wanted = wanted;
  window.testMicrophone.open();
  // A clone, as a page may stop what it was given.
  return window.testMicrophone.stream.clone();
};
