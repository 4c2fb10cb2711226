// Everything by keyboard, and nothing by accident.
import { join } from 'node:path';

import { expect, lines, test } from '../fixtures/test';

test('Tab reaches every control of a decision, each with a name', async ({ ana, folder }) => {
  const { page } = ana;
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  const session = await ana.start(agent.name, 'append notes.txt: by keyboard');
  await ana.run('Paused');
  const [{ id }] = await ana.api.waiting();
  const reached = async () => {
    const names = new Set<string>();
    for (let i = 0; i < 80; i++) {
      await page.keyboard.press('Tab');
      const name = await page.evaluate(() => {
        const el = document.activeElement as HTMLElement | null;
        if (!el || el === document.body) return '';
        const label = (el as HTMLInputElement).labels?.[0]?.textContent;
        return (el.getAttribute('aria-label') ?? label ?? el.textContent ?? '').trim() || `(no name: ${el.outerHTML.slice(0, 80)})`;
      });
      if (name) names.add(name);
    }
    return [...names];
  };
  for (const path of [`/approvals/${id}`, `/chat/${session}`]) {
    await ana.go(path);
    const names = await reached();
    expect(names.filter((name) => name.startsWith('(no name'))).toEqual([]);
    for (const control of ['Reject and stop', 'Reject…', 'Approve', 'Skip to content']) expect(names, path).toContain(control);
  }
  // Decided by keyboard alone.
  await ana.go(`/approvals/${id}`);
  await ana.approve.focus();
  await page.keyboard.press('Enter');
  await ana.sees(page.locator('.receipt .done', { hasText: 'Effect' }));
  expect(lines(join(folder, 'notes.txt'))).toEqual(['by keyboard']);
});

test('words of a refusal are sent by keyboard, and Escape sends nothing', async ({ ana, folder }) => {
  const { page } = ana;
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  await ana.start(agent.name, 'append notes.txt: never this');
  await ana.run('Paused');
  await page.getByRole('button', { name: 'Reject…' }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Reject with words' });
  await expect(dialog).toBeVisible();
  await dialog.getByRole('textbox').focus();
  await page.keyboard.type('Half a thought');
  await page.keyboard.press('Escape');
  await expect(dialog).toBeHidden();
  await ana.run('Paused');
  await page.getByRole('button', { name: 'Reject…' }).click();
  await expect(dialog.getByRole('textbox')).toHaveValue('Half a thought');
  await dialog.getByRole('textbox').focus();
  await page.keyboard.press('Control+Enter');
  await ana.run('Done');
  await expect(page.getByText('“Half a thought”')).toBeVisible();
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
});

test('typing while a request arrives decides nothing and loses nothing', async ({ ana, folder }) => {
  const { page } = ana;
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  await ana.start(agent.name, 'wait 1\nappend notes.txt: arrives while typing');
  const composer = page.getByRole('textbox', { name: /Message/ });
  await composer.focus();
  // The letters that mean something elsewhere, with new lines between them.
  let typed = '';
  for (let i = 0; i < 200 && (i < 30 || !await ana.approve.isVisible()); i++) {
    const key = 'arxje k\n'[i % 8];
    await page.keyboard.press(key === '\n' ? 'Enter' : key === ' ' ? 'Space' : key);
    typed += key;
  }
  await expect(ana.approve).toBeVisible();
  for (const key of ['a', 'r', 'x', 'Enter', 'a']) {
    await page.keyboard.press(key);
    typed += key === 'Enter' ? '\n' : key;
  }
  await expect(composer).toHaveValue(typed);
  await expect(composer).toBeFocused();
  await ana.run('Paused');
  const [row] = await ana.api.waiting();
  expect((await ana.api.approval(row.id)).row.status).toBe('pending');
  expect(lines(join(folder, 'notes.txt'))).toEqual([]);
});

test('a half-written refusal stays with its request when another one arrives', async ({ ana, folder }) => {
  const { page } = ana;
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  await ana.start(agent.name, 'append notes.txt: first');
  await ana.run('Paused');
  await page.getByRole('button', { name: 'Reject…' }).click();
  const field = page.getByRole('dialog', { name: 'Reject with words' }).getByRole('textbox');
  await field.fill('For the first one');
  // Another session's request redraws the page.
  const agents = await ana.api.agent('demo');
  await ana.api.post('session/start', { agent: agents.id, prompt: 'append notes.txt: second' });
  await expect(page).toHaveTitle(/^\(2\)/);
  await expect(field).toHaveValue('For the first one');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('button', { name: 'Reject…' })).toHaveCount(1);
});

test('J and K move along the inbox, and do nothing in a text field', async ({ ana, folder }) => {
  const { page } = ana;
  const agent = await ana.api.edit('demo', { folder, hitl_timeout_s: 900, waits_for_continue: false });
  await ana.start(agent.name, 'both: append a.txt: A && append b.txt: B');
  await ana.sees(ana.approve.nth(1));
  await ana.go('/approvals');
  const rows = page.locator('#main .rows .row');
  await page.keyboard.press('j');
  await expect(rows.nth(0)).toBeFocused();
  await page.keyboard.press('j');
  await expect(rows.nth(1)).toBeFocused();
  await page.keyboard.press('k');
  await expect(rows.nth(0)).toBeFocused();
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/approvals\/[0-9a-f-]{36}$/);
});
