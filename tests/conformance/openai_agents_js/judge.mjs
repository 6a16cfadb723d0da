// The SDK's own verdict on a file of raw events: which of them its schemas refuse.

import { readFile } from 'node:fs/promises';

const { parseRealtimeEvent } = await import(
  new URL('./openaiRealtimeEvents.mjs', import.meta.resolve('@openai/agents-realtime')).href
);
const { events } = JSON.parse(process.argv[2]);
const raw = JSON.parse(await readFile(events, 'utf8'));
const invalid = raw
  .map((event) => JSON.stringify(event))
  .filter((data) => parseRealtimeEvent({ data }).isGeneric)
  .map((data) => data.slice(0, 500));
console.log(JSON.stringify({ invalid, count: raw.length }));
