// A page that was opened from a file may not start a worker. Its search then runs in a hidden frame,
// which behaves as a worker does: messages are copied, answers come later.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.tell(this, data));
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = address;
        script.onload = resolve;
        inside.document.body.append(script);
      });
      this.inside = inside;
    }
    tell(whom, data) {
      whom.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
    }
    postMessage(data) {
      this.ready.then(() => this.tell(this.inside, data));
    }
  };
}
