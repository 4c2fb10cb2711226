// The real Claude Code while the product around it ends: each test has a product of its own.
import type { Browser } from '@playwright/test';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { bash, id, program, say } from '../fixtures/claude';
import { script } from '../fixtures/endpoint';
import { freshFolder, type Product } from '../fixtures/product';
import { working } from '../fixtures/process';
import { expect, firstAdmin, lines, needsClaude, needsProc, Person, test } from '../fixtures/test';

needsClaude();
needsProc();

/** The first admin, without script, and a folder to work in. */
async function begin(browser: Browser, product: Product) {
  const state = await firstAdmin(browser, product);
  const context = await browser.newContext({ baseURL: product.url, storageState: state, javaScriptEnabled: false });
  const ana = new Person(await context.newPage(), false);
  await expect.poll(async () => (await ana.api.agents()).some((a) => a.harness === 'claude' && a.worker_linked)).toBe(true);
  const folder = join(product.root, 'work');
  mkdirSync(folder);
  return { ana, folder, agent: await ana.api.edit('claude', { folder }) };
}

test('the server is killed while Claude Code waits: the next one hands the decision to the same process', async ({ browser, own }) => {
  const product = await own();
  const { ana, folder, agent } = await begin(browser, product);
  await ana.start(agent.name, script('Task', [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]));
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  const before = program(folder).pid;
  await product.crash();
  await product.serve();
  await ana.go(`/approvals/${approval}`);
  await expect(ana.page.locator('.ask-head')).toContainText('Waiting');
  await ana.approve.click();
  await expect.poll(() => lines(join(folder, 'log'))).toEqual(['done']);
  await expect.poll(async () => (await ana.api.approval(approval)).receipt?.delivery).toBe('effect');
  expect(program(folder).pid).toBe(before);
});

test('a request that arrives while Postgres is stopped is shown when it is back, once', async ({ browser, own }) => {
  const product = await own();
  const { ana, folder, agent } = await begin(browser, product);
  // The model answers when the database is gone.
  let answer = () => {};
  const gone = new Promise<void>((done) => { answer = done; });
  product.endpoint.hold = () => gone;
  const session = await ana.start(agent.name, script('Task', [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]));
  await expect.poll(() => product.endpoint.asked.length).toBe(1);
  await product.stopPostgres();
  answer();
  // Claude Code asks its worker; the worker has nobody to tell yet.
  await expect.poll(() => product.workerFiles(session).some(({ text }) => text.includes('can_use_tool'))).toBe(true);
  expect((await ana.page.request.get('/api/approval/list?tab=waiting')).status()).toBeGreaterThanOrEqual(500);
  expect(lines(join(folder, 'log'))).toEqual([]);
  product.startPostgres();
  await expect.poll(async () => {
    const answer = await ana.page.request.get('/api/approval/list?tab=waiting');
    return answer.ok() ? (await answer.json() as { rows: unknown[] }).rows.length : 0;
  }).toBe(1);
  const [{ id: approval }] = await ana.api.waiting();
  await ana.go(`/approvals/${approval}`);
  await ana.approve.click();
  await expect.poll(() => lines(join(folder, 'log'))).toEqual(['done']);
  await ana.go(`/chat/${session}`);
  await ana.run('Done');
  await expect(ana.page.getByRole('region', { name: 'Requests' })).toHaveCount(1);
});

test('without an account Claude Code says what to run', async ({ browser, own }) => {
  const product = await own({ ANTHROPIC_API_KEY: undefined });
  const { ana, agent } = await begin(browser, product);
  await ana.start(agent.name, 'Hello');
  await ana.run('Error');
  const told = ana.page.locator('#main').getByText(/is not signed in/).first();
  await expect(told).toBeVisible();
  await expect(told).toContainText('claude auth login');
  expect(product.endpoint.asked).toEqual([]);
});

test('a process with nothing to do is ended, and the next message takes the conversation up in another', async ({ browser, own }) => {
  // A second, for the half hour of a real worker.
  const product = await own({ COUNTERSIGN_IDLE_MINUTES: '0.0166' });
  const { ana, folder, agent } = await begin(browser, product);
  await ana.start(agent.name, script('Remember the heron', [[{ text: 'Remembered.' }]]));
  await ana.run('Done');
  await expect.poll(() => working('claude', folder).length).toBe(0);
  // A request that waits is no idleness, however long.
  await say(ana, script('Go on', [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Went on.' }]]));
  await ana.run('Paused');
  const { pid } = program(folder);
  await ana.page.waitForTimeout(3_000);
  expect(program(folder).pid).toBe(pid);
  const [{ id: approval }] = await ana.api.waiting();
  await ana.go(`/approvals/${approval}`);
  await ana.approve.click();
  await expect.poll(() => lines(join(folder, 'log'))).toEqual(['done']);
  const heard = product.endpoint.about('Remember the heron');
  expect(new Set(heard.map((a) => a.session)).size).toBe(1);
});

test('a Claude Code that is too old is shown with what to do, and not started', async ({ browser, own }) => {
  const outside = freshFolder('cs-old');
  const [old, started] = [join(outside, 'claude'), join(outside, 'started')];
  writeFileSync(old, `#!/bin/sh\necho "$*" >> ${started}\n[ "$1" = --version ] && echo "2.1.197 (Claude Code)"\n`, { mode: 0o755 });
  try {
    const product = await own({ CLAUDE_BIN: old });
    const { ana, agent } = await begin(browser, product);
    const words = 'Claude Code 2.1.268 or newer is needed. Update it and start the worker again.';
    await ana.go('/agents');
    await expect(ana.page.locator('#main')).toContainText(words);
    // In Chat too, and a message that is written to it all the same gets the words for an answer.
    await ana.go('/chat');
    await expect(ana.page.locator('#main')).toContainText(words);
    const choice = ana.page.getByRole('combobox', { name: 'Agent' });
    await expect(choice.locator('option', { hasText: agent.name })).toHaveText(`${agent.name} (cannot be used now)`);
    await expect(choice).not.toHaveValue(agent.id);
    const written = await ana.api.post('session/start', { agent: agent.id, prompt: 'Hello' });
    await ana.go(`/chat/${await written.json()}`);
    await ana.run('Error');
    await expect(ana.page.locator('#main .turns')).toContainText(words);
    expect(new Set(lines(started))).toEqual(new Set(['--version']));
  } finally {
    rmSync(outside, { recursive: true, force: true });
  }
});
