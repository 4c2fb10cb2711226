// What happens to the real Claude Code while somebody waits: work in the background, a
// withdrawn request, the next message, an endpoint that fails, a process that dies.
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { ask, bash, id, program, read, say } from '../fixtures/claude';
import { script, SUB_AGENT } from '../fixtures/endpoint';
import { working } from '../fixtures/process';
import { ADMIN } from '../fixtures/product';
import { expect, lines, needsClaude, needsProc, test } from '../fixtures/test';

needsClaude();
needsProc();

test('work in the background goes on after the answer, and the run with it', async ({ ana, folder }) => {
  const { page } = ana;
  // The task waits until the test opens the gate.
  const gate = join(folder, 'gate');
  expect(spawnSync('mkfifo', [gate]).status).toBe(0);
  const call = id();
  await ask(ana, folder, [
    [bash(call, `cat ${gate} > /dev/null; echo late >> ${folder}/log`, { run_in_background: true })],
    [{ text: 'It is under way.' }],
    [{ text: 'It is over now.' }],
  ]);
  await ana.run('Paused');
  await ana.approve.click();
  await ana.sees(page.locator('.say', { hasText: 'It is under way.' }));
  await ana.sees(page.getByText(/^Work goes on in the background: /));
  await expect(page.locator('.page-head .status')).toHaveText('Running');
  expect(lines(join(folder, 'log'))).toEqual([]);
  writeFileSync(gate, 'go\n');
  await expect.poll(() => lines(join(folder, 'log'))).toEqual(['late']);
  await ana.run('Done');
});

test('a sub-agent in the background asks after the answer, and the run waits for it', async ({ ana, folder }) => {
  const { page } = ana;
  await ask(ana, folder, [
    [{
      tool: 'Task',
      input: {
        description: 'look later', subagent_type: 'general-purpose', run_in_background: true,
        prompt: script('Sub later', [[bash(id(), `echo later >> ${folder}/log`)], [{ text: 'Looked.' }]]),
      },
    }],
    [{ text: 'It is under way.' }],
    [{ text: 'It has looked.' }],
  ]);
  await ana.sees(page.locator('.say', { hasText: 'It is under way.' }));
  await ana.sees(ana.requests.getByText('Sub-agent “general-purpose: look later” asks.'));
  await ana.run('Paused');
  await ana.approve.click();
  await ana.run('Done');
  expect(lines(join(folder, 'log'))).toEqual(['later']);
});

test('a request the harness withdraws while it lives on is closed, and a late approve refused', async ({ ana, folder, product }) => {
  // Its main agent stops a sub-agent that waits for an answer: not before the test has seen it.
  let go = () => {};
  const seen = new Promise<void>((done) => { go = done; });
  product.endpoint.hold = ({ turn, messages }) => turn === 1 && JSON.stringify(messages).includes('Stop it') ? seen : undefined;
  await ask(ana, folder, [
    [{
      tool: 'Task',
      input: {
        description: 'Stop it', subagent_type: 'general-purpose', run_in_background: true,
        prompt: script('Sub', [[bash(id(), `echo sub >> ${folder}/log`)], [{ text: 'Never said.' }]]),
      },
    }],
    [{ tool: 'TaskStop', input: { task_id: SUB_AGENT } }],
    [{ text: 'I stopped it.' }],
    [{ text: 'It is stopped.' }],
  ]);
  await ana.run('Paused');
  const before = program(folder).pid;
  const [{ id: approval }] = await ana.api.waiting();
  const { digest } = await ana.api.approval(approval);
  go();
  await expect.poll(async () => (await ana.api.approval(approval)).row.status).toBe('cancelled');
  expect((await ana.api.approval(approval)).closed_reason).toBe('The agent took its request back.');
  await expect(ana.approve).toHaveCount(0);
  expect((await ana.api.resolve(approval, digest, 'approve')).status()).toBe(409);
  await ana.sees(ana.page.locator('.say', { hasText: 'I stopped it.' }));
  await ana.run('Done');
  product.endpoint.hold = () => undefined;
  expect(program(folder).pid).toBe(before);
  expect(lines(join(folder, 'log'))).toEqual([]);
});

test('a request whose process is interrupted from outside is closed, and a late approve refused', async ({ ana, folder }) => {
  await ask(ana, folder, [[bash(id(), `echo done >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  const { digest } = await ana.api.approval(approval);
  process.kill(program(folder).pid, 'SIGINT');
  await expect.poll(async () => (await ana.api.approval(approval)).row.status).toBe('cancelled');
  await expect(ana.approve).toBeHidden();
  // It takes the request back before it ends; which of the two is seen first is open.
  expect((await ana.api.approval(approval)).closed_reason).toMatch(/^(The agent took its request back|Execution gone)\./);
  expect((await ana.api.resolve(approval, digest, 'approve')).status()).toBe(409);
  expect(lines(join(folder, 'log'))).toEqual([]);
});

test('the next message waits while a request is open, and comes after it', async ({ ana, folder }) => {
  const { page } = ana;
  const { session } = await ask(ana, folder, [[bash(id(), `echo first >> ${folder}/log`)], [{ text: 'First.' }]]);
  await ana.run('Paused');
  const before = program(folder).pid;
  await say(ana, script('Then', [[{ text: 'Second.' }]]));
  await ana.sees(page.getByText('Queued'));
  // It neither answers nor withdraws what is open.
  expect((await ana.api.waiting()).map((row) => row.session)).toEqual([session]);
  expect(lines(join(folder, 'log'))).toEqual([]);
  await ana.approve.click();
  await ana.sees(page.locator('.say', { hasText: 'Second.' }));
  await ana.run('Done');
  expect(lines(join(folder, 'log'))).toEqual(['first']);
  expect(program(folder).pid).toBe(before);
});

test('a process that was killed is taken up again with the next message, its old request is gone', async ({ ana, folder, product }) => {
  const { page } = ana;
  const { mark } = await ask(ana, folder, [[bash(id(), `echo old >> ${folder}/log`)], [{ text: 'Never said.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  const { digest } = await ana.api.approval(approval);
  const before = program(folder).pid;
  process.kill(before, 'SIGKILL');
  await ana.run('Error');
  await say(ana, script('Go on', [[bash(id(), `echo new >> ${folder}/log`)], [{ text: 'Went on.' }]]));
  await ana.run('Paused');
  expect(program(folder).pid).not.toBe(before);
  // The decision for the old request is not turned to the new one.
  expect((await ana.api.resolve(approval, digest, 'approve')).status()).toBe(409);
  expect((await ana.api.approval(approval)).closed_reason).toContain('Execution gone.');
  expect(lines(join(folder, 'log'))).toEqual([]);
  await ana.approve.click();
  await ana.run('Done');
  await expect(page.locator('.say', { hasText: 'Went on.' })).toBeVisible();
  expect(lines(join(folder, 'log'))).toEqual(['new']);
  // The same conversation.
  expect(new Set(product.endpoint.about(mark).map((a) => a.session)).size).toBe(1);
});

test('an endpoint that is overloaded is told of while it is tried again', async ({ ana, folder }) => {
  await ask(ana, folder, [[{ fails: 1, status: 529 }, { text: 'Here at last.' }]]);
  await ana.sees(ana.page.getByText(/The model's endpoint did not answer \(status 529\)\. Try 1 of \d+ follows/));
  await ana.sees(ana.page.locator('.say', { hasText: 'Here at last.' }));
  await ana.run('Done');
});

test('a request nobody answers expires, one that was given more time does not', async ({ ana, folder, product }) => {
  const outside = (name: string) => {
    const path = join(product.root, `${name}-${randomUUID()}`);
    writeFileSync(path, `the ${name} text\n`);
    return path;
  };
  const [kept, left] = [outside('kept'), outside('left')];
  const [a, b] = [id(), id()];
  const { mark } = await ask(ana, folder, [[read(a, kept), read(b, left)], [{ text: 'Read.' }]], { hitl_timeout_s: 10 });
  await expect.poll(async () => (await ana.api.waiting()).length).toBe(2);
  const details = await Promise.all((await ana.api.waiting()).map((row) => ana.api.approval(row.id)));
  const of = (path: string) => details.find((d) => d.row.title.includes(path))!.row.id;
  await ana.go(`/approvals/${of(kept)}`);
  await ana.page.getByRole('button', { name: 'Extend' }).click();
  await ana.sees(ana.page.locator('.clock', { hasText: /^1[45]:\d\d left$/ }));
  await expect.poll(async () => (await ana.api.approval(of(left))).row.status).toBe('expired');
  expect((await ana.api.approval(of(kept))).row.status).toBe('pending');
  await ana.approve.click();
  await ana.sees(ana.page.locator('.receipt .done', { hasText: 'Effect' }));
  await expect.poll(() => product.endpoint.results(mark).size).toBe(2);
  expect(product.endpoint.results(mark).get(a)?.text).toContain('the kept text');
  expect(product.endpoint.results(mark).get(b)).toMatchObject({ isError: true });
  expect(product.endpoint.results(mark).get(b)?.text).toContain('Nobody answered this permission request in time');
});

test('two browsers approve at the same moment: it runs once', async ({ ana, add, folder, expectError }) => {
  const name = `Tomas ${randomUUID().slice(0, 8)}`;
  const tomas = await add(name, 'approver');
  await ask(ana, folder, [[bash(id(), `echo once >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  const { digest } = await ana.api.approval(approval);
  expectError(/409 \(Conflict\)/);
  const answers = await Promise.all([ana, tomas, ana, tomas].map((person) => person.api.resolve(approval, digest, 'approve')));
  expect(answers.filter((answer) => answer.status() === 409)).toHaveLength(3);
  await ana.run('Done');
  const { row, receipt } = await ana.api.approval(approval);
  expect([ADMIN.name, name]).toContain(row.decided_by);
  for (const answer of answers.filter((a) => a.status() === 409)) expect(await answer.text()).toContain(`${row.decided_by} approved this first.`);
  expect(receipt?.delivery).toBe('effect');
  expect(lines(join(folder, 'log'))).toEqual(['once']);
});

test('two browsers approve the same request: one wins, the other reads who and what', async ({ ana, add, folder, expectError }) => {
  const tomas = await add(`Tomas ${randomUUID().slice(0, 8)}`, 'approver');
  await ask(ana, folder, [[bash(id(), `echo once >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  // A page that hears of nothing.
  await tomas.page.routeWebSocket(/\/live$/, () => {});
  await tomas.go(`/approvals/${approval}`);
  await expect(tomas.approve).toBeVisible();
  await ana.approve.click();
  await ana.run('Done');
  expectError(/409 \(Conflict\)/);
  await tomas.approve.click();
  await expect(tomas.page.getByRole('alert')).toContainText('Ana Ruka approved this first. Your decision was not sent.');
  expect(lines(join(folder, 'log'))).toEqual(['once']);
  expect(working('claude', folder)).toHaveLength(1);
});
