// Builds the preview into dist/: one page and one script, dashboards included, to be served by anything, for example by
// Prometheus itself (--web.user-assets=dist, then /user/index.html).
import { copyFile, mkdir } from 'node:fs/promises';
import { build } from 'esbuild';

await mkdir('dist', { recursive: true });
await build({
  entryPoints: ['src/page.js'],
  bundle: true,
  minify: true,
  outfile: 'dist/page.js',
  format: 'iife',
  target: 'es2022',
  define: { 'process.env.NODE_ENV': '"production"' },
  logLevel: 'warning',
});
await copyFile('src/index.html', 'dist/index.html');
