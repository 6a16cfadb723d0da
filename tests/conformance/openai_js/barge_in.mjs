// A reply is interrupted by a second question; then it is truncated and retrieved, as applications do.

import { setTimeout as sleep } from 'node:timers/promises';
import { converse, given, report } from './conversation.mjs';

const talk = await converse({
  audio: { input: { turn_detection: given.turn_detection, transcription: { model: 'whisper-1' } } },
  instructions: 'You are a helpful AI assistant named SmolLM, trained by Hugging Face',
});
talk.openMicrophone();
await sleep(500);
talk.write('Tell me a long story about a ship and its captain.');
talk.connection.send({ type: 'response.create' });
const first = await talk.wait('response.output_audio.delta');
// By what arrived and not by a clock: a busy machine speaks with pauses.
await talk.wait(() => talk.sounded(first.response_id) >= 3000);
const mark = talk.events.length;
const said = talk.say(given.question);
const started = await talk.wait('input_audio_buffer.speech_started', mark);
const played_ms = Math.floor(talk.sounded(first.response_id));
const cancelled = await talk.wait((event) => event.type === 'response.done' && event.response.id === first.response_id);
const cut = talk.events.indexOf(started);
const late = talk.events
  .slice(cut)
  .filter((event) => event.type === 'response.output_audio.delta' && event.response_id === first.response_id);
await said;

const retrieve = async () => {
  const place = talk.events.length;
  talk.connection.send({ type: 'conversation.item.retrieve', item_id: first.item_id });
  const retrieved = await talk.wait(
    (event) => event.type === 'conversation.item.retrieved' && event.item.id === first.item_id,
    place,
  );
  return retrieved.item.content[0].transcript;
};
const kept = await retrieve();
const audio_end_ms = Math.floor(played_ms / 2);
talk.connection.send({ type: 'conversation.item.truncate', item_id: first.item_id, content_index: 0, audio_end_ms });
const truncated = await talk.wait('conversation.item.truncated', cut);
const kept_after_truncate = await retrieve();

const answered = await talk.wait(
  (event) => event.type === 'response.done' && event.response.id !== first.response_id,
  cut,
);
const heard = await talk.wait('conversation.item.input_audio_transcription.completed', cut);
await talk.save(answered.response.id, given.reply);
report(talk, {
  status: cancelled.response.status,
  reason: cancelled.response.status_details.reason,
  sent: talk.transcript(first.response_id),
  kept,
  kept_after_truncate,
  played_ms,
  truncated_ms: truncated.audio_end_ms,
  late_deltas: late.length,
  heard: heard.transcript,
  answer_status: answered.response.status,
  answer: talk.transcript(answered.response.id),
});
