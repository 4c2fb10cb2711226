// The end of `serve`, and a second start: an instance of its own.
import type { Browser } from '@playwright/test';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import type { Product } from '../fixtures/product';
import { belonging, working } from '../fixtures/process';
import { Api, expect, firstAdmin, lines, needsProc, test } from '../fixtures/test';

/** The first admin, without script, asks the demo agent for one line. */
async function pause(browser: Browser, product: Product) {
  const state = await firstAdmin(browser, product);
  const context = await browser.newContext({ baseURL: product.url, storageState: state, javaScriptEnabled: false });
  const page = await context.newPage();
  const api = new Api(context);
  await expect.poll(async () => (await api.agents()).some((a) => a.harness === 'demo' && a.worker_linked)).toBe(true);
  const folder = join(product.root, 'work');
  mkdirSync(folder);
  const agent = await api.edit('demo', { folder });
  await api.post('session/start', { agent: agent.id, prompt: 'append notes.txt: one line' });
  await expect.poll(async () => (await api.waiting()).length).toBe(1);
  const [{ id }] = await api.waiting();
  return { context, page, api, id, digest: (await api.approval(id)).digest, file: join(folder, 'notes.txt'), folder };
}

needsProc();

test('SIGTERM while paused leaves nothing running, and the data stay', async ({ browser, own }) => {
  const product = await own();
  const { context, page, api, id, digest, file } = await pause(browser, product);
  const names = new Set(belonging(product.root).map((p) => p.program));
  expect([...names]).toEqual(expect.arrayContaining(['countersign', 'countersign-worker', 'countersign-demo-agent', 'postgres']));

  expect(await product.stop()).toBe(0);
  expect(belonging(product.root).map((p) => `${p.program} ${p.args.join(' ')}`)).toEqual([]);

  // Started again: still signed in, the request closed with its execution.
  await product.serve();
  await page.goto('/approvals?tab=cancelled');
  await expect(page.locator(`a[href="/approvals/${id}"]`)).toBeVisible();
  const late = await api.resolve(id, digest, 'approve');
  expect(late.status()).toBe(409);
  expect(lines(file)).toEqual([]);
  await context.close();
});

test('the server is killed while paused: the next one hands the decision to the same process', async ({ browser, own }) => {
  const product = await own();
  const { context, page, api, id, file, folder } = await pause(browser, product);
  const [before] = working('countersign-demo-agent', folder);
  await product.crash();
  // Its worker goes with it, the harness stays with its holder.
  await expect.poll(() => belonging(product.root).filter((p) => p.args[1] === 'run')).toEqual([]);
  expect(working('countersign-demo-agent', folder)).toHaveLength(1);

  await product.serve();
  await page.goto(`/approvals/${id}`);
  await expect(page.locator('.ask-head')).toContainText('Waiting');
  await page.getByRole('button', { name: 'Approve', exact: true }).click();
  await expect.poll(() => lines(file)).toEqual(['one line']);
  await expect.poll(async () => (await api.approval(id)).receipt?.delivery).toBe('effect');
  expect(working('countersign-demo-agent', folder).map((p) => p.pid)).toEqual([before.pid]);
  await context.close();
});
