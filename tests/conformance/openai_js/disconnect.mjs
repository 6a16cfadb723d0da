// The connection drops in the middle of a reply; a new one holds a conversation as if nothing had been.

import { setTimeout as sleep } from 'node:timers/promises';
import { converse, given, report } from './conversation.mjs';

const session = {
  audio: { input: { turn_detection: { type: 'server_vad' }, transcription: { model: 'whisper-1' } } },
};
const first = await converse(session);
first.openMicrophone();
await sleep(300);
await first.say(given.question);
await first.wait('response.output_audio.delta');
const code = await first.drop();

const talk = await converse(session);
talk.openMicrophone();
await sleep(300);
await talk.say(given.question);
const heard = await talk.wait('conversation.item.input_audio_transcription.completed');
const done = await talk.wait('response.done');
report(talk, {
  code,
  heard: heard.transcript,
  said: talk.transcript(done.response.id),
  status: done.response.status,
  first_errors: first.errors,
});
