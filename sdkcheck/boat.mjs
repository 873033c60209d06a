// Drives boat.dev's SDK. The argument is its name on the registry. The names of methods and parameters are those that
// programs of others use: the SDK itself could not be had when this was written.
import { drive } from './drive.mjs'

const { BoatApi, Configuration, waitUntilReady } = await import(process.argv[2])

let api

await drive({
  open: ({ url, key }) => {
    api = new BoatApi(new Configuration({ basePath: url, accessToken: key }))
  },
  create: async (idempotencyKey, createSandboxRequest) =>
    (await api.create({ idempotencyKey, createSandboxRequest })).sandbox.id,
  ready: async (sandboxId) => {
    await waitUntilReady(api, sandboxId, { intervalMs: 50 })
  },
  get: async (sandboxId) => (await api.get({ sandboxId })).sandbox,
  list: async (params) => (await api.sandboxes(params)).sandboxes.map(({ id }) => id),
  update: async (sandboxId, updateSandboxRequest) => {
    await api.update({ sandboxId, updateSandboxRequest })
  },
  command: async (sandboxId, commandRequest) => {
    const { exitCode, stdout, stderr } = await api.command({ sandboxId, commandRequest })
    return { exitCode, stdout, stderr }
  },
  delete: async (sandboxId, xAsciiConfirmDelete) => {
    await api.deleteSandbox({ sandboxId, xAsciiConfirmDelete })
  },
})
