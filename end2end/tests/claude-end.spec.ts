// The real Claude Code while the product around it ends: each test has a product of its own.
import type { Browser } from '@playwright/test';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { bash, id, program, say } from '../fixtures/claude';
import { script } from '../fixtures/endpoint';
import { ADMIN, freshFolder, Product } from '../fixtures/product';
import { working } from '../fixtures/process';
import { expect, lines, needsClaude, NOBODY, test, Person } from '../fixtures/test';

needsClaude();
test.skip(process.platform !== 'linux', 'These tests read /proc.');

/** A product with its first admin signed in, without script, and a folder to work in. */
async function begin(browser: Browser, env: NodeJS.ProcessEnv = {}) {
  const product = await Product.start(env);
  const context = await browser.newContext({ baseURL: product.url, storageState: NOBODY, javaScriptEnabled: false });
  const ana = new Person(await context.newPage(), false);
  await ana.page.goto(product.setup);
  await ana.page.getByLabel('Name').fill(ADMIN.name);
  await ana.page.getByLabel('Password', { exact: true }).fill(ADMIN.password);
  await ana.page.getByLabel('Password again').fill(ADMIN.password);
  await ana.page.getByRole('button', { name: 'Create admin' }).click();
  await ana.page.waitForURL('**/chat');
  await expect.poll(async () => (await ana.api.agents()).some((a) => a.harness === 'claude' && a.worker_linked)).toBe(true);
  const folder = join(product.root, 'work');
  mkdirSync(folder);
  const agent = await ana.api.edit('claude', { folder });
  return { product, context, ana, folder, agent };
}

test('the server is killed while Claude Code waits: the next one hands the decision to the same process', async ({ browser }) => {
  const { product, context, ana, folder, agent } = await begin(browser);
  try {
    await ana.start(agent.name, script('Task', [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]));
    await ana.run('Paused');
    const [{ id: approval }] = await ana.api.waiting();
    const before = program(folder).pid;
    await product.crash();
    await product.serve();
    await ana.go(`/approvals/${approval}`);
    await expect(ana.page.locator('.ask-head')).toContainText('Waiting');
    await ana.approve.click();
    await expect.poll(() => lines(join(folder, 'log')), { timeout: 20_000 }).toEqual(['done']);
    await expect.poll(async () => (await ana.api.approval(approval)).receipt?.delivery).toBe('effect');
    expect(program(folder).pid).toBe(before);
    await context.close();
  } finally {
    await product.end();
  }
});

test('a request that arrives while Postgres is stopped is shown when it is back, once', async ({ browser }) => {
  const { product, context, ana, folder, agent } = await begin(browser);
  try {
    // The model answers when the database is gone.
    let answer = () => {};
    product.endpoint.hold = new Promise((done) => { answer = done; });
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
    }, { timeout: 30_000 }).toBe(1);
    const [{ id: approval }] = await ana.api.waiting();
    await ana.go(`/approvals/${approval}`);
    await ana.approve.click();
    await expect.poll(() => lines(join(folder, 'log')), { timeout: 20_000 }).toEqual(['done']);
    await ana.go(`/chat/${session}`);
    await ana.run('Done');
    await expect(ana.page.getByRole('region', { name: 'Requests' })).toHaveCount(1);
    await context.close();
  } finally {
    await product.end();
  }
});

test('without an account Claude Code says what to run', async ({ browser }) => {
  const { product, context, ana, agent } = await begin(browser, { ANTHROPIC_API_KEY: undefined });
  try {
    await ana.start(agent.name, 'Hello');
    await ana.run('Error', 30_000);
    const told = ana.page.locator('#main').getByText(/is not signed in/).first();
    await expect(told).toBeVisible();
    await expect(told).toContainText('claude auth login');
    expect(product.endpoint.asked).toEqual([]);
    await context.close();
  } finally {
    await product.end();
  }
});

test('a process with nothing to do is ended, and the next message takes the conversation up in another', async ({ browser }) => {
  // A second, for the half hour of a real worker.
  const { product, context, ana, folder, agent } = await begin(browser, { COUNTERSIGN_IDLE_MINUTES: '0.0166' });
  try {
    await ana.start(agent.name, script('Remember the heron', [[{ text: 'Remembered.' }]]));
    await ana.run('Done');
    await expect.poll(() => working('claude', folder).length, { timeout: 20_000 }).toBe(0);
    // A request that waits is no idleness, however long.
    await say(ana, script('Go on', [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Went on.' }]]));
    await ana.run('Paused', 20_000);
    const { pid } = program(folder);
    await ana.page.waitForTimeout(3_000);
    expect(program(folder).pid).toBe(pid);
    const [{ id: approval }] = await ana.api.waiting();
    await ana.go(`/approvals/${approval}`);
    await ana.approve.click();
    await expect.poll(() => lines(join(folder, 'log')), { timeout: 20_000 }).toEqual(['done']);
    const heard = product.endpoint.about('Remember the heron');
    expect(new Set(heard.map((a) => a.session)).size).toBe(1);
    await context.close();
  } finally {
    await product.end();
  }
});

test('a Claude Code that is too old is shown with what to do, and not started', async ({ browser }) => {
  const old = join(freshFolder('cs-old'), 'claude');
  writeFileSync(old, '#!/bin/sh\n[ "$1" = --version ] && echo "2.1.197 (Claude Code)"\n', { mode: 0o755 });
  const { product, context, ana, agent } = await begin(browser, { CLAUDE_BIN: old });
  try {
    await ana.go('/agents');
    await expect(ana.page.locator('#main')).toContainText('2.1.268 or newer');
    await ana.go('/chat');
    // Nobody can write to it either.
    await expect(ana.page.getByRole('option', { name: agent.name })).toHaveCount(0);
    expect(working('claude', product.root)).toEqual([]);
    await context.close();
  } finally {
    await product.end();
  }
});
