// What the scenarios share: a connection of the SDK, a microphone, and everything that arrived.

import { readFile, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';

const FRAME_MS = 20;
const FRAME_BYTES = 960; // 20 ms of 24 kHz int16
const SILENCE = Buffer.alloc(FRAME_BYTES).toString('base64');

export const given = JSON.parse(process.argv[2]);

export const client = (apiKey = 'sk-none') => new OpenAI({ apiKey, baseURL: given.base_url });

export class Conversation {
  events = [];
  errors = [];
  #audio = new Map();
  #news = () => {};
  #said = [];
  #quiet = () => {};
  #capturing = false;

  constructor(openai) {
    this.connection = new OpenAIRealtimeWS({ model: 'talkover' }, openai);
    this.connection.on('event', (event) => this.#arrived(event));
    this.connection.on('error', (error) => {
      this.errors.push(`${error.message}${error.cause ? ` (${error.cause})` : ''}`);
      this.#news();
    });
    this.connection.socket.on('close', () => this.#news());
  }

  #arrived(event) {
    this.events.push(event);
    if (event.type === 'response.output_audio.delta') {
      const heard = this.#audio.get(event.response_id) ?? [];
      heard.push(Buffer.from(event.delta, 'base64'));
      this.#audio.set(event.response_id, heard);
    }
    this.#news();
  }

  // The first event from index `after` on that is of this type or satisfies this.
  async wait(what, after = 0, within = 45) {
    const fits = typeof what === 'string' ? (event) => event.type === what : what;
    const deadline = Date.now() + within * 1000;
    for (let seen = after; ; ) {
      for (; seen < this.events.length; seen += 1) {
        if (fits(this.events[seen])) return this.events[seen];
      }
      const left = deadline - Date.now();
      if (left <= 0 || this.connection.socket.readyState > 1) {
        const tail = this.events.slice(after).map((event) => event.type).slice(-8);
        throw new Error(`no ${what} (${within} s, socket ${this.connection.socket.readyState}); last came ${tail}; ${this.errors}`);
      }
      const patience = new AbortController();
      const news = new Promise((resolve) => (this.#news = resolve));
      await Promise.race([news, sleep(left, undefined, { signal: patience.signal }).catch(() => {})]);
      patience.abort();
    }
  }

  update(session) {
    this.connection.send({ type: 'session.update', session: { type: 'realtime', ...session } });
    return this.wait('session.updated', this.events.length);
  }

  write(text) {
    const item = { type: 'message', role: 'user', content: [{ type: 'input_text', text }] };
    this.connection.send({ type: 'conversation.item.create', item });
  }

  // One frame per 20 ms by absolute deadlines, silence between what is said.
  openMicrophone() {
    this.#capturing = true;
    void this.#capture();
  }

  async #capture() {
    let due = performance.now();
    while (this.#capturing) {
      this.connection.send({ type: 'input_audio_buffer.append', audio: this.#said.shift() ?? SILENCE });
      if (this.#said.length === 0) this.#quiet();
      due += FRAME_MS;
      await sleep(Math.max(0, due - performance.now()));
    }
  }

  // Speak a file of raw PCM; resolves when its last sample has gone out.
  async say(path) {
    const pcm = await readFile(path);
    for (let at = 0; at < pcm.length; at += FRAME_BYTES) {
      const frame = Buffer.alloc(FRAME_BYTES);
      pcm.copy(frame, 0, at, at + FRAME_BYTES);
      this.#said.push(frame.toString('base64'));
    }
    await new Promise((resolve) => (this.#quiet = resolve));
  }

  // What a response said, put together from its deltas.
  transcript(id) {
    const kinds = ['response.output_audio_transcript.delta', 'response.output_text.delta'];
    const said = this.events.filter((event) => kinds.includes(event.type) && event.response_id === id);
    return said.map((event) => event.delta).join('');
  }

  // Milliseconds of a response that have arrived.
  sounded(id) {
    return (this.#audio.get(id) ?? []).reduce((bytes, part) => bytes + part.length, 0) / 48;
  }

  save(id, path) {
    return writeFile(path, Buffer.concat(this.#audio.get(id) ?? []));
  }

  types(after = 0) {
    return this.events.slice(after).map((event) => event.type);
  }

  close() {
    this.#capturing = false;
    this.connection.close();
  }

  // The cable is pulled: no closing handshake.
  async drop() {
    this.#capturing = false;
    const dropped = new Promise((resolve) => this.connection.socket.once('close', resolve));
    this.connection.socket.terminate();
    return dropped;
  }
}

export async function converse(session, openai = client()) {
  const talk = new Conversation(openai);
  await talk.wait('session.created');
  await talk.update(session);
  return talk;
}

export function report(talk, result) {
  talk.close();
  console.log(JSON.stringify({ ...result, errors: talk.errors }));
}
