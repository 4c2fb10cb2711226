// Every screen: axe, widths, and a picture in results/screens for people to look at.
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { expect, NOBODY, test, type Person } from '../fixtures/test';

const here = dirname(fileURLToPath(import.meta.url));
const shots = join(here, '../results/screens');
mkdirSync(shots, { recursive: true });

/** Draws the page at two widths in both themes, and checks it at 320 px too. */
async function draw(person: Person, path: string, name: string): Promise<void> {
  const { page } = person;
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    for (const [width, height] of [[1440, 900], [390, 844]]) {
      await page.setViewportSize({ width, height });
      await person.go(path);
      await page.evaluate(() => document.fonts.ready);
      await page.screenshot({ path: join(shots, `${name}-${width}-${scheme}.png`) });
      await person.looksRight();
    }
  }
  await page.setViewportSize({ width: 320, height: 640 });
  expect(await person.overflow(), `${name} at 320 px`).toEqual([]);
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.emulateMedia({ colorScheme: 'light' });
}

// Pictures that do not depend on what other files left.
test.use({ instance: 'screens' });
test.describe.configure({ timeout: 120_000 });

test('sign in', async ({ open }) => {
  const somebody = await open(NOBODY);
  await draw(somebody, '/signin', 'signin');
  await draw(somebody, '/signin?problem=wrong&left=2', 'signin-wrong');
});

test('chat, empty', async ({ ana }) => {
  // The agent that is chosen is the one the words are about.
  await ana.go('/chat');
  await expect(ana.page.getByRole('heading', { name: 'Try the demo agent' })).toBeVisible();
  await expect(ana.page.getByRole('combobox', { name: 'Agent' })).toHaveValue((await ana.api.agent('demo')).id);
  await draw(ana, '/chat', 'chat-empty');
});

test('chat and approvals, paused', async ({ ana, product }) => {
  // A short name, for the picture.
  const folder = join(product.root, 'exports');
  mkdirSync(folder);
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  await ana.start(agent.name, 'append notes.txt: The backup of Tuesday is complete.');
  await ana.run('Paused');
  await ana.approve.click();
  await ana.run('Done');
  const prompt = 'say The export is ready. I publish it next.\n'
    + 'run: tar -czf export.tar.gz notes.txt && cp export.tar.gz /srv/www/exports/2026-11.tar.gz && echo published >> notes.txt';
  const session = await ana.start(agent.name, prompt);
  await ana.run('Paused');
  const [{ id }] = await ana.api.waiting();
  await draw(ana, `/chat/${session}`, 'chat-paused');
  if (process.env.UPDATE_SCREENSHOT === '1') {
    await ana.go(`/chat/${session}`);
    await ana.page.screenshot({ path: join(here, '../../docs/screenshot.png') });
  }
  await draw(ana, '/approvals', 'approvals');
  await draw(ana, `/approvals/${id}`, 'approval');
  await ana.go(`/approvals/${id}`);
  await ana.page.getByRole('button', { name: 'Reject…' }).click();
  await ana.page.screenshot({ path: join(shots, 'approval-reject-1440-light.png') });
  await ana.looksRight();
  await ana.page.keyboard.press('Escape');
  await ana.page.getByRole('button', { name: 'Reject and stop' }).click();
  await ana.sees(ana.page.locator('.receipt .done', { hasText: 'Refusal seen' }));
  await draw(ana, `/approvals/${id}`, 'approval-rejected');
  await draw(ana, `/chat/${session}`, 'chat-stopped');
  await draw(ana, '/approvals?tab=decided', 'approvals-decided');
});

test('chat, done', async ({ ana, folder }) => {
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  const session = await ana.start(agent.name, 'run: printf "one\\ntwo\\n"\nappend notes.txt: all is well\nsay That was all.');
  await ana.run('Paused');
  await ana.approve.click();
  await ana.sees(ana.page.locator('.action', { hasText: 'all is well' }));
  await ana.approve.click();
  await ana.run('Done');
  await draw(ana, `/chat/${session}`, 'chat-done');
});

test('agents and workers', async ({ ana }) => {
  await draw(ana, '/agents', 'agents');
  await ana.go('/agents');
  for (const summary of await ana.page.locator('details.edit > summary').all()) await summary.click();
  await ana.page.screenshot({ path: join(shots, 'agents-edit-1440-light.png'), fullPage: true });
  await ana.looksRight();
});

test('users, own page, not found', async ({ ana, add, expectError }) => {
  await add('Vera Lind', 'viewer');
  await draw(ana, '/users', 'users');
  await draw(ana, '/me', 'me');
  expectError(/404/);
  await draw(ana, '/nowhere', 'lost');
});
