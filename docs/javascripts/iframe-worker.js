/* The search of pages that are opened from a folder: browsers start no worker there, so its script runs in a frame. */
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.document.open() // from here on the empty page of the frame stays
      this.inside.document.close()
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = this.inside.document.createElement("script")
      script.src = new URL(url, location.href).href
      this.ready = new Promise((done) => script.addEventListener("load", done))
      this.inside.document.documentElement.append(script)
    }

    async postMessage(data) {
      await this.ready
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))
    }
  }
  window.Worker = window.IFrameWorker = FrameWorker
}
