// The page: it follows the samples of its process, and shows each.

import * as manager from './manager.js';
import {element} from './parts.js';
import * as samples from './samples.js';
import * as store from './store.js';
import {headers, keepToken} from './token.js';

const pages = {manager, store};
const byId = id => document.getElementById(id);
let parts = [];
let due = false;
let connected = false;

// draw shows the newest sample, once a frame, and not while nobody sees the page.
function draw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const s = samples.newest();
    if (!s || !connected) return;
    if (parts.length === 0) {
      byId('kind').textContent = s.kind;
      byId('version').textContent = s.version;
      document.title = `redykv ${s.kind}`;
      parts = pages[s.kind].parts(draw);
      byId('page').replaceChildren(...parts.map(p => p.element));
    }
    say(s.status, s.status === 'ready' ? 'good' : 'bad');
    for (const p of parts) p.update();
  });
}

// say tells the status. A screen reader speaks it when it changes.
function say(text, kind) {
  const status = byId('status');
  if (status.textContent !== text) status.textContent = text;
  status.className = kind;
}

// signIn asks for a token, and returns when there is one.
function signIn(why) {
  parts = [];
  connected = false;
  byId('json').hidden = true; // it would not have the token
  say(why.trim(), 'bad');
  return new Promise(resolve => {
    const token = element('input', {type: 'password', id: 'token', autocomplete: 'current-password', required: true, pattern: '\\s*[!-~]+\\s*', title: 'printable ASCII'});
    const form = element('form', {}, element('label', {htmlFor: 'token', textContent: 'An operator\'s token '}), token, ' ', element('button', {textContent: 'Sign in'}));
    form.addEventListener('submit', e => {
      e.preventDefault();
      keepToken(token.value.trim());
      byId('page').replaceChildren();
      resolve();
    });
    byId('page').replaceChildren(element('section', {}, form));
    token.focus();
  });
}

// events yields the events of a stream.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ''; ;) {
    const {value, done} = await reader.read();
    if (done) return;
    const whole = (text + value).split('\n\n');
    text = whole.pop();
    for (const one of whole) {
      const [, name, data] = one.match(/^event: (.*)\ndata: (.*)$/);
      yield [name, JSON.parse(data)];
    }
  }
}

async function follow() {
  const answer = await fetch('live', {headers: headers()});
  if (answer.status === 401) {
    await signIn(await answer.text());
    return;
  }
  if (answer.ok) for await (const [name, data] of events(answer.body)) {
    if (name === 'history') samples.replace(data); else samples.add(data);
    connected = true;
    draw();
  }
  throw new Error('the stream has ended');
}

async function followAlways() {
  for (;;) {
    try {
      await follow();
    } catch {
      connected = false;
      say('no connection, trying again', 'bad');
      await new Promise(resolve => setTimeout(resolve, 1000));
    }
  }
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const p of parts) p.restyle?.();
  draw();
});

followAlways();
