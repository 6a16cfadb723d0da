// A question is spoken; its transcript, the reply's audio and the reply's transcript come back.

import { setTimeout as sleep } from 'node:timers/promises';
import { converse, given, report } from './conversation.mjs';

const talk = await converse({
  audio: { input: { turn_detection: given.turn_detection, transcription: { model: 'whisper-1' } } },
});
talk.openMicrophone();
await sleep(500);
const mark = talk.events.length;
await talk.say(given.question);
const heard = await talk.wait('conversation.item.input_audio_transcription.completed', mark);
const done = await talk.wait('response.done', mark);
const item = done.response.output[0];
talk.connection.send({ type: 'conversation.item.retrieve', item_id: item.id });
const kept = await talk.wait('conversation.item.retrieved', mark);
await talk.save(done.response.id, given.reply);
report(talk, {
  url: talk.connection.url.protocol,
  types: talk.types(mark),
  heard: heard.transcript,
  said: talk.transcript(done.response.id),
  said_at_end: item.content[0].transcript,
  kept: kept.item.content[0].transcript,
  status: done.response.status,
});
