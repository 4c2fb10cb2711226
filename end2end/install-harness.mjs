// Puts the real harness programs, at exact versions, into `.harness/` and prints the
// path of `claude` on the last line. They are the platform packages of npm: one program
// each, no install scripts, nothing fetched later. Where one can't be had this says so in
// one line and prints no path; its tests are then skipped.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const VERSION = '2.1.332';

/** The program's path once it is installed, or the reason why there is none. */
function install() {
  const systems = { linux: 'linux', darwin: 'darwin' };
  const system = systems[process.platform];
  if (!system || !['x64', 'arm64'].includes(process.arch)) {
    return { why: `there is no package for ${process.platform} on ${process.arch}` };
  }
  // Node says which libc it runs on: glibc has a version, musl none.
  const musl = system === 'linux' && !process.report.getReport().header.glibcVersionRuntime;
  const name = `@anthropic-ai/claude-code-${system}-${process.arch}${musl ? '-musl' : ''}`;
  const folder = join(dirname(fileURLToPath(import.meta.url)), '.harness');
  const home = join(folder, `claude-${VERSION}`);
  const program = join(home, 'node_modules', name, 'claude');
  if (!existsSync(program)) {
    // Renamed when it is whole, so that a broken download is not taken for the program.
    const fresh = join(folder, 'claude.new');
    rmSync(fresh, { recursive: true, force: true });
    mkdirSync(fresh, { recursive: true });
    console.log(`Installing ${name} ${VERSION}.`);
    const done = spawnSync(
      'npm',
      ['install', '--ignore-scripts', '--no-save', '--no-audit', '--no-fund', '--loglevel=error',
        '--prefix', fresh, `${name}@${VERSION}`],
      { cwd: fresh, encoding: 'utf8', timeout: 300_000 },
    );
    if (done.status !== 0) {
      const words = (done.stderr ?? '').split('\n').find((line) => line.trim());
      return { why: words?.trim() ?? done.error?.message ?? 'npm failed' };
    }
    rmSync(home, { recursive: true, force: true });
    renameSync(fresh, home);
  }
  const said = spawnSync(program, ['--version'], { encoding: 'utf8', timeout: 30_000 });
  if (!said.stdout?.startsWith(VERSION)) {
    return { why: `it does not run here: ${said.error?.message ?? said.stderr ?? said.stdout}`.trim() };
  }
  return { program };
}

const { program, why } = install();
console.log(program ?? `SKIPPED: the tests with Claude Code ${VERSION} do not run, because ${why}.`);
