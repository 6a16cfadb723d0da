// A page with the SDK's WebRTC transport, unmodified: what it reports, and a recording of what it plays.

import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession } from '/sdk/openai-realtime-agents.mjs';
import { Recording } from '/web/test-recording.js';

const state = {
  events: [],
  errors: [],
  recording: new Recording(),
  history: () =>
    state.session.history
      .filter((item) => item.type === 'message')
      .map((item) => `${item.role}: ${item.content.map((part) => part.transcript ?? part.text ?? '').join(' ')}`),
};
window.talk = state;

// Connects as an application does: with a key of its own and the SDK's microphone and speaker.
export async function connect(config) {
  const minted = await fetch('/v1/realtime/client_secrets', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{}',
  });
  const { value } = await minted.json();
  const audioElement = new Audio();
  audioElement.autoplay = true;
  const transport = new OpenAIRealtimeWebRTC({ baseUrl: `${location.origin}/v1/realtime/calls`, audioElement });
  const agent = new RealtimeAgent({ name: 'tester', instructions: 'You are a helpful assistant.' });
  state.session = new RealtimeSession(agent, { transport, model: 'talkover', config });
  transport.on('*', (event) => state.events.push({ at: performance.now(), event }));
  state.session.on('error', (error) => state.errors.push(JSON.stringify(error).slice(0, 2000)));
  await state.session.connect({ apiKey: value });
  const context = new AudioContext();
  await state.recording.begin(context, [
    new GainNode(context),
    context.createMediaStreamSource(audioElement.srcObject),
    new GainNode(context),
  ]);
  return transport.callId;
}
