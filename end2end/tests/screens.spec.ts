// Every screen: axe, widths, and a picture in results/screens for people to look at.
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { ask, bash, id, plan, question, writePlan } from '../fixtures/claude';
import { expect, needsClaude, NOBODY, test, type Person } from '../fixtures/test';

const here = dirname(fileURLToPath(import.meta.url));
const shots = join(here, '../results/screens');
mkdirSync(shots, { recursive: true });

const ALL = [['light', 1440, 900], ['light', 390, 844], ['dark', 1440, 900], ['dark', 390, 844]] as const;
/** Each theme and each width once: for pages whose parts are drawn whole elsewhere. */
const FEW = [['light', 1440, 900], ['dark', 390, 844]] as const;

/** Draws the page at two widths in both themes, and checks it at 320 px too. */
async function draw(person: Person, path: string, name: string, kinds: typeof ALL | typeof FEW = ALL): Promise<void> {
  const { page } = person;
  for (const [scheme, width, height] of kinds) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width, height });
    await person.go(path);
    await page.evaluate(() => document.fonts.ready);
    await page.screenshot({ path: join(shots, `${name}-${width}-${scheme}.png`) });
    await person.looksRight();
  }
  await page.setViewportSize({ width: 320, height: 640 });
  expect(await person.overflow(), `${name} at 320 px`).toEqual([]);
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.emulateMedia({ colorScheme: 'light' });
}

// Pictures that do not depend on what other files left.
test.use({ instance: 'screens' });
// Many pages, each looked at in many ways.
test.describe.configure({ timeout: 480_000 });

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

test.describe('Claude Code', () => {
  needsClaude();

  test('a question, a plan, a change, what is allowed', async ({ ana, product }) => {
    const { page } = ana;
    const folder = join(product.root, 'ledger');
    mkdirSync(folder);
    const { session: asking } = await ask(ana, folder, [[question(id())], [{ text: 'Thank you.' }]]);
    await ana.run('Paused');
    const [{ id: asked }] = await ana.api.waiting();
    await draw(ana, `/approvals/${asked}`, 'question');
    await draw(ana, `/chat/${asking}`, 'chat-question', FEW);
    await page.getByRole('radio', { name: /The day of the refund/ }).check();
    await page.getByRole('checkbox', { name: /USD/ }).check();
    await page.getByRole('button', { name: 'Send answers' }).click();
    await ana.run('Done');
    await draw(ana, `/approvals/${asked}`, 'question-answered', FEW);
    await draw(ana, `/chat/${asking}`, 'chat-answered', FEW);

    const { session } = await ask(ana, folder, [
      [bash(id(), 'touch books.csv && npm run export -- --month 2026-11 --to /srv/www/exports/2026-11.csv')], [{ text: 'Exported.' }],
    ]);
    await ana.run('Paused');
    const [{ id: command }] = await ana.api.waiting();
    await draw(ana, `/approvals/${command}`, 'command');
    await draw(ana, `/chat/${session}`, 'chat-command', FEW);
    for (const [button, name] of [['Change…', 'change'], ['Allow until it ends…', 'allow'], ['Reject…', 'reject']]) {
      for (const [width, height] of [[1440, 900], [390, 844]]) {
        await page.setViewportSize({ width, height });
        await ana.go(`/approvals/${command}`);
        await page.getByRole('button', { name: button }).click();
        await page.screenshot({ path: join(shots, `command-${name}-${width}-light.png`) });
        await ana.looksRight();
      }
    }
    await page.setViewportSize({ width: 1440, height: 900 });
    await ana.go(`/approvals/${command}`);
    await page.getByRole('button', { name: 'Change…' }).click();
    await page.getByLabel('Command').fill('touch books.csv');
    await page.getByRole('button', { name: 'Approve changed' }).click();
    await ana.sees(page.locator('.receipt .done', { hasText: 'Effect' }));
    await draw(ana, `/approvals/${command}`, 'command-changed', FEW);
    await draw(ana, `/chat/${session}`, 'chat-changed', FEW);

    await ask(ana, folder, [
      [writePlan('# Move the refunds\n\n1. Stop the nightly export.\n2. Copy the refunds to the new table.\n3. Compare the sums.\n')],
      [plan(id())], [{ text: 'Then later.' }],
    ], { mode: 'plan' });
    await ana.run('Paused');
    const [{ id: planned }] = await ana.api.waiting();
    await draw(ana, `/approvals/${planned}`, 'plan', FEW);
    await ana.api.edit('claude', { mode: 'default' });
  });
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
  // The warning stands before anything is saved.
  const mode = ana.page.locator('details.edit', { hasText: 'Edit Demo agent' }).getByLabel('Permission mode');
  await mode.selectOption('auto');
  await ana.page.screenshot({ path: join(shots, 'agents-edit-1440-light.png'), fullPage: true });
  await ana.looksRight();
  await ana.page.setViewportSize({ width: 390, height: 844 });
  await ana.page.screenshot({ path: join(shots, 'agents-edit-390-light.png'), fullPage: true });
  await ana.looksRight();
  await ana.page.setViewportSize({ width: 1440, height: 900 });
  const agent = await ana.api.edit('demo', { mode: 'auto' });
  const session = await ana.start(agent.name, 'say I never ask.');
  await ana.run('Done');
  await draw(ana, `/chat/${session}`, 'chat-never-asks', FEW);
  await ana.api.edit('demo', { mode: 'ask' });
});

test('users, own page, not found', async ({ ana, add, expectError }) => {
  await add('Vera Lind', 'viewer');
  await draw(ana, '/users', 'users');
  await draw(ana, '/me', 'me');
  expectError(/404/);
  await draw(ana, '/nowhere', 'lost');
});
