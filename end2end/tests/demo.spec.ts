// The demo agent's way, from a message to its effect: with script, without, on a phone.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { working } from '../fixtures/process';
import { expect, lines, test, type Agent, type Person } from '../fixtures/test';

const DEMO = 'countersign-demo-agent';

/** Points the demo agent at the test's own folder; its name. */
async function demo(ana: Person, folder: string, change: Partial<Agent> = {}): Promise<string> {
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false, ...change });
  return agent.name;
}

test('a request pauses the run, shows in Chat and Approvals, and approved goes on in the same execution', async ({ ana, folder }, info) => {
  const { page } = ana;
  const session = await ana.start(await demo(ana, folder), 'append notes.txt: Buy milk');
  await ana.run('Paused');
  await expect(ana.requests).toContainText('Buy milk');
  await expect(ana.requests).toContainText('1 request open');
  await expect(ana.approve).toBeVisible();
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
  const before = working(DEMO, folder).map((p) => p.pid);
  if (process.platform === 'linux') expect(before).toHaveLength(1);

  // The same request in the inbox, counted in the navigation and in the tab's title.
  await expect(page).toHaveTitle(/^\(1\) append notes\.txt: Buy milk · Countersign$/);
  await ana.go('/approvals');
  const nav = page.getByRole('navigation', { name: info.project.name === 'phone' ? 'Places' : 'Main' });
  await expect(nav.getByRole('link', { name: /Approvals/ })).toContainText('1 waiting');
  await expect(page).toHaveTitle('(1) Approvals · Countersign');
  await page.locator('#main .rows .row').filter({ hasText: 'notes.txt' }).click();
  await page.waitForURL(/\/approvals\/[0-9a-f-]{36}$/);
  await expect(page.locator('.action')).toContainText('Buy milk');
  await expect(page.getByText('Waiting', { exact: true })).toBeVisible();

  // Decided in Chat.
  await ana.go(`/chat/${session}`);
  await ana.approve.click();
  await ana.run('Done');
  expect(lines(join(folder, 'notes.txt'))).toEqual(['Buy milk']);
  await ana.sees(page.locator('.receipt-line', { hasText: 'Effect' }));
  await expect(page.getByText('Approved by Ana Ruka')).toBeVisible();
  await expect(ana.approve).toBeHidden();
  // The process that asked is the one that went on, and it got one prompt.
  expect(working(DEMO, folder).map((p) => p.pid)).toEqual(before);
  await expect(page.getByRole('article', { name: 'Message' })).toHaveCount(1);
  await expect(page).toHaveTitle(/^append notes/);
});

test('a request is decided on its own page', async ({ ana, folder }) => {
  const { page } = ana;
  await ana.start(await demo(ana, folder), 'run: echo deployed >> deploy.log');
  await ana.run('Paused');
  await page.getByRole('link', { name: 'Details' }).click();
  await page.waitForURL(/\/approvals\//);
  await ana.ready();
  await expect(page.locator('.action pre')).toContainText('echo deployed >> deploy.log');
  await expect(page.getByText('End of command. 1 line, 27 characters.')).toBeVisible();
  await expect(page.getByText('files it reads or runs may still change before it runs')).toBeVisible();
  await ana.approve.click();
  await ana.sees(page.locator('.receipt .done', { hasText: 'Effect' }));
  await expect(page.locator('.ask-head')).toContainText('Approved');
  expect(lines(join(folder, 'deploy.log'))).toEqual(['deployed']);
});

test('a script that is swapped while its call waits: the call stays what was approved, and the card says what it does not cover', async ({ ana, folder }) => {
  const { page } = ana;
  const job = join(folder, 'job.sh');
  writeFileSync(job, 'echo first >> job.log\n');
  await ana.start(await demo(ana, folder), 'run: sh ./job.sh');
  await ana.run('Paused');
  const [{ id }] = await ana.api.waiting();
  const { digest } = await ana.api.approval(id);
  const told = page.getByText('files it reads or runs may still change before it runs');
  await expect(told).toBeVisible();
  await ana.go(`/approvals/${id}`);
  await expect(told).toBeVisible();
  writeFileSync(job, 'echo swapped >> job.log\n');
  // The text was the call, not the file: it is the same request still.
  await ana.reload();
  await expect(page.locator('.action pre')).toContainText('sh ./job.sh');
  expect((await ana.api.approval(id)).digest).toBe(digest);
  await ana.approve.click();
  await ana.sees(page.locator('.receipt .done', { hasText: 'Effect' }));
  await expect(page.locator('.action pre')).toContainText('sh ./job.sh');
  expect(lines(join(folder, 'job.log'))).toEqual(['swapped']);
});

test('a refusal with words runs nothing and keeps the words', async ({ ana, folder }) => {
  const { page } = ana;
  await ana.start(await demo(ana, folder), 'append notes.txt: never this');
  await ana.run('Paused');
  await ana.reject('Not on a Friday.');
  await ana.run('Done');
  await ana.sees(page.getByText('Rejected by Ana Ruka'));
  await expect(page.getByText('“Not on a Friday.”')).toBeVisible();
  await page.getByRole('link', { name: 'Details' }).click();
  await page.waitForURL(/\/approvals\//);
  await ana.sees(page.locator('.receipt .done', { hasText: 'Refusal seen' }));
  await expect(page.locator('.history')).toContainText('Ana Ruka rejected it. “Not on a Friday.”');
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
});

test('reject and stop ends the run', async ({ ana, folder }) => {
  await ana.start(await demo(ana, folder), 'append notes.txt: one\nappend notes.txt: two');
  await ana.run('Paused');
  await ana.page.getByRole('button', { name: 'Reject and stop' }).click();
  await ana.sees(ana.page.getByText('Rejected by Ana Ruka'));
  await ana.run('Cancelled');
  await expect(ana.requests).toHaveCount(1);
  // No words were written, so none are said to be hers.
  await ana.page.getByRole('link', { name: 'Details' }).click();
  await ana.page.waitForURL(/\/approvals\//);
  await ana.sees(ana.page.locator('.history', { hasText: 'Ana Ruka rejected it and stopped the run.' }));
  await expect(ana.page.locator('#main')).not.toContainText('“');
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
});

test('a paused run can be cancelled', async ({ ana, folder }) => {
  const { page } = ana;
  await ana.start(await demo(ana, folder), 'append notes.txt: never this');
  await ana.run('Paused');
  await page.getByRole('button', { name: 'Cancel run' }).click();
  await ana.run('Cancelled');
  await expect(page.getByText('Cancelled by Ana Ruka.')).toBeVisible();
  await ana.sees(page.getByText('The run was cancelled.'));
  await expect(ana.approve).toBeHidden();
  // The worker confirms: nothing is left to be told.
  await expect(async () => {
    if (!ana.js) await page.reload();
    await expect(page.getByText('Stop not yet confirmed')).toBeHidden({ timeout: 250 });
  }).toPass({ timeout: 10_000 });
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
  // The session goes on with the next message.
  await page.getByRole('textbox', { name: /Message/ }).fill('say still here');
  await page.getByRole('button', { name: 'Send message' }).click();
  await ana.sees(page.locator('.say', { hasText: /^still here\s*$/ }));
});

test('a reload at any moment shows the same', async ({ ana, folder }) => {
  const { page } = ana;
  const seen = async () => (await page.getByRole('region', { name: 'Transcript' }).innerText())
    // What moves with the clock.
    .replace(/\d+:\d\d(:\d\d)? left/g, 'left').replace(/\d\d:\d\d(:\d\d)?( UTC)?/g, 'time').replace(/\s+/g, ' ');
  await ana.start(await demo(ana, folder), 'append notes.txt: once');
  await ana.run('Paused');
  await ana.reload();
  const paused = await seen();
  await ana.reload();
  expect(await seen()).toBe(paused);
  await ana.approve.click();
  await ana.run('Done');
  await ana.sees(page.locator('.receipt-line', { hasText: 'Effect' }));
  await ana.reload();
  const done = await seen();
  await ana.reload();
  expect(await seen()).toBe(done);
  await expect(ana.requests).toHaveCount(1);
  expect(lines(join(folder, 'notes.txt'))).toEqual(['once']);
});

test('an agent set to wait takes the decision on Continue run only', async ({ ana, folder }) => {
  const { page } = ana;
  await ana.start(await demo(ana, folder, { waits_for_continue: true }), 'append notes.txt: after continue');
  await ana.run('Paused');
  await expect(page.getByRole('button', { name: 'Continue run' })).toHaveAttribute('aria-disabled', 'true');
  await ana.approve.click();
  await ana.sees(page.getByText('Continue run hands 1 decision to the same run.'));
  await ana.reload();
  await expect(page.getByText('Continue run hands 1 decision to the same run.')).toBeVisible();
  await ana.run('Paused');
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
  await page.getByRole('button', { name: 'Continue run' }).click();
  await ana.run('Done');
  expect(lines(join(folder, 'notes.txt'))).toEqual(['after continue']);
});

test('a request nobody answers expires, and is nobody’s refusal', async ({ ana, folder }) => {
  const { page } = ana;
  await ana.start(await demo(ana, folder, { hitl_timeout_s: 10 }), 'append notes.txt: never this');
  await ana.run('Paused');
  const [{ id }] = await ana.api.waiting();
  await ana.run('Done');
  await ana.go(`/approvals/${id}`);
  await expect(page.locator('.ask-head')).toContainText('Expired');
  await expect(page.getByText('Nobody answered within 10 s.')).toBeVisible();
  await expect(page.getByText('That is not a rejection by a person.')).toBeVisible();
  await expect(page.locator('#main')).not.toContainText('Rejected');
  await expect(page.locator('.history')).not.toContainText('Ana Ruka');
  await ana.go('/approvals?tab=expired');
  await expect(page.locator(`a[href="/approvals/${id}"]`)).toContainText('Expired');
  const { receipt, row } = await ana.api.approval(id);
  expect([row.status, row.decided_by, receipt?.by]).toEqual(['expired', null, null]);
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
});

test('a request can be given more time', async ({ ana, folder }) => {
  const { page } = ana;
  await ana.start(await demo(ana, folder), 'append notes.txt: later');
  await ana.run('Paused');
  await page.getByRole('link', { name: 'Details' }).click();
  await page.waitForURL(/\/approvals\//);
  await ana.ready();
  await expect(page.locator('.clock')).toContainText(/^1[45]:\d\d left$/);
  await page.getByRole('button', { name: 'Extend' }).click();
  await ana.sees(page.locator('.clock', { hasText: /^(29|30):\d\d left$/ }));
  await expect(page.locator('.history')).toContainText('Ana Ruka');
});

test('the next message waits while a run is live', async ({ ana, folder }) => {
  const { page } = ana;
  await ana.start(await demo(ana, folder), 'append notes.txt: first');
  await ana.run('Paused');
  await page.getByRole('textbox', { name: /Message/ }).fill('append notes.txt: second');
  await page.getByRole('button', { name: 'Send message' }).click();
  await ana.sees(page.getByText('Queued'));
  await ana.approve.click();
  await ana.sees(page.locator('.action', { hasText: 'second' }));
  expect(lines(join(folder, 'notes.txt'))).toEqual(['first']);
  await ana.approve.click();
  await ana.run('Done');
  expect(lines(join(folder, 'notes.txt'))).toEqual(['first', 'second']);
});

test('several requests at once are answered in any order', async ({ ana, folder }) => {
  const { page } = ana;
  await ana.start(await demo(ana, folder), 'both: append a.txt: A && append b.txt: B');
  await ana.sees(ana.approve.nth(1));
  await expect(page).toHaveTitle(/^\(2\) /);
  await ana.sees(ana.requests.getByText('1 request open, 1 more above or below').first());
  const card = (file: string) => ana.requests.locator('section').filter({ hasText: file });
  await card('b.txt').getByRole('button', { name: 'Approve', exact: true }).click();
  await expect.poll(() => lines(join(folder, 'b.txt'))).toEqual(['B']);
  expect(lines(join(folder, 'a.txt'))).toEqual([]);
  await ana.run('Paused');
  await expect(ana.approve).toHaveCount(1);
  await ana.approve.click();
  await ana.run('Done');
  expect([lines(join(folder, 'a.txt')), lines(join(folder, 'b.txt'))]).toEqual([['A'], ['B']]);
});
