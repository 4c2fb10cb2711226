// The page of agents and workers.
import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { join } from 'node:path';

import { BIN } from '../fixtures/product';
import { belonging } from '../fixtures/process';
import { expect, lines, test } from '../fixtures/test';

test('an admin changes where an agent works and when it asks', async ({ ana, folder, expectError }) => {
  const other = await ana.api.agent('claude').catch(() => undefined);
  const { page } = ana;
  const agent = await ana.api.edit('demo', { hitl_timeout_s: 900, waits_for_continue: false });
  await ana.go('/agents');
  const row = page.getByRole('row').filter({ has: page.getByRole('cell', { name: agent.name, exact: true }) });
  await expect(row).toContainText('Ready');
  await page.getByText(`Edit ${agent.name}`, { exact: true }).click();
  const form = page.getByRole('form', { name: `Edit ${agent.name}` });
  const save = form.getByRole('button', { name: 'Save' });

  // A folder that is no whole path does not leave the browser.
  await form.getByLabel('Folder').fill('not/a/whole/path');
  await save.click();
  expect(await form.getByLabel('Folder').evaluate((field: HTMLInputElement) => field.validity.patternMismatch)).toBe(true);

  // The mode that never asks is marked before it is saved, and must be meant.
  await form.getByLabel('Folder').fill(folder);
  await form.getByLabel('Time to answer, in seconds').fill('1200');
  const meant = form.getByRole('checkbox', { name: /^I mean this/ });
  await expect(meant).toBeHidden();
  await expect(form.getByRole('status')).toBeHidden();
  await form.getByLabel('Permission mode').selectOption('auto');
  await expect(form.getByRole('status')).toContainText('Nobody can stop what it does before it is done.');
  expectError(/422/);
  await save.click();
  await expect(page.getByRole('alert')).toContainText('Permission mode: In this mode the agent never asks');
  await expect(form.locator('.field-error')).toContainText('In this mode the agent never asks');
  // Nothing that was typed is lost.
  await expect(form.getByLabel('Folder')).toHaveValue(folder);
  await expect(form.getByLabel('Time to answer, in seconds')).toHaveValue('1200');
  await expect(form.getByLabel('Permission mode')).toHaveValue('auto');
  // Another choice is not what was confirmed.
  await meant.check();
  await form.getByLabel('Permission mode').selectOption('ask');
  await form.getByLabel('Permission mode').selectOption('auto');
  await expect(meant).not.toBeChecked();
  if (other) {
    await meant.check();
    await form.getByLabel('Name', { exact: true }).fill(other.name);
    await save.click();
    await expect(form.locator('.field-error')).toContainText('Another agent has this name.');
    await expect(meant).toBeChecked();
    await form.getByLabel('Name', { exact: true }).fill(agent.name);
  } else {
    await meant.check();
  }
  await save.click();
  await expect(row).toContainText(folder);
  await expect(row).toContainText('20 min');
  await expect(row).toContainText('Never asks');

  // It holds from the next message on, and is said where people talk to it.
  await ana.start(agent.name, 'append notes.txt: unasked');
  await ana.run('Done');
  await expect(page.getByText('This agent never asks: nobody can stop what it does before it is done.')).toBeVisible();
  expect(lines(join(folder, 'notes.txt'))).toEqual(['unasked']);
  await ana.api.edit('demo', { mode: 'ask', hitl_timeout_s: 900 });
});

test('a token lets a second worker link until it is revoked', async ({ ana, folder, product, expectError }) => {
  const { page } = ana;
  const name = `far ${randomUUID().slice(0, 6)}`;
  await ana.go('/agents');
  await page.getByLabel('Name of the worker').fill(name);
  await page.getByRole('button', { name: 'New worker token' }).click();
  const made = page.getByRole('region', { name: 'New worker token' });
  await expect(made).toContainText(`Token of ${name}`);
  await expect(made).toContainText(`countersign-worker run --server ${product.url} --token-file token.txt`);
  const token = (await made.locator('pre').first().innerText()).trim();
  const row = page.getByRole('row').filter({ has: page.getByRole('cell', { name, exact: true }) }).last();
  await expect(row).toContainText('has never linked');

  const file = join(folder, 'token.txt');
  writeFileSync(file, `${token}\n`, { mode: 0o600 });
  mkdirSync(join(folder, 'worker'));
  const worker = spawn(join(BIN, 'countersign-worker'), ['run', '--server', product.url, '--token-file', file, '--data', join(folder, 'worker')], {
    env: { PATH: process.env.PATH, HOME: folder }, stdio: ['ignore', 'ignore', 'pipe'], cwd: folder,
  });
  let told = '';
  worker.stderr.on('data', (chunk) => { told += chunk; });
  const ended = new Promise<number | null>((done) => worker.once('exit', (code) => done(code)));
  try {
    await expect(row).toContainText('Linked');
    await expect(row).toContainText('Demo agent');
    // Its agent can be talked to.
    const agent = (await ana.api.agents()).find((a) => a.name === `Demo agent on ${name}`);
    expect(agent?.problem).toBeNull();
    await ana.start(agent!.name, 'append far.txt: far away');
    await ana.run('Paused');
    await ana.approve.click();
    await ana.run('Done');
    await ana.sees(page.locator('.receipt-line', { hasText: 'Effect' }));
    expect(lines(join(agent!.folder, 'far.txt'))).toEqual(['far away']);

    expectError(/WebSocket/);
    await ana.go('/agents');
    await row.getByRole('button', { name: /^Revoke/ }).click();
    await page.getByRole('dialog', { name: `Revoke the token of ${name}` }).getByRole('button', { name: 'Revoke token' }).click();
    await expect(row).toContainText('Revoked');
    expect(await ended, told).toBe(2);
    expect(told).toMatch(/token/);
    expect(told).not.toContain(token);
  } finally {
    worker.kill('SIGTERM');
    await ended;
    // A worker that may not link any more writes nothing more to what it started, and
    // leaves it to its owner: the holder ends together with the harness.
    for (const { pid, args } of belonging(folder)) if (args.includes('hold')) process.kill(pid, 'SIGTERM');
  }
  await expect.poll(() => belonging(folder).map((p) => p.program)).toEqual([]);
  // The token was shown for a minute, and it is in no list.
  const { text } = await page.request.get('/api/worker/list').then(async (answer) => ({ text: await answer.text() }));
  expect(text).not.toContain(token);
});

test('without script the form says which modes never ask, and takes one only when it is meant', async ({ ana, adminState, open }) => {
  const agent = await ana.api.edit('demo', { mode: 'ask' });
  const plain = await open(adminState, { javaScriptEnabled: false });
  await plain.go('/agents');
  await plain.page.getByText(`Edit ${agent.name}`, { exact: true }).click();
  const form = plain.page.getByRole('form', { name: `Edit ${agent.name}` });
  await expect(form).toContainText('“Writes without asking” never asks: nobody can stop what the agent does.');
  await form.getByLabel('Permission mode').selectOption('auto');
  await form.getByLabel('Time to answer, in seconds').fill('4321');
  await form.getByRole('button', { name: 'Save' }).click();
  await expect(plain.page.getByRole('alert')).toContainText('Permission mode: In this mode the agent never asks');
  expect((await ana.api.agent('demo')).mode).toBe('ask');
  // The form is open again, with what was typed.
  await expect(form.getByLabel('Permission mode')).toHaveValue('auto');
  await expect(form.getByLabel('Time to answer, in seconds')).toHaveValue('4321');
  await form.getByRole('checkbox', { name: /^I mean this/ }).check();
  await form.getByRole('button', { name: 'Save' }).click();
  await expect.poll(async () => (await ana.api.agent('demo')).mode).toBe('auto');
  await ana.api.edit('demo', { mode: 'ask', hitl_timeout_s: 900 });
});
