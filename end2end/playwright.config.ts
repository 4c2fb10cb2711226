import { existsSync } from 'node:fs';
import { defineConfig } from '@playwright/test';

const root = process.getuid?.() === 0;
const found = [process.env.CHROMIUM, '/usr/bin/chromium'].find((path) => path && existsSync(path));

export default defineConfig({
  testDir: 'tests',
  outputDir: 'results/failures',
  workers: 2,
  retries: 0,
  // Whatever is waited for comes soon on an idle machine; a loaded one gets its time.
  timeout: 120_000,
  expect: { timeout: 30_000 },
  reporter: [['list']],
  use: {
    trace: 'retain-on-failure',
    actionTimeout: 20_000,
    navigationTimeout: 30_000,
    locale: 'en-GB',
    launchOptions: {
      executablePath: found,
      args: [
        ...(root ? ['--no-sandbox'] : []),
        '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
        '--disable-component-update', '--disable-sync',
      ],
    },
  },
  projects: [
    { name: 'desktop', use: { viewport: { width: 1440, height: 900 } } },
    {
      name: 'plain',
      testMatch: /demo\.spec/,
      use: { viewport: { width: 1440, height: 900 }, javaScriptEnabled: false },
    },
    {
      name: 'phone',
      testMatch: /demo\.spec/,
      use: { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true },
    },
  ],
});
