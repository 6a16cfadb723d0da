// A backend makes an ephemeral key over REST; a client that has nothing else connects with it and gets text.

import { client, converse, given, report } from './conversation.mjs';

const secret = await client(given.api_key).realtime.clientSecrets.create({
  session: { type: 'realtime', instructions: 'Be brief.', output_modalities: ['text'] },
  expires_after: { anchor: 'created_at', seconds: 60 },
});
const talk = await converse({ audio: { input: { turn_detection: null } } }, client(secret.value));
const created = await talk.wait('session.created');
talk.write('What is the capital of France?');
talk.connection.send({ type: 'response.create' });
const done = await talk.wait('response.done');
report(talk, {
  secret: secret.value.slice(0, 3),
  lives: secret.expires_at - Math.floor(Date.now() / 1000),
  instructions: created.session.instructions,
  modalities: created.session.output_modalities,
  status: done.response.status,
  said: talk.transcript(done.response.id),
  part: done.response.output[0].content[0],
  types: talk.types(),
});
