// Renews the page's main part every two seconds, unless the reader has paused that, selects text, or looks elsewhere.
(() => {
  const main = document.querySelector('main')
  const button = document.querySelector('#pause')
  const note = document.querySelector('#lost')
  let paused = false
  button.hidden = false
  button.addEventListener('click', () => {
    paused = !paused
    button.textContent = paused ? 'Go on refreshing' : 'Pause refreshing'
  })
  const renew = async () => {
    if (paused || document.hidden || !getSelection().isCollapsed) return
    try {
      const answer = await fetch(location.pathname + '?main')
      if (!answer.ok) throw new Error(answer.status)
      const text = await answer.text()
      const wide = [...main.querySelectorAll('.wide')].map((e) => e.scrollLeft)
      main.innerHTML = text
      main.querySelectorAll('.wide').forEach((e, i) => { e.scrollLeft = wide[i] })
      note.hidden = true
    } catch {
      note.hidden = false
    }
  }
  setInterval(renew, 2000)
})()
