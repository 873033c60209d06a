// A program that drives an SDK is a set of actions. It reads one JSON array a line, [action, ...arguments], and answers
// each with one line, in order: {"value": ...} or {"error": {...}}.
import { createInterface } from 'node:readline'

export async function drive(actions) {
  actions.strays = () => globalThis.strays
  for await (const line of createInterface({ input: process.stdin })) {
    const [action, ...args] = JSON.parse(line)
    let answer
    try {
      answer = { value: (await actions[action](...args)) ?? null }
    } catch (err) {
      answer = { error: describe(err) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit() // whatever timers and sockets the SDK still has
}

// describe tells of an error what a user's code could decide by.
function describe(err) {
  const { message, exitCode, stdout, stderr } = err
  const statusCode = err.statusCode ?? err.response?.status
  const code = String(err.json?.error?.code ?? err.code ?? '')
  return { class: err.constructor.name, message, statusCode, code, exitCode, stdout, stderr }
}
