// Installed in the voice page by tests: every event with its page time, and a recording.

import { Recording } from './test-recording.js';

export async function install() {
  const { app } = await import('/web/main.js');
  const probe = { app, events: [], playback: [], gates: [], recording: new Recording() };
  app.session.addEventListener('server', ({ detail }) => probe.events.push({ at: performance.now(), event: detail }));
  app.session.addEventListener('playback', ({ detail }) => probe.playback.push({ at: performance.now(), detail }));
  // The events' channel ends as it does when the way below it is gone.
  probe.breakOff = () => window.testChannels.findLast(({ label }) => label === 'oai-events').close();
  window.probe = probe;
}

// Records from now on, in the page's own context: what is said, what is heard behind the gate, what arrives before it.
export async function record() {
  const { app, recording } = window.probe;
  const { context, microphone, playback, session } = app;
  // By the audio's own clock, which stands still where a busy machine leaves it no time.
  playback.addEventListener('gate', () => {
    const frame = context.currentTime * context.sampleRate;
    window.probe.gates.push({ at: performance.now(), frame, muted: playback.gate.muted });
  });
  const arrived = new MediaStream([session.call.receiver.track]);
  await recording.begin(context, [
    microphone.stream ? context.createMediaStreamSource(microphone.stream) : new GainNode(context),
    playback.output,
    context.createMediaStreamSource(arrived),
  ]);
}
