// The model must call a tool; its result is given back and spoken about.

import { converse, report } from './conversation.mjs';

const talk = await converse({
  tools: [
    {
      type: 'function',
      name: 'get_weather',
      description: 'Tell the weather in a city.',
      parameters: {
        type: 'object',
        properties: { city: { type: 'string', description: 'Name of the city' } },
        required: ['city'],
      },
    },
  ],
  tool_choice: 'required',
  audio: { input: { turn_detection: null } },
});
talk.write('What is the weather in Paris?');
talk.connection.send({ type: 'response.create' });
const done = await talk.wait('response.function_call_arguments.done');
const called = await talk.wait('response.done');
const call = called.response.output.find((item) => item.type === 'function_call');
const mark = talk.events.length;
talk.connection.send({
  type: 'conversation.item.create',
  item: { type: 'function_call_output', call_id: call.call_id, output: '{"weather": "sunny"}' },
});
talk.connection.sendResponseCreate({
  type: 'response.create',
  response: { tool_choice: 'none', metadata: { purpose: 'tell' } },
});
const told = await talk.wait('response.done', mark);
report(talk, {
  name: call.name,
  arguments: call.arguments,
  arguments_done: done.arguments,
  status: called.response.status,
  told_status: told.response.status,
  told: talk.transcript(told.response.id),
  metadata: told.response.metadata,
});
