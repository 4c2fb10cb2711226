// Every answer a person can give the real Claude Code: allow with a change, allow until it
// ends, answers to questions, a plan approved or sent back, a refusal that stops the run.
import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { ask, bash, id, plan, program, question, say, writePlan } from '../fixtures/claude';
import { script } from '../fixtures/endpoint';
import { working } from '../fixtures/process';
import { expect, lines, needsClaude, needsProc, test, type Person } from '../fixtures/test';

needsClaude();
needsProc();

const dialog = (person: Person, name: string) => person.page.getByRole('dialog', { name });

/** The questions of `question`, answered: a choice, two ticks, and words of one's own. */
async function answer({ page }: Person): Promise<void> {
  const form = page.getByRole('form', { name: 'Answers' });
  await form.getByRole('radio', { name: /The day of the payment/ }).check();
  const many = form.getByRole('group', { name: /Which currencies/ });
  await many.getByRole('checkbox', { name: /EUR/ }).check();
  await many.getByRole('checkbox', { name: /SEK/ }).check();
  await many.getByLabel('In your own words').fill('and CHF & "others"');
}

test('a changed command runs instead of the one that was asked for, and the model is told', async ({ ana, folder, product }) => {
  const { page } = ana;
  const call = id();
  const asked = `\n  echo "asked <b>&amp;" >> ${folder}/log\n`;
  const { mark } = await ask(ana, folder, [[bash(call, asked)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  await page.getByRole('button', { name: 'Change…' }).click();
  const field = dialog(ana, 'Change the request').getByLabel('Command');
  // To the letter, the first line feed and what looks like markup too.
  await expect(field).toHaveValue(asked);
  await field.fill(`echo changed >> ${folder}/log`);
  await dialog(ana, 'Change the request').getByRole('button', { name: 'Approve changed' }).click();
  await ana.run('Done');
  expect(lines(join(folder, 'log'))).toEqual(['changed']);
  expect(product.endpoint.results(mark).get(call)).toMatchObject({ isError: false });
  await expect.poll(() => product.endpoint.heard(mark)).toContain('A person changed your Bash call before allowing it.');
  expect(product.endpoint.heard(mark)).toContain('echo changed');

  // Both are kept, in Chat and on its page.
  await ana.sees(page.getByText('What ran instead of it:'));
  await expect(page.locator('.decided .action')).toContainText('echo changed');
  await ana.go(`/approvals/${approval}`);
  await expect(page.getByRole('heading', { name: 'What ran instead of it' })).toBeVisible();
  await expect(page.getByRole('heading', { name: 'What was asked' })).toBeVisible();
  await expect(page.locator('.ask-main .action')).toHaveCount(2);
  await expect(page.locator('.ask-main .action').first()).toContainText('echo changed');
  await expect(page.locator('.ask-main .action').last()).toContainText('asked <b>&amp;');
  await expect(page.locator('.receipt')).toContainText('Approved with a change by Ana Ruka');
});

test('without script a command is changed too, and to the letter', async ({ ana, adminState, folder, open }) => {
  const asked = `\n  echo "asked <b>&amp;" >> ${folder}/log\n`;
  await ask(ana, folder, [[bash(id(), asked)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  const plain = await open(adminState, { javaScriptEnabled: false });
  await plain.go(`/approvals/${approval}`);
  await plain.page.getByRole('button', { name: 'Change…' }).click();
  const field = dialog(plain, 'Change the request').getByLabel('Command');
  await expect(field).toHaveValue(asked);
  await field.fill(`${asked}echo "a second line" >> ${folder}/log`);
  await dialog(plain, 'Change the request').getByRole('button', { name: 'Approve changed' }).click();
  await plain.sees(plain.page.locator('.receipt .done', { hasText: 'Effect' }));
  expect(lines(join(folder, 'log'))).toEqual(['asked <b>&amp;', 'a second line']);
});

test('a change that changes nothing is told where it was typed, and a change outlives what happens elsewhere', async ({ ana, folder, expectError }) => {
  const { page } = ana;
  const { session } = await ask(ana, folder, [[bash(id(), `echo asked >> ${folder}/log`)], [{ text: 'Finished.' }]]);
  await ana.run('Paused');
  const change = dialog(ana, 'Change the request');
  await page.getByRole('button', { name: 'Change…' }).click();
  expectError(/422/);
  await change.getByRole('button', { name: 'Approve changed' }).click();
  await expect(change.getByRole('alert')).toContainText('Nothing was changed.');
  await change.getByLabel('Command').fill('half a');
  // Another session's request redraws the page.
  const agent = await ana.api.agent('claude');
  await ana.api.post('session/start', { agent: agent.id, prompt: script('Elsewhere', [[bash(id(), `echo other >> ${folder}/log`)]]) });
  await expect(page).toHaveTitle(/^\(2\)/);
  await expect(change.getByLabel('Command')).toHaveValue('half a');
  await page.keyboard.press('Escape');
  expect((await ana.api.waiting()).some((row) => row.session === session)).toBe(true);
  expect(lines(join(folder, 'log'))).toEqual([]);
});

test('a refusal with words that stops the run: the model reads the words with its next message', async ({ ana, folder, product }) => {
  const call = id();
  const { mark } = await ask(ana, folder, [[bash(call, `echo done >> ${folder}/log`)], [{ text: 'As you wish.' }]]);
  await ana.run('Paused');
  await ana.reject('Not this week: the books are closed.', { stop: true });
  await ana.sees(ana.page.getByText('Rejected by Ana Ruka'));
  await expect(ana.page.locator('.page-head .status')).toHaveText(/Cancelled|Done/);
  await say(ana, script('And now', [[{ text: 'I have read it.' }]]));
  await ana.sees(ana.page.locator('.say', { hasText: 'I have read it.' }));
  expect(product.endpoint.results(mark).get(call)).toMatchObject({ isError: true, text: 'Not this week: the books are closed.' });
  expect(lines(join(folder, 'log'))).toEqual([]);
});

test('what is allowed until it ends is not asked again, and nothing is written into the repository', async ({ ana, folder, product }) => {
  const { page } = ana;
  const { session } = await ask(ana, folder, [
    [bash(id(), `touch ${folder}/one`)], [bash(id(), `touch ${folder}/two`)], [{ text: 'Both are there.' }],
  ]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  const { grants } = await ana.api.approval(approval);
  expect(grants.length).toBeGreaterThan(0);
  expect(grants.every((grant) => grant.native.includes('"session"'))).toBe(true);
  await page.getByRole('button', { name: 'Allow until it ends…' }).click();
  const allow = dialog(ana, 'Approve and allow more');
  await expect(allow).toContainText('never written into the repository');
  // The rule itself is shown; only a single one is ticked from the start.
  const rule = allow.getByRole('checkbox', { name: /Bash\(touch/ });
  if (grants.length > 1) await expect(rule).not.toBeChecked();
  else await expect(rule).toBeChecked();
  for (const box of await allow.getByRole('checkbox').all()) await box.check();
  await allow.getByRole('button', { name: 'Approve and allow' }).click();
  await ana.run('Done');
  expect([existsSync(join(folder, 'one')), existsSync(join(folder, 'two'))]).toEqual([true, true]);
  expect((await ana.api.waiting()).filter((row) => row.session === session)).toEqual([]);
  await ana.sees(page.locator('.granted', { hasText: 'Bash(touch' }));
  expect(existsSync(join(folder, '.claude'))).toBe(false);

  // Its process ends, and the worker has put its files away: the next one asks again.
  const { pid } = program(folder);
  process.kill(pid, 'SIGKILL');
  await expect.poll(() => working('claude', folder)).toEqual([]);
  await expect.poll(() => product.workerFiles(session).filter(({ name }) => name.includes('/'))).toEqual([]);
  await say(ana, script('Once more', [[bash(id(), `touch ${folder}/three`)], [{ text: 'Three.' }]]));
  await ana.run('Paused');
  expect(program(folder).pid).not.toBe(pid);
  expect(existsSync(join(folder, 'three'))).toBe(false);
});

test('questions are answered by choices and in own words', async ({ ana, folder, product, expectError }) => {
  const { page } = ana;
  const call = id();
  const { mark } = await ask(ana, folder, [[question(call)], [{ text: 'Thank you.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  expect((await ana.api.approval(approval)).row.title).toBe('Which day does a refund count on?');
  // Nothing here says yes without an answer.
  await expect(ana.approve).toHaveCount(0);
  await expect(page.locator('.decide .say')).toHaveText('0 of 2 answered.');
  expectError(/422/);
  await page.getByRole('button', { name: 'Send answers' }).click();
  await expect(page.getByRole('alert')).toContainText('Answer every question, or reject the request.');
  await answer(ana);
  await expect(page.locator('.decide .say')).toHaveText('2 of 2 answered.');
  await page.getByRole('button', { name: 'Send answers' }).click();
  await ana.run('Done');
  const told = product.endpoint.results(mark).get(call);
  expect(told?.isError).toBe(false);
  expect(told?.text).toContain('The day of the payment');
  expect(told?.text).toContain('EUR, SEK, and CHF & "others"');
  const answers = page.locator('.answers');
  await expect(answers.locator('dd')).toHaveText(['The day of the payment', 'EUR, SEK, and CHF & "others"']);
  await ana.go(`/approvals/${approval}`);
  await expect(page.locator('.question').last().locator('.answer')).toContainText('EUR, SEK, and CHF & "others"');
  await expect(page.locator('.receipt')).toContainText('Answered by Ana Ruka');
});

test('by keyboard alone questions are answered, and what is half answered outlives a redraw', async ({ ana, folder, product }) => {
  const { page } = ana;
  const call = id();
  const { mark } = await ask(ana, folder, [[question(call)], [{ text: 'Thank you.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  await ana.go(`/approvals/${approval}`);
  const [first, second] = [page.getByRole('radio').first(), page.getByRole('radio').last()];
  await first.focus();
  await page.keyboard.press('ArrowDown');
  await expect(second).toBeChecked();
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await expect(page.getByRole('checkbox', { name: /EUR/ })).toBeFocused();
  await page.keyboard.press('Space');
  // Another session's request redraws the page; nothing is lost, and the focus stays.
  const agent = await ana.api.agent('claude');
  await ana.api.post('session/start', { agent: agent.id, prompt: script('Elsewhere', [[bash(id(), `touch ${folder}/other`)]]) });
  await expect(page).toHaveTitle(/^\(2\)/);
  await expect(page.getByRole('checkbox', { name: /EUR/ })).toBeFocused();
  await expect(page.getByRole('checkbox', { name: /EUR/ })).toBeChecked();
  await expect(second).toBeChecked();
  await page.getByLabel('In your own words').last().focus();
  await page.keyboard.type('CHF');
  await page.keyboard.press('Control+Enter');
  await ana.sees(page.locator('.receipt .done', { hasText: 'Effect' }));
  // The effect shows before the model is asked again.
  await expect.poll(() => product.endpoint.results(mark).get(call)?.text).toContain('EUR, CHF');
});

test('a refused form that was sent before the page could answer comes back filled in, and then answers', async ({ ana, folder, expectError }) => {
  const { page } = ana;
  expectError(/ERR_FAILED|Failed to fetch|fetch/);
  await ask(ana, folder, [[question(id())], [{ text: 'Thank you.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  let late = true;
  await page.route(/\.wasm$/, async (route) => late ? await route.abort() : await route.continue());
  await page.goto(`/approvals/${approval}`);
  await page.getByRole('radio', { name: /The day of the payment/ }).check();
  await page.getByLabel('In your own words').first().fill('By the bank’s day');
  late = false;
  await page.getByRole('button', { name: 'Send answers' }).click();
  await page.waitForURL(/__err/);
  await ana.ready();
  await expect(page.locator('.decide .say')).toHaveText('1 of 2 answered.');
  await expect(page.getByRole('radio', { name: /The day of the payment/ })).toBeChecked();
  await expect(page.getByLabel('In your own words').first()).toHaveValue('By the bank’s day');
  await page.getByRole('checkbox', { name: /USD/ }).check();
  await page.getByRole('button', { name: 'Send answers' }).click();
  await ana.sees(page.locator('.receipt .done', { hasText: 'Effect' }));
});

test('what was filled in before the page could answer is kept', async ({ ana, folder }) => {
  const { page } = ana;
  await ask(ana, folder, [[question(id())], [{ text: 'Thank you.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  let go = () => {};
  const gate = new Promise<void>((done) => { go = done; });
  await page.route(/\.wasm$/, async (route) => { await gate; await route.continue(); });
  await page.goto(`/approvals/${approval}`, { waitUntil: 'commit' });
  await page.getByRole('radio', { name: /The day of the payment/ }).check();
  await page.getByRole('checkbox', { name: /SEK/ }).check();
  await page.getByLabel('In your own words').first().fill('By the bank’s day');
  go();
  await ana.ready();
  await expect(page.locator('.decide .say')).toHaveText('2 of 2 answered.');
  await expect(page.getByRole('radio', { name: /The day of the payment/ })).toBeChecked();
  await expect(page.getByRole('checkbox', { name: /SEK/ })).toBeChecked();
  await expect(page.getByLabel('In your own words').first()).toHaveValue('By the bank’s day');
});

test('questions are answered without script', async ({ ana, adminState, folder, open, product }) => {
  const call = id();
  const { mark } = await ask(ana, folder, [[question(call)], [{ text: 'Thank you.' }]]);
  await ana.run('Paused');
  const [{ id: approval }] = await ana.api.waiting();
  const plain = await open(adminState, { javaScriptEnabled: false });
  await plain.go(`/approvals/${approval}`);
  const many = plain.page.getByRole('group', { name: /Which currencies/ });
  await many.getByRole('checkbox', { name: /SEK/ }).check();
  await many.getByLabel('In your own words').fill('half an <answer>');
  await plain.page.getByRole('button', { name: 'Send answers' }).click();
  await expect(plain.page.getByRole('alert')).toContainText('Answer every question, or reject the request.');
  // What was filled in came back with the refusal.
  await expect(many.getByRole('checkbox', { name: /SEK/ })).toBeChecked();
  await expect(many.getByRole('checkbox', { name: /EUR/ })).not.toBeChecked();
  await expect(many.getByLabel('In your own words')).toHaveValue('half an <answer>');
  await answer(plain);
  await plain.page.getByRole('button', { name: 'Send answers' }).click();
  await plain.sees(plain.page.locator('.receipt .done', { hasText: 'Effect' }));
  // The effect shows before the model is asked again.
  await expect.poll(() => product.endpoint.results(mark).get(call)?.text).toContain('EUR, SEK, and CHF & "others"');
});

test('a question is declined with words', async ({ ana, folder, product }) => {
  const call = id();
  const { mark } = await ask(ana, folder, [[question(call)], [{ text: 'Then not.' }]]);
  await ana.run('Paused');
  await ana.reject('Ask the bookkeeper.');
  await ana.run('Done');
  expect(product.endpoint.results(mark).get(call)).toMatchObject({ isError: true, text: 'Ask the bookkeeper.' });
});

test('questions in a shape that cannot be shown can only be refused', async ({ ana, folder }) => {
  const { page } = ana;
  await ask(ana, folder, [[question(id())], [{ text: 'Then not.' }]]);
  await ana.run('Paused');
  // Claude Code itself sends no such shape: the page is told of one.
  await page.route(/\/api\/approval\/read/, async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...await answer.json() as object, reply: 'refusal', questions: [] } });
  });
  await ana.go('/approvals');
  await page.locator('#main .rows .row').click();
  await ana.sees(page.getByText('These questions have a shape that cannot be answered here.'));
  for (const button of ['Approve', 'Send answers', 'Change…']) await expect(page.getByRole('button', { name: button })).toHaveCount(0);
  await expect(page.locator('.action')).toContainText('Which day does a refund count on?');
  await ana.reject('Ask in one sentence.');
  await ana.sees(page.locator('.receipt .done', { hasText: 'Refusal seen' }));
});

test('a plan is sent back with words, then approved', async ({ ana, folder, product }) => {
  const { page } = ana;
  const [first, second, call] = [id(), id(), id()];
  const { mark } = await ask(ana, folder, [
    [writePlan('# Move the refunds\n\n1. Stop the export.\n2. Move them.')], [plan(first)],
    [writePlan('# Move the refunds\n\n1. Copy them first.')], [plan(second)],
    [bash(call, `echo moved >> ${folder}/log`)], [{ text: 'Moved.' }],
  ], { mode: 'plan' });
  await ana.run('Paused');
  await expect(ana.requests.locator('.action').last()).toContainText('Stop the export.');
  await expect(ana.approve).toHaveCount(0);
  await page.getByRole('button', { name: 'Send back…' }).click();
  const back = dialog(ana, 'Send the plan back');
  await back.getByRole('textbox').fill('Copy before you move.');
  await back.getByRole('button', { name: 'Send back' }).click();
  await ana.sees(ana.requests.locator('.action', { hasText: 'Copy them first.' }));
  expect(product.endpoint.results(mark).get(first)).toMatchObject({ isError: true });
  expect(product.endpoint.results(mark).get(first)?.text).toContain('Copy before you move.');

  await page.getByRole('button', { name: 'Approve plan' }).click();
  // It has left plan mode, and asks before it does anything.
  await ana.sees(ana.requests.locator('.action', { hasText: 'echo moved' }));
  expect(lines(join(folder, 'log'))).toEqual([]);
  await ana.approve.click();
  await ana.run('Done');
  expect(lines(join(folder, 'log'))).toEqual(['moved']);
  await ana.api.edit('claude', { mode: 'default' });
});

test('a plan without its text says so, and what is allowed with it is allowed', async ({ ana, folder }) => {
  const { page } = ana;
  await ask(ana, folder, [
    [plan(id())], [{ tool: 'Write', input: { file_path: join(folder, 'made.txt'), content: 'made\n' } }], [{ text: 'Made.' }],
  ], { mode: 'plan' });
  await ana.run('Paused');
  await expect(ana.requests).toContainText('The agent sent no text of its plan with this request; read it in the conversation above.');
  await page.getByRole('button', { name: 'Approve and allow…' }).click();
  const allow = dialog(ana, 'Approve and allow more');
  // The only suggestion is ticked.
  await expect(allow.getByRole('checkbox')).toBeChecked();
  await allow.getByRole('button', { name: 'Approve and allow' }).click();
  await ana.run('Done');
  expect(lines(join(folder, 'made.txt'))).toEqual(['made']);
  await ana.api.edit('claude', { mode: 'default' });
});

test('an agent set to ask for everything asks before it reads', async ({ ana, folder }) => {
  await ask(ana, folder, [[bash(id(), 'ls')], [{ text: 'Listed.' }]], { asks_everything: true });
  await expect(ana.page.locator('.page-head').last()).toContainText('asks for everything');
  await ana.run('Paused');
  await expect(ana.requests.locator('.action pre')).toContainText('ls');
  await ana.approve.click();
  await ana.run('Done');
  await ana.api.edit('claude', { asks_everything: false });
});
