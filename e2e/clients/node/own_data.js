// Readers get only their own data, whatever the server refuses: the packages memcached and memjs.
// A library may give up a server after a refusal, so a reader retries until it has a value.
'use strict'
const Memcached = require('memcached')
const memjs = require('memjs')
const { same, call, run } = require('./common')

const USERS = ['alice', 'bob', 'carol', 'dave']

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// A value as text; undefined for a miss or a refusal.
const text = (got) => {
  const isNothing = Array.isArray(got) && got.length === 0
  if (got === undefined || got === null || got.error || isNothing) return undefined
  return Buffer.isBuffer(got) ? got.toString() : got
}

const check = async (kind, client) => {
  const own = (got, name, what) => {
    const found = text(got)
    if (found !== undefined) same(found, `data-${name}`, `${kind} ${what}, asked for ${name}`)
  }
  const readAll = async (what) => {
    for (const name of USERS) {
      const end = Date.now() + 20000
      let got
      while ((got = text(await client.get(`user:${name}`))) === undefined) {
        if (Date.now() > end) throw new Error(`${kind} ${what}: ${name} reads nothing`)
        await pause(100)
        if (client.renew) client.renew()
      }
      own(got, name, what)
    }
  }
  for (const name of USERS) {
    same(await client.set(`user:${name}`, `data-${name}`), true, `${kind} set`)
  }
  await client.get('large')
  await readAll('after a large value')
  if (client.getMany) {
    const many = await client.getMany(['user:alice', 'large', 'user:bob'])
    for (const name of ['alice', 'bob']) own((many || {})[`user:${name}`], name, 'many keys')
    await readAll('after many keys with a refused one')
  }
  await client.set('user:photo', 'x'.repeat(2 << 20))
  await readAll('after a value that is too large')
  await client.increment('user:alice')
  await readAll('after a count of what is no number')
}

run('node', async () => {
  const settings = { timeout: 20000, retries: 0, poolSize: 1, maxValue: 4 << 20 }
  // After a refusal this library marks the server dead for 30 seconds, and some of its calls never
  // return. This reader creates a new client, as an application would.
  let plain
  const renew = () => {
    if (plain) plain.end()
    plain = new Memcached(process.argv[2], settings)
  }
  renew()
  const within = (name, ...args) => Promise.race([call(plain, name, ...args), pause(2000)])
  await check('memcached', {
    renew,
    get: (key) => within('get', key),
    getMany: (keys) => within('getMulti', keys),
    set: (key, value) => within('set', key, value, 0),
    increment: (key) => within('incr', key, 1)
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
