// One question, spoken or written, in each way that the SDK offers; every event passes the SDK's schemas.

import { writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { RealtimeAgent } from '@openai/agents-realtime';
import { given, talkWith } from './session.mjs';

const agent = new RealtimeAgent({ name: 'Assistant', instructions: '' });

await talkWith(agent, given.config, async (talk) => {
  let heard = '';
  if (given.question) {
    talk.openMicrophone();
    await sleep(500);
    await talk.say(given.question);
    if (given.push_to_talk) {
      talk.closeMicrophone();
      talk.transport.sendEvent({ type: 'input_audio_buffer.commit' });
      talk.transport.requestResponse();
    }
    heard = (await talk.wait('conversation.item.input_audio_transcription.completed')).transcript;
  } else {
    talk.session.sendMessage('What is the capital of France?');
  }
  const done = await talk.wait('response.done');
  // The SDK retrieves the question by itself once its words are there.
  if (given.question) await talk.wait('conversation.item.retrieved');
  await writeFile(given.reply, Buffer.concat(talk.audio));
  const part = done.response.output[0]?.content[0] ?? {};
  return {
    heard,
    said: part.transcript ?? part.text,
    status: done.response.status,
    history: talk.history(),
    tokens: talk.session.usage.totalTokens,
  };
});
