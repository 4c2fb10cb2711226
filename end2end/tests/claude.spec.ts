// The real Claude Code against a scripted Messages endpoint. Nothing between the browser
// and the program is replaced; only the model is.
import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { ask, bash, id, program, read, say, worker } from '../fixtures/claude';
import { script, type Block } from '../fixtures/endpoint';
import { working } from '../fixtures/process';
import { expect, lines, needsClaude, needsProc, test } from '../fixtures/test';

needsClaude();
needsProc();

test('an approved command runs once, in the same process and native session', async ({ ana, folder, product }) => {
  const { page } = ana;
  const call = id();
  const { mark } = await ask(ana, folder, [[bash(call, `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  await expect(ana.requests.locator('.action pre')).toContainText(`echo done >> ${folder}/log`);
  await expect(ana.requests.locator('.quoted')).toContainText('Append a line');
  expect(lines(join(folder, 'log'))).toEqual([]);
  const before = program(folder);
  expect(product.endpoint.about(mark)).toHaveLength(1);

  await ana.approve.click();
  await ana.run('Done');
  expect(lines(join(folder, 'log'))).toEqual(['done']);
  await expect(page.locator('.say', { hasText: 'Finished.' })).toBeVisible();
  await ana.sees(page.locator('.receipt-line', { hasText: 'Effect' }));
  // One process, one conversation, two model calls: the prompt was not sent again.
  expect(program(folder).pid).toBe(before.pid);
  const asked = product.endpoint.about(mark);
  expect(asked.map((a) => a.turn)).toEqual([0, 1]);
  expect(new Set(asked.map((a) => a.session)).size).toBe(1);
  expect(product.endpoint.results(mark).get(call)).toMatchObject({ isError: false });
});

test('the model receives the reason of a refusal', async ({ ana, folder, product }) => {
  const call = id();
  const { mark } = await ask(ana, folder, [[bash(call, `echo done >> ${folder}/log`)], [{ text: 'As you wish.' }]]);
  await ana.run('Paused');
  await ana.reject('Use the staging bucket instead.');
  await ana.run('Done');
  expect(product.endpoint.results(mark).get(call)).toEqual({ id: call, isError: true, text: 'Use the staging bucket instead.' });
  await ana.sees(ana.page.getByText('Rejected by Ana Ruka'));
  await expect(ana.page.locator('.say', { hasText: 'As you wish.' })).toBeVisible();
  expect(lines(join(folder, 'log'))).toEqual([]);
});

test('two requests at once are answered in reverse', async ({ ana, folder, product }) => {
  const outside = join(product.root, 'outside', randomUUID());
  mkdirSync(outside, { recursive: true });
  writeFileSync(join(outside, 'first'), 'the first text\n');
  writeFileSync(join(outside, 'second'), 'the second text\n');
  const [a, b] = [id(), id()];
  const { mark } = await ask(ana, folder, [[read(a, join(outside, 'first')), read(b, join(outside, 'second'))], [{ text: 'Read.' }]]);
  await ana.sees(ana.approve.nth(1));
  const card = (file: string) => ana.requests.locator('section').filter({ hasText: join(outside, file) });
  await card('second').getByRole('button', { name: 'Approve', exact: true }).click();
  await expect(ana.approve).toHaveCount(1);
  // The model is not asked again before both are answered.
  expect(product.endpoint.about(mark)).toHaveLength(1);
  await ana.reject('Not the first one.');
  await ana.run('Done');
  const results = product.endpoint.results(mark);
  expect(results.get(b)?.text).toContain('the second text');
  expect(results.get(b)?.isError).toBe(false);
  expect(results.get(a)).toEqual({ id: a, isError: true, text: 'Not the first one.' });
});

test('two sub-agents ask at once, each for itself', async ({ ana, folder }) => {
  const [a, b] = [id(), id()];
  const task = (name: string, call: string): Block => ({
    tool: 'Task',
    input: {
      description: name, subagent_type: 'general-purpose', run_in_background: false,
      prompt: script(`Sub ${name}`, [[bash(call, `echo ${name} >> ${folder}/log`)], [{ text: `${name} is over` }]]),
    },
  });
  await ask(ana, folder, [[task('one', a), task('two', b)], [{ text: 'Both are over.' }]]);
  await ana.sees(ana.approve.nth(1));
  const card = (name: string) => ana.requests.locator('section').filter({ hasText: `echo ${name}` });
  // Who asks is said, on the card and in the list, by what it was told to do.
  await expect(card('one')).toContainText('Sub-agent “general-purpose: one” asks.');
  await expect(card('two')).toContainText('Sub-agent “general-purpose: two” asks.');
  expect(new Set(await Promise.all((await ana.api.waiting()).map(async (row) => (await ana.api.approval(row.id)).row.sub_agent))))
    .toEqual(new Set(['general-purpose: one', 'general-purpose: two']));
  await card('two').getByRole('button', { name: 'Approve', exact: true }).click();
  await expect.poll(() => lines(join(folder, 'log'))).toEqual(['two']);
  await expect(ana.approve).toHaveCount(1);
  await ana.reject('One is enough.');
  await ana.run('Done');
  expect(lines(join(folder, 'log'))).toEqual(['two']);
  await expect(ana.page.locator('.say', { hasText: 'Both are over.' })).toBeVisible();
  // What a sub-agent was told is not shown as its own words.
  await expect(ana.page.getByRole('article', { name: 'Run' }).locator('.say').filter({ hasText: 'script:' })).toHaveCount(0);
});

test('cancelled while paused, nothing runs and the process stays usable', async ({ ana, folder, product }) => {
  const { page } = ana;
  const { mark } = await ask(ana, folder, [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const before = program(folder);
  await page.getByRole('button', { name: 'Cancel run' }).click();
  await ana.run('Cancelled');
  await ana.sees(page.getByText('The run was cancelled.'));
  await expect(page.getByText('Stop not yet confirmed')).toBeHidden();
  expect(product.endpoint.about(mark)).toHaveLength(1);

  await say(ana, script('Once more', [[{ text: 'Here I am.' }]]));
  await ana.sees(page.locator('.say', { hasText: 'Here I am.' }));
  expect(program(folder).pid).toBe(before.pid);
  expect(lines(join(folder, 'log'))).toEqual([]);
});

test('the worker is killed while paused: its successor hands the decision to the same request', async ({ ana, folder, product }) => {
  const { page } = ana;
  const call = id();
  const { mark, session } = await ask(ana, folder, [[bash(call, `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const before = program(folder);
  const [{ id: approval }] = await ana.api.waiting();
  const native = () => new Set(product.workerFiles(session).flatMap(({ text }) =>
    [...text.matchAll(/"subtype":\s*"can_use_tool".*?"tool_use_id":\s*"([^"]+)"/g)].map((m) => m[1])));

  const first = worker(product);
  expect(first).toBeDefined();
  process.kill(first!.pid, 'SIGKILL');
  await expect.poll(() => worker(product)?.pid).not.toBe(first!.pid);
  await expect.poll(async () => (await ana.api.agent('claude')).worker_linked && worker(product) !== undefined).toBe(true);

  // The program never noticed: the same process, still asking, the model not called.
  expect(program(folder)).toMatchObject({ pid: before.pid, parent: before.parent });
  expect(lines(join(folder, 'log'))).toEqual([]);
  expect((await ana.api.waiting()).map((row) => row.id)).toEqual([approval]);
  expect(product.endpoint.about(mark)).toHaveLength(1);

  await ana.approve.click();
  await ana.run('Done');
  expect(lines(join(folder, 'log'))).toEqual(['done']);
  expect(program(folder).pid).toBe(before.pid);
  const asked = product.endpoint.about(mark);
  expect(asked.map((a) => a.turn)).toEqual([0, 1]);
  expect(new Set(asked.map((a) => a.session)).size).toBe(1);
  expect(product.endpoint.results(mark).get(call)).toMatchObject({ isError: false });
  expect([...native()].filter((other) => other !== call)).toEqual([]);
  await ana.sees(page.locator('.receipt-line', { hasText: 'Effect' }));
  expect((await ana.api.approval(approval)).receipt).toMatchObject({ delivery: 'effect', by: 'Ana Ruka' });
});

test('the decision that is made while the worker is away is handed over when it is back', async ({ ana, folder, product }) => {
  const { mark } = await ask(ana, folder, [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const before = program(folder);
  // Stopped, not dead: the server keeps the link and gets no answer over it.
  const away = worker(product)!;
  process.kill(away.pid, 'SIGSTOP');
  await ana.approve.click();
  await ana.sees(ana.page.getByText('Approved by Ana Ruka'));
  expect(lines(join(folder, 'log'))).toEqual([]);
  process.kill(away.pid, 'SIGKILL');
  await ana.run('Done');
  expect(lines(join(folder, 'log'))).toEqual(['done']);
  expect(program(folder).pid).toBe(before.pid);
  expect(product.endpoint.about(mark).map((a) => a.turn)).toEqual([0, 1]);
});

test('the program is killed while paused: the request is cancelled and a late approve refused', async ({ ana, folder, open, adminState }) => {
  const { page } = ana;
  await ask(ana, folder, [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  const { digest } = await ana.api.approval(approval);
  // A page from before, without script: it still shows the button.
  const old = await open(adminState, { javaScriptEnabled: false });
  await old.go(`/approvals/${approval}`);
  await expect(old.approve).toBeVisible();

  process.kill(program(folder).pid, 'SIGKILL');
  await ana.run('Error');
  await ana.sees(page.locator('.decided', { hasText: 'Execution gone.' }));
  await expect(ana.approve).toBeHidden();
  await ana.go(`/approvals/${approval}`);
  await expect(page.locator('.ask-head')).toContainText('Cancelled');
  await expect(page.getByRole('note').filter({ hasText: 'Execution gone.' })).toContainText('Nobody approved it.');

  const late = await ana.api.resolve(approval, digest, 'approve');
  expect(late.status()).toBe(409);
  expect(await late.text()).toContain('Execution gone.');
  await old.approve.click();
  await expect(old.page.getByRole('alert')).toContainText('This request was cancelled. Execution gone.');
  expect(lines(join(folder, 'log'))).toEqual([]);
  expect(working('claude', folder)).toEqual([]);
});
