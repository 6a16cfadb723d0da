// The connection drops in the middle of a reply; the same session connects anew and holds a conversation.

import { setTimeout as sleep } from 'node:timers/promises';
import { RealtimeAgent } from '@openai/agents-realtime';
import { given, talkWith } from './session.mjs';

const agent = new RealtimeAgent({ name: 'Assistant', instructions: '' });
const config = {
  audio: { input: { turnDetection: { type: 'server_vad' }, transcription: { model: 'whisper-1' } } },
};

await talkWith(agent, config, async (talk) => {
  talk.openMicrophone();
  await sleep(300);
  await talk.say(given.question);
  await talk.wait('response.output_audio.delta');
  const dropped = new Promise((resolve) => talk.transport.once('disconnected', resolve));
  // No closing handshake: a cable that is pulled.
  talk.transport.connectionState.websocket.terminate();
  await dropped;
  const mark = talk.raw.length;
  await talk.session.connect({ apiKey: 'sk-none' });
  await talk.wait('session.updated', mark);
  await sleep(300);
  await talk.say(given.question);
  const heard = await talk.wait('conversation.item.input_audio_transcription.completed', mark);
  const done = await talk.wait('response.done', mark);
  const sessions = talk.raw.filter((raw) => raw.type === 'session.created').map((raw) => raw.session.id);
  return {
    sessions: new Set(sessions).size,
    heard: heard.transcript,
    said: done.response.output[0]?.content[0].transcript,
    status: done.response.status,
  };
});
