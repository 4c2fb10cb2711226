// What must be refused, with the right status, in words, on the wire and on the page.
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';

import { ask, bash, id, plan, question } from '../fixtures/claude';
import { BIN } from '../fixtures/product';
import { agentForm, expect, lines, needsClaude, NOBODY, test, type Approval, type Person, type State } from '../fixtures/test';

const cookie = (state: State) => state.cookies.map((c) => `${c.name}=${c.value}`).join('; ');

interface Answer { status: number; body: string; headers: http.IncomingHttpHeaders }

/** A request with exactly these headers: a browser would not send them. */
function raw(url: string, headers: http.OutgoingHttpHeaders, method = 'GET', body?: string): Promise<Answer> {
  return new Promise((done, lost) => {
    const request = http.request(url, { method, headers, agent: false }, (response) => {
      let text = '';
      response.on('data', (chunk) => { text += chunk; });
      response.on('end', () => done({ status: response.statusCode ?? 0, body: text, headers: response.headers }));
    });
    request.on('upgrade', (response, socket) => {
      socket.destroy();
      done({ status: response.statusCode ?? 0, body: '', headers: response.headers });
    });
    request.on('error', lost);
    request.end(body);
  });
}

const upgrade = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==' };

test('the first admin’s link works once', async ({ open, product, adminState, expectError }) => {
  expect(adminState.cookies).not.toEqual([]);
  expectError(/410 \(Gone\)/);
  const { page } = await open(NOBODY);
  expect((await page.goto(product.setup))?.status()).toBe(410);
  await expect(page.getByRole('button', { name: 'Create admin' })).toHaveCount(0);
  await expect(page.getByRole('alert')).toContainText('This link was used. Each link works once.');
  const answer = await page.request.post(product.setup, {
    form: { name: 'Eve', password: 'a long enough one', repeat: 'a long enough one' }, maxRedirects: 0,
  });
  expect(answer.status()).toBe(303);
  expect(answer.headers().location).toContain('problem=used');
  expect(answer.headers()['set-cookie']).toBeUndefined();
});

test('a host that is not ours is told so', async ({ product }) => {
  const answer = await raw(`${product.url}/signin`, { Host: 'evil.example' });
  expect(answer.status).toBe(421);
  expect(answer.body).toContain(`This server answers at ${product.url} only.`);
});

test('a post from another origin is refused', async ({ product, adminState, ana }) => {
  const headers = { Cookie: cookie(adminState), 'Content-Type': 'application/x-www-form-urlencoded' };
  const agents = (await ana.api.agents()).length;
  for (const origin of ['https://evil.example', 'null', product.url.replace(/\d+$/, '1')]) {
    for (const path of ['/api/worker/create', '/api/user/add', '/signout']) {
      const answer = await raw(`${product.url}${path}`, { ...headers, Origin: origin }, 'POST', 'name=eve&role=admin');
      expect(answer.status, `${path} from ${origin}`).toBe(403);
    }
  }
  const site = await raw(`${product.url}/signout`, { ...headers, 'Sec-Fetch-Site': 'cross-site' }, 'POST', '');
  expect(site.status).toBe(403);
  // Still signed in, nothing made.
  expect(await ana.api.agents()).toHaveLength(agents);
});

test('/live needs our origin and a session', async ({ product, adminState }) => {
  const at = `${product.url}/live`;
  const signed = { ...upgrade, Cookie: cookie(adminState) };
  expect((await raw(at, { ...signed, Origin: product.url })).status).toBe(101);
  expect((await raw(at, { ...signed, Origin: 'https://evil.example' })).status).toBe(403);
  expect((await raw(at, signed)).status).toBe(403);
  expect((await raw(at, { ...upgrade, Origin: product.url })).status).toBe(401);
});

test('/link takes a worker’s token only', async ({ product, adminState }) => {
  const at = `${product.url}/link`;
  expect((await raw(at, upgrade)).status).toBe(401);
  expect((await raw(at, { ...upgrade, Authorization: 'Bearer wrong' })).status).toBe(401);
  expect((await raw(at, { ...upgrade, Cookie: cookie(adminState), Origin: product.url })).status).toBe(401);
});

test('a worker with a wrong token says so and ends with 2', async ({ product, folder }) => {
  const token = join(folder, 'token');
  writeFileSync(token, 'csw_0000000000000000000000000000000000000000000\n', { mode: 0o600 });
  mkdirSync(join(folder, 'worker'));
  const { status, stderr, stdout } = spawnSync(join(BIN, 'countersign-worker'), [
    'run', '--server', product.url, '--token-file', token, '--data', join(folder, 'worker'),
  ], { encoding: 'utf8', timeout: 30_000, env: { PATH: process.env.PATH, HOME: folder } });
  expect(status, stderr).toBe(2);
  expect(stderr + stdout).toMatch(/token/i);
  expect(stderr + stdout).not.toContain('csw_0000');
});

test('a body over the limit is refused', async ({ product, adminState }) => {
  const answer = await raw(`${product.url}/api/session/start`, {
    Cookie: cookie(adminState), 'Content-Type': 'application/x-www-form-urlencoded', Origin: product.url,
  }, 'POST', `prompt=${'x'.repeat(1_100_000)}`);
  expect(answer.status).toBe(413);
});

test('a message over 256 KiB is refused in words', async ({ ana }) => {
  const agent = await ana.api.agent('demo');
  const answer = await ana.api.post('session/start', { agent: agent.id, prompt: 'x'.repeat(300_000) });
  expect(answer.status()).toBe(422);
  expect(await answer.text()).toContain('256 KiB');
});

test('what is not there is a page with 404', async ({ ana, expectError }) => {
  const { page } = ana;
  const none = '01980000-0000-7000-8000-000000000000';
  expectError(/404/);
  for (const [path, words] of [
    [`/chat/${none}`, 'There is no such session'],
    ['/chat/not-an-id', 'There is no such session'],
    [`/approvals/${none}`, 'There is no such request'],
    ['/approvals/not-an-id', 'There is no such request'],
    ['/nowhere', 'There is no such page'],
  ]) {
    const answer = await page.goto(path);
    expect(answer?.status(), path).toBe(404);
    await ana.ready();
    await expect(page.getByText(words).first(), path).toBeVisible();
  }
  expect((await page.request.get(`/api/approval/read?id=${none}`)).status()).toBe(404);
  expect((await page.request.get('/api/no/such')).status()).toBe(404);
});

test('without a session pages lead to signing in and the API says 401', async ({ open }) => {
  const { page } = await open(NOBODY);
  for (const path of ['/chat', '/approvals', '/agents', '/users', '/me']) {
    await page.goto(path);
    await expect(page, path).toHaveURL(/\/signin/);
  }
  for (const path of ['agent/list', 'approval/list?tab=waiting', 'user/list', 'worker/list']) {
    expect((await page.request.get(`/api/${path}`)).status(), path).toBe(401);
  }
  const answer = await page.request.post('/api/worker/create', { form: { name: 'eve' } });
  expect(answer.status()).toBe(401);
});

test('pages tell browsers to run nothing of others', async ({ ana }) => {
  const answer = await ana.page.request.get('/chat');
  const policy = answer.headers()['content-security-policy'];
  expect(policy).toContain("default-src 'none'");
  expect(policy).toMatch(/script-src 'self' 'nonce-[^']+' 'wasm-unsafe-eval'/);
  expect(policy).toContain("frame-ancestors 'none'");
  expect(answer.headers()['x-content-type-options']).toBe('nosniff');
  expect(answer.headers()['cache-control']).toBe('no-store');
});

test('a wrong DATABASE_URL is told with what to do', async ({ folder }) => {
  const { status, stderr } = spawnSync(join(BIN, 'countersign'), ['serve', '--data', join(folder, 'data'), '--listen', '127.0.0.1:0', '--no-worker'], {
    encoding: 'utf8', timeout: 60_000,
    env: { PATH: process.env.PATH, HOME: folder, DATABASE_URL: 'postgres://eve:secret-word@127.0.0.1:1/none' },
  });
  expect(status, stderr).toBe(1);
  expect(stderr).toContain('DATABASE_URL');
  expect(stderr).not.toContain('secret-word');
});

test('a mode that never asks needs an admin who means it', async ({ ana, add }) => {
  const agent = { ...await ana.api.edit('demo', { mode: 'ask' }), mode: 'auto' };
  const unmeant = await ana.api.post('agent/edit', agentForm(agent));
  expect(unmeant.status()).toBe(422);
  expect(await unmeant.json()).toMatchObject({ failure: 'invalid', field: 'mode' });
  const tomas = await add(`Tomas ${id()}`, 'approver');
  expect((await tomas.api.post('agent/edit', { ...agentForm(agent), never_asks_confirmed: 'on' })).status()).toBe(403);
  expect((await ana.api.post('agent/edit', { ...agentForm(agent), mode: 'nonsense', never_asks_confirmed: 'on' })).status()).toBe(422);
  // The demo agent cannot be told to ask for everything.
  const everything = await ana.api.post('agent/edit', { ...agentForm(agent), mode: 'ask', asks_everything: 'on' });
  expect(await everything.json()).toMatchObject({ failure: 'invalid', field: 'asks_everything' });
  expect((await ana.api.agent('demo')).mode).toBe('ask');
});

test.describe('forged answers to Claude Code', () => {
  needsClaude();

  /** What the page would post, and what nobody offered: each is refused, and changes nothing. */
  async function refuses(ana: Person, { row, digest }: Approval, forged: [Record<string, string>, string][]): Promise<void> {
    for (const [more, field] of forged) {
      const answer = await ana.api.post('approval/resolve', { id: row.id, digest, outcome: 'approve', ...more });
      const told = JSON.stringify(more);
      expect(answer.status(), told).toBe(422);
      expect(await answer.json(), told).toMatchObject({ failure: 'invalid', field });
    }
    expect((await ana.api.approval(row.id)).row.status).toBe('pending');
  }
  const waiting = async (ana: Person) => ana.api.approval((await ana.api.waiting())[0].id);

  test('a command', async ({ ana, folder }) => {
    await ask(ana, folder, [[bash(id(), `touch ${folder}/one && echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]);
    await ana.run('Paused');
    const open = await waiting(ana);
    await refuses(ana, open, [
      [{ outcome: 'reject', 'edit[command]': 'id' }, 'edit'],
      [{ outcome: 'reject', 'grants[g0]': 'on' }, 'grants'],
      [{ outcome: 'approve', stop: 'on' }, 'stop'],
      [{ outcome: 'expire' }, 'outcome'],
      [{ 'edit[timeout]': '1' }, 'edit'],
      [{ 'edit[command]': open.editable[0].text }, 'edit'],
      [{ 'edit[command]': 'id\0' }, 'edit'],
      [{ 'edit[input]': '{"command":"id"}' }, 'edit'],
      [{ 'grants[g16]': 'on' }, 'grants'],
      [{ 'grants[Bash(*)]': 'on' }, 'grants'],
      [{ option: 'allow_always' }, 'option'],
    ]);
    expect(lines(join(folder, 'log'))).toEqual([]);
    // Line ends as forms write them, and a name that is no word of ours.
    const edited = await ana.api.post('approval/resolve', {
      id: open.row.id, digest: open.digest, outcome: 'approve', 'edit[command]': `echo one >> ${folder}/log\r\necho two >> ${folder}/log`,
    });
    expect([200, 302, 303]).toContain(edited.status());
    await ana.run('Done');
    expect(lines(join(folder, 'log'))).toEqual(['one', 'two']);
  });

  test('a question', async ({ ana, folder }) => {
    await ask(ana, folder, [[question(id())], [{ text: 'Finished.' }]]);
    await ana.run('Paused');
    await refuses(ana, await waiting(ana), [
      [{}, 'answer'],
      [{ 'picks[q0]': '0' }, 'answer'],
      [{ 'picks[q0]': '7', 'picks[q1c0]': 'on' }, 'answer'],
      [{ 'own[q0]': ' ', 'own[q1]': 'x' }, 'answer'],
      [{ 'picks[q0]': '0', 'picks[q1c0]': 'on', 'edit[input]': '{"questions":[]}' }, 'edit'],
    ]);
  });

  test('a plan', async ({ ana, folder }) => {
    await ask(ana, folder, [[plan(id())], [{ text: 'Finished.' }]], { mode: 'plan' });
    await ana.run('Paused');
    await refuses(ana, await waiting(ana), [
      [{ 'edit[input]': '{"plan":"mine"}' }, 'edit'],
      [{ 'grants[g1]': 'on' }, 'grants'],
    ]);
    await ana.api.edit('claude', { mode: 'default' });
  });
});
