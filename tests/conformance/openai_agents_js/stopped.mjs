// The application's stop button: the SDK cancels the response and truncates it by itself.

import { RealtimeAgent } from '@openai/agents-realtime';
import { deltas, isAnotherDone, isDone, talkWith } from './session.mjs';

const agent = new RealtimeAgent({
  name: 'Assistant',
  instructions: 'You are a helpful AI assistant named SmolLM, trained by Hugging Face',
});

await talkWith(agent, { audio: { input: { turnDetection: null } } }, async (talk) => {
  talk.session.sendMessage('Tell me a long story about a ship and its captain.');
  const first = await talk.wait('response.output_audio.delta');
  const begun = performance.now();
  // Not by a clock, as a busy machine speaks with pauses: a word that is just announced has not been heard yet.
  const said = (raw) => raw.type === 'response.output_audio_transcript.delta' && talk.sounded() >= 1200;
  await talk.wait(said, talk.raw.indexOf(first));
  const elapsed_ms = performance.now() - begun;
  talk.session.interrupt();
  const mark = talk.raw.length;
  const cancelled = await talk.wait(isDone(first.response_id));
  const truncated = await talk.wait('conversation.item.truncated', mark);
  const retrieved = await talk.wait('conversation.item.retrieved', mark);
  // A question right behind it: the SDK holds its response.create back until the first response is done.
  talk.session.sendMessage('What is the capital of France?');
  const answered = await talk.wait(isAnotherDone(first.response_id), mark);
  return {
    status: cancelled.response.status,
    reason: cancelled.response.status_details.reason,
    elapsed_ms,
    truncated_ms: truncated.audio_end_ms,
    kept: retrieved.item.content[0].transcript,
    sent: deltas(talk.raw, first.response_id),
    answer_status: answered.response.status,
  };
});
