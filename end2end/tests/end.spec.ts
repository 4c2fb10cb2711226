// The end of `serve`, and a second start: an instance of its own.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { ADMIN, Product } from '../fixtures/product';
import { belonging } from '../fixtures/process';
import { expect, lines, NOBODY, test, Api } from '../fixtures/test';

test('SIGTERM while paused leaves nothing running, and the data stay', async ({ browser }) => {
  test.skip(process.platform !== 'linux', 'This test reads /proc.');
  const product = await Product.start();
  try {
    const context = await browser.newContext({ baseURL: product.url, storageState: NOBODY, javaScriptEnabled: false });
    const page = await context.newPage();
    const api = new Api(context);
    await page.goto(product.setup);
    await page.getByLabel('Name').fill(ADMIN.name);
    await page.getByLabel('Password', { exact: true }).fill(ADMIN.password);
    await page.getByLabel('Password again').fill(ADMIN.password);
    await page.getByRole('button', { name: 'Create admin' }).click();
    await page.waitForURL('**/chat');
    await expect.poll(async () => (await api.agents()).some((a) => a.harness === 'demo' && a.worker_linked)).toBe(true);
    const folder = join(product.root, 'work');
    mkdirSync(folder);
    const agent = await api.edit('demo', { folder });
    await api.post('session/start', { agent: agent.id, prompt: 'append notes.txt: never this' });
    await expect.poll(async () => (await api.waiting()).length).toBe(1);
    const [{ id }] = await api.waiting();
    const { digest } = await api.approval(id);
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
    expect(lines(join(folder, 'notes.txt'))).toEqual([]);
    await context.close();
  } finally {
    await product.end();
  }
});
