// Helpers of the Node client checks: a comparison that shows both sides, and promises.
'use strict'
const assert = require('assert')

let checks = 0

exports.same = (got, want, what) => {
  checks += 1
  assert.deepStrictEqual(got, want, `${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
}

// The result of a function that takes a callback (error, result), or { error }.
exports.call = (object, name, ...args) =>
  new Promise((resolve) => {
    object[name](...args, (error, result) => resolve(error ? { error: String(error) } : result))
  })

exports.run = (client, body) => {
  const late = setTimeout(() => { console.error(`${client}: no answer`); process.exit(1) }, 60000)
  body().then(
    () => { clearTimeout(late); console.log(`${client}: ${checks} checks passed`); process.exit(0) },
    (error) => { console.error(error.message); process.exit(1) }
  )
}
