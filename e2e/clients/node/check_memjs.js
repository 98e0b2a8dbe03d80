// Every command of memjs (binary protocol).
'use strict'
const memjs = require('memjs')
const { same, run } = require('./common')

run('memjs', async () => {
  const c = memjs.Client.create(process.argv[2], { timeout: 10, conntimeout: 10 })
  const text = async (key) => { const { value } = await c.get(key); return value === null ? null : value.toString() }
  await c.flush()
  same(await text('a'), null, 'get of nothing')
  same(await c.set('a', 'one', {}), true, 'set')
  same(await text('a'), 'one', 'get')
  same(await c.add('a', 'two', {}), false, 'add over a value')
  same(await c.add('b', 'two', {}), true, 'add')
  same(await c.replace('a', 'three', {}), true, 'replace')
  same(await c.replace('none', 'x', {}), false, 'replace of nothing')
  same(await c.append('a', '!'), true, 'append')
  same(await c.prepend('a', '?'), true, 'prepend')
  const refused = await c.append('none', '!').then(() => 'stored', (error) => error.message)
  same(refused.includes('not stored'), true, 'append to nothing')
  // Its prepend sends the opcode of append (memjs 1.3.2).
  same(await text('a'), 'three!?', 'the whole')
  same((await c.increment('n', 5, { initial: 10 })).value, 10, 'increment creates')
  same((await c.increment('n', 5, { initial: 10 })).value, 15, 'increment')
  same((await c.decrement('n', 3, { initial: 10 })).value, 12, 'decrement')
  same(await c.touch('a', 100), true, 'touch')
  same(await c.touch('none', 100), false, 'touch of nothing')
  same(await c.delete('a'), true, 'delete')
  same(await c.delete('a'), false, 'delete of nothing')
  const large = Buffer.alloc(900000, 'l')
  same(await c.set('large', large, {}), true, 'a large value')
  same((await c.get('large')).value.equals(large), true, 'the large value again')
  const many = await Promise.all(Array.from({ length: 300 }, (_, i) => c.set(`m${i}`, `v${i}`, {})))
  same(many.every((stored) => stored), true, '300 sets at once')
  const got = await Promise.all(Array.from({ length: 300 }, (_, i) => text(`m${i}`)))
  same(got.every((value, i) => value === `v${i}`), true, '300 gets at once')
  if (!('E2E_ROUTED' in process.env)) { // A proxy has no items to tell of.
    const stats = await new Promise((resolve, reject) =>
      c.stats((error, server, found) => (error ? reject(error) : resolve(found))))
    same(Number(stats.curr_items) > 300, true, 'stats')
  }
  c.close()
})
