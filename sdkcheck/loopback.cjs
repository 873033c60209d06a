// Loaded ahead of everything else: the SDKs reach 127.0.0.1 and nothing else. What they try beyond that fails, and is
// kept in globalThis.strays, for an SDK may well swallow the failure.
'use strict'
const dgram = require('node:dgram')
const dns = require('node:dns')
const net = require('node:net')

globalThis.strays = []

function refuse(what) {
  globalThis.strays.push(what)
  throw new Error(`sdkcheck: ${what} is not 127.0.0.1`)
}

// target returns the options of a call of connect, which takes them in three forms.
function target(args) {
  if (Array.isArray(args[0])) return target(args[0]) // as node's own modules hand them on
  if (typeof args[0] === 'object') return args[0]
  return Number.isNaN(Number(args[0])) ? { path: args[0] } : { port: args[0], host: args[1] }
}

const connect = net.Socket.prototype.connect
net.Socket.prototype.connect = function (...args) {
  const { path, host } = target(args)
  if (path || host !== '127.0.0.1') refuse(`a connection to ${path ?? host}`)
  return connect.apply(this, args)
}
dgram.Socket.prototype.send = () => refuse('a datagram')
for (const resolver of [dns, dns.promises]) {
  for (const name of Object.keys(resolver)) {
    if (/^(lookup|resolve)/.test(name)) resolver[name] = (question) => refuse(`a look-up of ${question}`)
  }
}
