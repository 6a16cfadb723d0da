// The application rewrites a question that is not the last item: the SDK deletes it and puts a new one in its place.

import { RealtimeAgent } from '@openai/agents-realtime';
import { isAnotherDone, talkWith } from './session.mjs';

const agent = new RealtimeAgent({ name: 'Assistant', instructions: '' });
const config = { outputModalities: ['text'], audio: { input: { turnDetection: null } } };

await talkWith(agent, config, async (talk) => {
  talk.session.sendMessage('What is the capital of France?');
  const first = await talk.wait('response.done');
  talk.session.sendMessage('What is the capital of Spain?');
  await talk.wait(isAnotherDone(first.response.id));
  const mark = talk.raw.length;
  const before = talk.session.history.map((item) => item.itemId);
  talk.session.updateHistory((history) =>
    history.map((item, at) =>
      at === 2 ? { ...item, content: [{ type: 'input_text', text: 'What is the capital of Italy?' }] } : item,
    ),
  );
  const deleted = await talk.wait('conversation.item.deleted', mark);
  const added = await talk.wait('conversation.item.added', mark);
  return {
    before,
    deleted: deleted.item_id,
    added: added.item.id,
    behind: added.previous_item_id,
    after: talk.session.history.map((item) => item.itemId),
    history: talk.history(),
  };
});
