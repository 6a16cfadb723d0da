// A question over a reply, and the answer to it: the SDK truncates and retrieves by itself.

import { setTimeout as sleep } from 'node:timers/promises';
import { RealtimeAgent } from '@openai/agents-realtime';
import { deltas, given, isAnotherDone, isDone, talkWith } from './session.mjs';

const agent = new RealtimeAgent({
  name: 'Assistant',
  instructions: 'You are a helpful AI assistant named SmolLM, trained by Hugging Face',
});
const config = {
  audio: { input: { turnDetection: given.turn_detection, transcription: { model: 'whisper-1' } } },
};

await talkWith(agent, config, async (talk) => {
  talk.openMicrophone();
  await sleep(500);
  talk.session.sendMessage('Tell me a long story about a ship and its captain.');
  const first = await talk.wait('response.output_audio.delta');
  await sleep(1500);
  const mark = talk.raw.length;
  await talk.say(given.question);
  const cancelled = await talk.wait(isDone(first.response_id));
  const truncated = await talk.wait('conversation.item.truncated', mark);
  const retrieved = await talk.wait((raw) => raw.type === 'conversation.item.retrieved' && raw.item.id === first.item_id, mark);
  const answered = await talk.wait(isAnotherDone(first.response_id), mark);
  const heard = await talk.wait('conversation.item.input_audio_transcription.completed', mark);
  const cut = talk.raw.findIndex((raw, at) => at >= mark && raw.type === 'input_audio_buffer.speech_started');
  const late = talk.raw
    .slice(cut)
    .filter((raw) => raw.type === 'response.output_audio.delta' && raw.response_id === first.response_id);
  return {
    status: cancelled.response.status,
    reason: cancelled.response.status_details.reason,
    truncated_ms: truncated.audio_end_ms,
    kept: retrieved.item.content[0].transcript,
    sent: deltas(talk.raw, first.response_id),
    heard: heard.transcript,
    answer_status: answered.response.status,
    late_deltas: late.length,
    history: talk.history(),
  };
});
