// People: who may do what, who was first, and how an account ends.
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';

import { ADMIN } from '../fixtures/product';
import { expect, lines, NOBODY, test, type Person } from '../fixtures/test';

const name = (first: string) => `${first} ${randomUUID().slice(0, 8)}`;

async function pause(ana: Person, folder: string, options?: { isPrivate?: boolean }) {
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  const session = await ana.start(agent.name, 'append notes.txt: once', options);
  await ana.run('Paused');
  const row = (await ana.api.waiting()).find((r) => r.session === session);
  const approval = await ana.api.approval(row!.id);
  return { session, id: approval.row.id, digest: approval.digest, run: approval.run };
}

test('the second of two people learns who was first', async ({ ana, add, folder, expectError }) => {
  const tomas = await add(name('Tomas'), 'approver');
  const { id } = await pause(ana, folder);
  // A page that hears of nothing: the decision was made under its reader's eyes.
  await tomas.page.routeWebSocket(/\/live$/, () => {});
  await tomas.go(`/approvals/${id}`);
  await expect(tomas.approve).toBeVisible();
  await ana.approve.click();
  await ana.run('Done');
  expectError(/409 \(Conflict\)/);
  await tomas.page.getByRole('button', { name: 'Reject and stop' }).click();
  await expect(tomas.page.getByRole('alert')).toContainText('Ana Ruka approved this first. Your decision was not sent.');
  await expect(tomas.page.locator('.ask-head')).toContainText('Approved');
  await expect(tomas.approve).toBeHidden();
  expect(lines(join(folder, 'notes.txt'))).toEqual(['once']);
});

test('without script too, the second of two people learns who was first', async ({ ana, add, folder }) => {
  const tomas = await add(name('Tomas'), 'approver', { javaScriptEnabled: false });
  const { id, session } = await pause(ana, folder);
  await tomas.go(`/approvals/${id}`);
  await expect(tomas.approve).toBeVisible();
  await ana.reject('Not this one.');
  await ana.run('Done');
  await tomas.approve.click();
  await expect(tomas.page.getByRole('alert')).toContainText('Ana Ruka rejected this first. Your decision was not sent.');
  await expect(tomas.page.locator('.ask-head')).toContainText('Rejected');
  // The message belongs to that page only.
  await tomas.go(`/chat/${session}`);
  await expect(tomas.page.getByRole('alert')).toHaveCount(0);
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
});

test('a decision shows in another browser by itself', async ({ ana, add, folder }) => {
  const tomas = await add(name('Tomas'), 'approver');
  await tomas.go('/approvals');
  await expect(tomas.page.locator('.live')).toContainText('Live');
  const { id } = await pause(ana, folder);
  const row = tomas.page.locator(`a[href="/approvals/${id}"]`);
  await expect(row).toBeVisible();
  await expect(tomas.page.getByRole('status')).toContainText('New request');
  await ana.approve.click();
  await expect(row).toBeHidden();
  await expect(tomas.page).toHaveTitle('Approvals · Countersign');
});

test('a viewer reads and cannot decide, on the page or past it', async ({ ana, add, folder }) => {
  const vera = await add(name('Vera'), 'viewer');
  const { id, digest, session, run } = await pause(ana, folder);
  await vera.go(`/approvals/${id}`);
  await expect(vera.page.locator('.action')).toContainText('once');
  await expect(vera.page.getByText('You can read this, not decide it.')).toBeVisible();
  for (const button of ['Approve', 'Reject…', 'Reject and stop', 'Extend']) {
    await expect(vera.page.getByRole('button', { name: button })).toHaveCount(0);
  }
  await vera.go(`/chat/${session}`);
  await expect(vera.approve).toHaveCount(0);
  await expect(vera.page.getByRole('button', { name: 'Cancel run' })).toHaveCount(0);
  await expect(vera.page.getByText('You can read this session, not write in it.')).toBeVisible();
  for (const answer of [
    await vera.api.resolve(id, digest, 'approve'),
    await vera.api.post('approval/extend', { id }),
    await vera.api.post('run/cancel', { run }),
    await vera.api.post('session/prompt', { session, prompt: 'append notes.txt: forged' }),
    await vera.api.post('user/add', { name: name('Eve'), role: 'admin' }),
    await vera.api.post('worker/create', { name: 'eve' }),
  ]) {
    expect(answer.status(), answer.url()).toBe(403);
  }
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
  await ana.run('Paused');
});

test('a decision for another action than the one shown is refused', async ({ ana, folder }) => {
  const { id, digest } = await pause(ana, folder);
  const other = digest.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
  const answer = await ana.api.resolve(id, other, 'approve');
  expect(answer.status()).toBe(409);
  expect(await answer.text()).toContain('not the one that was shown');
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
});

test('another person’s private session is not there', async ({ ana, add, folder }) => {
  // The owner is no admin; whom it is hidden from is none either.
  const owner = await add(name('Olga'), 'approver');
  const other = await add(name('Tomas'), 'approver');
  await ana.api.edit('demo', { folder });
  const session = await owner.start((await ana.api.agent('demo')).name, 'append notes.txt: private', { isPrivate: true });
  await owner.run('Paused');
  const [{ id }] = await owner.api.waiting();
  const { digest } = await owner.api.approval(id);
  const told = [];
  for (const path of [`/chat/${session}`, `/approvals/${id}`]) {
    const answer = await other.page.request.get(path);
    told.push(answer.status());
    expect(await answer.text()).toMatch(/There is no such (session|request), or it is not yours to see\./);
  }
  expect(told).toEqual([404, 404]);
  expect((await other.api.resolve(id, digest, 'approve')).status()).toBe(404);
  expect((await other.api.post('session/prompt', { session, prompt: 'hello' })).status()).toBe(404);
  expect((await other.api.waiting()).map((row) => row.id)).not.toContain(id);
  // Admins see it, and the owner decides it.
  await ana.go(`/approvals/${id}`);
  await expect(ana.approve).toBeVisible();
  await owner.approve.click();
  await owner.run('Done');
  expect(lines(join(folder, 'notes.txt'))).toEqual(['private']);
});

test('an admin adds a person, changes their role and disables them', async ({ ana, open, product, expectError }) => {
  const { page } = ana;
  const who = name('Mira');
  await ana.go('/users');
  await page.getByRole('form', { name: 'Add a person' }).getByLabel('Name').fill(who);
  await page.getByRole('form', { name: 'Add a person' }).getByLabel('Role').selectOption('viewer');
  await page.getByRole('button', { name: 'Add person' }).click();
  const made = page.getByRole('region', { name: 'New link' });
  await expect(made).toContainText(`Link for ${who}`);
  const link = (await made.locator('pre').innerText()).trim();
  expect(link).toMatch(new RegExp(`^${product.url}/link/`));
  const row = page.getByRole('row').filter({ hasText: who });
  await expect(row).toContainText('Link not used yet');

  const mira = await open(NOBODY);
  await mira.page.goto(link);
  await mira.page.getByLabel('Password', { exact: true }).fill('a long enough one');
  await mira.page.getByLabel('Password again').fill('another long one');
  await mira.page.getByRole('button', { name: 'Set password' }).click();
  await expect(mira.page.getByText('The two passwords differ.')).toBeVisible();
  await mira.page.getByLabel('Password', { exact: true }).fill('a long enough one');
  await mira.page.getByLabel('Password again').fill('a long enough one');
  await mira.page.getByRole('button', { name: 'Set password' }).click();
  await mira.page.waitForURL('**/chat');
  await mira.ready();
  await expect(mira.page.getByText('You can read sessions, not start one')).toBeVisible();
  await expect(row).toContainText('Active');

  // The link is used up.
  expectError(/410 \(Gone\)/);
  const again = await open(NOBODY);
  expect((await again.page.goto(link))?.status()).toBe(410);
  await expect(again.page.getByRole('button', { name: 'Set password' })).toHaveCount(0);
  await expect(again.page.getByRole('alert')).toContainText('This link was used. Each link works once.');

  // Another role ends what was signed in with the old one.
  const signIn = async () => {
    await mira.page.goto('/chat');
    await expect(mira.page).toHaveURL(/\/signin/);
    await mira.page.getByLabel('Name').fill(who);
    await mira.page.getByLabel('Password').fill('a long enough one');
    await mira.page.getByRole('button', { name: 'Sign in' }).click();
  };
  expectError(/401|WebSocket/);
  await row.getByRole('combobox').selectOption('approver');
  await row.getByRole('button', { name: 'Set role' }).click();
  await expect.poll(async () => (await mira.page.request.get('/api/agent/list')).status()).toBe(401);
  await signIn();
  await mira.page.waitForURL('**/chat');
  await expect(mira.page.getByRole('button', { name: 'Send message' })).toBeVisible();

  // Disabled: the open page loses its socket, the next step asks to sign in.
  await mira.go('/chat');
  await expect(mira.page.locator('.live')).toContainText('Live');
  const socket = mira.page.waitForEvent('websocket').catch(() => null);
  await mira.reload();
  const closed = (await socket)!.waitForEvent('close');
  await row.getByRole('button', { name: `Disable ${who}` }).click();
  await expect(row).toContainText('Disabled');
  await closed;
  await signIn();
  await expect(mira.page.getByText('This account is switched off.')).toBeVisible();
});

test('the last admin cannot be disabled or demoted', async ({ ana, expectError }) => {
  const { page } = ana;
  await ana.go('/users');
  const row = page.getByRole('row').filter({ hasText: ADMIN.name });
  expectError(/4\d\d/);
  await row.getByRole('button', { name: `Disable ${ADMIN.name}` }).click();
  await expect(page.getByRole('alert')).toContainText('The account was not changed.');
  await row.getByRole('combobox').selectOption('viewer');
  await row.getByRole('button', { name: 'Set role' }).click();
  await expect(page.getByRole('alert').filter({ hasText: 'The role was not changed.' })).toBeVisible();
  await expect(row).toContainText('Active');
});

test('sign out everywhere ends every browser', async ({ add, open, expectError }) => {
  const who = name('Nils');
  const first = await add(who, 'approver');
  const second = await open(NOBODY);
  await second.page.goto('/signin');
  await second.page.getByLabel('Name').fill(who);
  await second.page.getByLabel('Password').fill(`${who} has a password`);
  await second.page.getByRole('button', { name: 'Sign in' }).click();
  await second.page.waitForURL('**/chat');
  await second.ready();
  await expect(second.page.locator('.live')).toContainText('Live');
  expectError(/401|WebSocket/);
  await first.go('/me');
  await first.page.getByRole('button', { name: 'Sign out everywhere' }).click();
  await first.page.waitForURL('**/signin');
  await expect.poll(async () => (await second.page.request.get('/api/agent/list')).status()).toBe(401);
  await second.page.goto('/approvals');
  await expect(second.page).toHaveURL(/\/signin/);
});

test('signing in counts wrong tries, and after five an account waits', async ({ add, open }) => {
  const who = name('Rita');
  await add(who, 'viewer');
  const { page } = await open(NOBODY);
  const attempt = async (password: string) => {
    await page.goto('/signin?next=/approvals');
    await page.getByLabel('Name').fill(who);
    await page.getByLabel('Password').fill(password);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.waitForLoadState();
  };
  for (const words of ['4 tries left', '3 tries left', '2 tries left', '1 try left', '0 tries left']) {
    await attempt('wrong');
    await expect(page.locator('#problem')).toContainText('Name or password is wrong.');
    await expect(page.locator('#problem')).toContainText(words);
  }
  await attempt(`${who} has a password`);
  await expect(page.locator('#problem')).toContainText('Too many tries. Wait 15 min, then try again.');
  await expect(page).toHaveURL(/\/signin/);
});

test('signing in leads to the page that was asked for', async ({ open }) => {
  const { page } = await open(NOBODY);
  await page.goto('/approvals?tab=expired');
  await expect(page).toHaveURL(/\/signin\?next=/);
  await page.getByLabel('Name').fill(ADMIN.name.toLowerCase());
  await page.getByLabel('Password').fill(ADMIN.password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page).toHaveURL(/\/approvals\?tab=expired$/);
  await expect(page.getByRole('heading', { name: 'Nothing expired' }).or(page.locator('#main .rows').first())).toBeVisible();
});
