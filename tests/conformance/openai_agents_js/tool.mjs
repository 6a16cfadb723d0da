// The SDK runs a tool that the model calls, gives the result back and hears it told.

import { RealtimeAgent, tool } from '@openai/agents-realtime';
import { z } from 'zod';
import { deltas, isAnotherDone, talkWith } from './session.mjs';

const called = [];
const weather = tool({
  name: 'get_weather',
  description: 'Tell the weather in a city.',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    called.push(city);
    return '{"weather": "sunny"}';
  },
});
const agent = new RealtimeAgent({ name: 'Assistant', instructions: 'You tell the weather.', tools: [weather] });

await talkWith(agent, { audio: { input: { turnDetection: null } } }, async (talk) => {
  talk.session.sendMessage('What is the weather in Paris?');
  await talk.wait('response.function_call_arguments.done');
  const first = await talk.wait('response.done');
  const told = await talk.wait(isAnotherDone(first.response.id));
  return {
    called,
    tools: talk.tools,
    told_status: told.response.status,
    told: deltas(talk.raw, told.response.id),
  };
});
