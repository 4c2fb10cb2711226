// The way between page and server: a socket that is cut, one that died without a word, a TLS
// proxy, and many pages at once.
import type { Page } from '@playwright/test';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Product } from '../fixtures/product';
import { Proxy } from '../fixtures/proxy';
import { expect, firstAdmin, lines, Person, test as base } from '../fixtures/test';

const test = base.extend<object, { front: Proxy }>({
  front: [async ({}, use) => {
    const front = await Proxy.start();
    await use(front);
    await front.stop();
  }, { scope: 'worker' }],
  product: [async ({ front }, use) => {
    const product = await Product.start({ PUBLIC_URL: front.url });
    front.to = product.listening;
    await use(product);
    await product.end();
  }, { scope: 'worker', timeout: 120_000 }],
});

/** A page that has not been loaded again since this was called keeps a word of it. */
const mark = (page: Page) => page.evaluate(() => { (window as { kept?: boolean }).kept = true; });
const isMarked = (page: Page) => page.evaluate(() => (window as { kept?: boolean }).kept === true);

const live = (page: Page) => page.locator('.live').first();
const row = (page: Page, id: string) => page.locator(`#main a[href^="/approvals/${id}"]`);

/** The demo agent asks for one line, by another way than the page; the request's id. */
async function request(ana: Person, folder: string): Promise<string> {
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  expect((await ana.api.post('session/start', { agent: agent.id, prompt: 'append notes.txt: once' })).status()).toBeLessThan(400);
  await expect.poll(async () => (await ana.api.waiting()).length).toBe(1);
  return (await ana.api.waiting())[0].id;
}

test('a page whose socket was cut shows by itself what came meanwhile', async ({ ana, adminState, expectError, folder, open, front }) => {
  const { page } = ana;
  expectError(/WebSocket connection/);
  await ana.go('/approvals');
  await expect(live(page)).toHaveText('Live');
  await mark(page);
  const before = front.opened;
  front.refuses = true;
  front.cut();
  await expect(live(page)).toContainText('Reconnecting.');
  const id = await request(ana, folder);
  await expect(row(page, id)).toHaveCount(0);
  front.refuses = false;
  // Between two tries of a page are 20 seconds at most.
  await expect(row(page, id)).toBeVisible({ timeout: 40_000 });
  await expect(live(page)).toHaveText('Live');
  expect(front.opened).toBe(before + 1);
  expect(await isMarked(page)).toBe(true);
  // The same on a page that is opened late, and on one that is loaded again.
  const late = await open(adminState);
  await late.go('/approvals');
  await expect(row(late.page, id)).toBeVisible();
  await ana.reload();
  await expect(row(page, id)).toBeVisible();
  // What the page shows is what it decides.
  await ana.go(`/approvals/${id}`);
  await ana.approve.click();
  await ana.sees(page.locator('.receipt .done', { hasText: 'Effect' }));
  expect(lines(join(folder, 'notes.txt'))).toEqual(['once']);
});

test('a page notices a socket that died without a word, and shows what came meanwhile', async ({ ana, folder, front }) => {
  test.setTimeout(180_000);
  const { page } = ana;
  await ana.go('/approvals');
  await expect(live(page)).toHaveText('Live');
  await mark(page);
  const before = front.opened;
  front.forget();
  const id = await request(ana, folder);
  await expect(row(page, id)).toHaveCount(0);
  expect(front.opened, 'it was noticed before anything could be').toBe(before);
  // 45 seconds without a frame, looked at every 5, and a moment to connect again.
  await expect.poll(() => front.opened, { timeout: 70_000 }).toBe(before + 1);
  await expect(row(page, id)).toBeVisible();
  await expect(live(page)).toHaveText('Live');
  expect(await isMarked(page)).toBe(true);
});

test('twenty pages hear of one request and of its decision', async ({ ana, context, folder, front }) => {
  test.setTimeout(180_000);
  const before = front.opened;
  const tabs = [ana, ...await Promise.all(Array.from({ length: 19 }, async () => new Person(await context.newPage(), true)))];
  for (const tab of tabs) {
    await tab.go('/approvals');
    await mark(tab.page);
  }
  await expect.poll(() => front.opened, { timeout: 60_000 }).toBe(before + tabs.length);
  const id = await request(ana, folder);
  for (const { page } of tabs) await expect(row(page, id)).toBeVisible({ timeout: 60_000 });
  for (const { page } of tabs) await expect(page).toHaveTitle(/^\(1\) /, { timeout: 60_000 });
  const { digest } = await ana.api.approval(id);
  expect((await ana.api.resolve(id, digest, 'approve')).status()).toBeLessThan(400);
  for (const { page } of tabs) await expect(row(page, id)).toHaveCount(0, { timeout: 60_000 });
  for (const { page } of tabs) expect(await isMarked(page)).toBe(true);
  expect(front.opened, 'no page lost its socket').toBe(before + tabs.length);
  await expect.poll(() => lines(join(folder, 'notes.txt'))).toEqual(['once']);
});

test('behind a TLS proxy a page is live, and a decision made on it is applied', async ({ browser, own }) => {
  const folder = mkdtempSync(join(tmpdir(), 'cs-tls-'));
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  const made = spawnSync('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '1',
    '-subj', '/CN=127.0.0.1', '-keyout', key, '-out', cert,
  ]);
  const certificate = made.status === 0 ? { key: readFileSync(key), cert: readFileSync(cert) } : undefined;
  rmSync(folder, { recursive: true, force: true });
  if (!certificate) console.log('SKIPPED: openssl makes no certificate here, so a TLS proxy was not tested.');
  test.skip(!certificate, 'openssl makes no certificate here.');
  const proxy = await Proxy.start(certificate);
  try {
    const product = await own({ PUBLIC_URL: proxy.url });
    proxy.to = product.listening;
    const state = await firstAdmin(browser, product, { ignoreHTTPSErrors: true });
    expect(state.cookies.map(({ name, secure, httpOnly }) => ({ name, secure, httpOnly })))
      .toEqual([{ name: '__Host-countersign', secure: true, httpOnly: true }]);
    const context = await browser.newContext({ baseURL: product.url, storageState: state, ignoreHTTPSErrors: true, locale: 'en-GB' });
    const ana = new Person(await context.newPage(), true);
    await ana.go('/approvals');
    await expect(live(ana.page)).toHaveText('Live');
    await mark(ana.page);
    await expect.poll(async () => (await ana.api.agents()).some((a) => a.harness === 'demo' && a.worker_linked)).toBe(true);
    const work = join(product.root, 'work');
    mkdirSync(work);
    const id = await request(ana, work);
    await expect(row(ana.page, id)).toBeVisible();
    expect(await isMarked(ana.page)).toBe(true);
    await ana.go(`/approvals/${id}`);
    await ana.approve.click();
    await ana.sees(ana.page.locator('.receipt .done', { hasText: 'Effect' }));
    expect(lines(join(work, 'notes.txt'))).toEqual(['once']);
    await context.close();
  } finally {
    await proxy.stop();
  }
});
