// Readers get their own data or none, whatever the server refuses: the packages memcached and memjs.
'use strict'
const Memcached = require('memcached')
const memjs = require('memjs')
const { same, call, run } = require('./common')

const USERS = ['alice', 'bob', 'carol', 'dave']

// A value as text; nothing for a miss or a refusal.
const text = (got) => {
  if (got === undefined || got === null || got.error) return undefined
  return Buffer.isBuffer(got) ? got.toString() : got
}

const check = async (kind, client) => {
  const own = (got, name, what) => {
    const found = text(got)
    if (found !== undefined) same(found, `data-${name}`, `${kind} ${what}, asked for ${name}`)
  }
  const readAll = async (what) => {
    for (const name of USERS) own(await client.get(`user:${name}`), name, what)
  }
  for (const name of USERS) {
    same(await client.set(`user:${name}`, `data-${name}`), true, `${kind} set`)
  }
  await client.get('large')
  await readAll('after a refused large value')
  if (client.getMany) {
    const many = await client.getMany(['user:alice', 'large', 'user:bob'])
    for (const name of ['alice', 'bob']) own((many || {})[`user:${name}`], name, 'many keys')
    await readAll('after many keys with a refused one')
  }
  await client.set('user:photo', 'x'.repeat(2 << 20))
  await readAll('after a value that is too large')
  await client.increment('user:alice')
  await readAll('after a count of what is no number')
  for (const name of USERS) {
    same(text(await client.get(`user:${name}`)), `data-${name}`, `${kind} ${name} at the end`)
  }
}

run('node', async () => {
  const settings = { timeout: 20000, retries: 0, poolSize: 1, maxValue: 4 << 20 }
  const plain = new Memcached(process.argv[2], settings)
  await check('memcached', {
    get: (key) => call(plain, 'get', key),
    getMany: (keys) => call(plain, 'getMulti', keys),
    set: (key, value) => call(plain, 'set', key, value, 0),
    increment: (key) => call(plain, 'incr', key, 1)
  })
  plain.end()
  const packets = memjs.Client.create(process.argv[2], { timeout: 20, retries: 0 })
  const attempt = (promise) => promise.catch((error) => ({ error }))
  await check('memjs', {
    get: async (key) => (await attempt(packets.get(key))).value,
    set: (key, value) => attempt(packets.set(key, value, { expires: 0 })),
    increment: (key) => attempt(packets.increment(key, 1))
  })
  packets.close()
})
