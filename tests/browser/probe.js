// Installed in the voice page by tests: every event with its page time, and a recording of both sides.

export async function install() {
  const { app } = await import('/web/main.js');
  const probe = { app, events: [], chunks: [], gates: [], playback: [] };
  app.session.addEventListener('server', ({ detail }) => probe.events.push({ at: performance.now(), event: detail }));
  app.session.addEventListener('playback', ({ detail }) => probe.playback.push({ at: performance.now(), detail }));
  window.probe = probe;
  return true;
}

// Records from now on, in the page's own context, behind its gate.
export async function record() {
  const { app, chunks } = window.probe;
  const { context } = app;
  // Requests of a worklet pass by whoever serves this file, so its text is fetched here.
  const source = await (await fetch('/web/test-recorder.js')).text();
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })));
  const node = new AudioWorkletNode(context, 'recorder', { numberOfInputs: 2, channelCount: 1, channelCountMode: 'explicit' });
  node.port.onmessage = ({ data }) => chunks.push(data);
  const silent = new GainNode(context, { gain: 0 });
  node.connect(silent).connect(context.destination);
  context.createMediaStreamSource(app.microphone.stream).connect(node, 0, 0);
  app.playback.output.connect(node, 0, 1);
  // Many pairs: the one with the least delay between the two clocks counts.
  window.probe.offset = Infinity;
  for (let tries = 0; tries < 40; tries += 1) {
    window.probe.offset = Math.min(window.probe.offset, performance.now() - context.currentTime * 1000);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return context.sampleRate;
}

// Both sides since `record`, int16 in base64, and the page time of their first sample.
export function recording() {
  const { app, chunks, offset } = window.probe;
  const length = chunks.reduce((sum, chunk) => sum + chunk.blocks.length, 0) * 128;
  const sides = [new Int16Array(length), new Int16Array(length)];
  let at = 0;
  for (const { blocks } of chunks) {
    for (const block of blocks) {
      sides[0].set(block.subarray(0, 128), at);
      sides[1].set(block.subarray(128), at);
      at += 128;
    }
  }
  const encode = (pcm) => {
    const bytes = new Uint8Array(pcm.buffer);
    let text = '';
    for (let from = 0; from < bytes.length; from += 32768) text += String.fromCharCode(...bytes.subarray(from, from + 32768));
    return btoa(text);
  };
  const first = chunks.length ? chunks[0].first / app.context.sampleRate : 0;
  return { rate: app.context.sampleRate, began: offset + first * 1000, user: encode(sides[0]), agent: encode(sides[1]) };
}
