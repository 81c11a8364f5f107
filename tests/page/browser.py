"""browser: a headless Chromium, driven over its debugging pipe with Python's standard library alone.

Keeps a list of every request that a page makes and of every error on its console. Never waits longer than
TIMEOUT for an answer.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

TIMEOUT = 120  # ends a hang; nothing may count on being faster
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """The browser's path, or None."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="gpucap-browser-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # Descriptors 3 and 4 are the pipe. They are first moved away, lest one overwrites the other.
        inner = (os.dup(to_browser), os.dup(from_browser))

        def give_pipe():
            high = (os.dup(inner[0]), os.dup(inner[1]))
            os.dup2(high[0], 3, inheritable=True)
            os.dup2(high[1], 4, inheritable=True)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", "--hide-scrollbars", "--user-data-dir=" + self.profile, "about:blank"],
            preexec_fn=give_pipe, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        for descriptor in (to_browser, from_browser, *inner):
            os.close(descriptor)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.requests = []
        self.errors = []
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
        except (OSError, RuntimeError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    # --- messages ---

    def receive(self, until):
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise RuntimeError("the browser does not answer")
            more = os.read(self.read_end, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        method, what = message.get("method"), message.get("params", {})
        self.events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(what["exceptionDetails"])[:600])
        elif method == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.errors.append(what["entry"]["text"])

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + TIMEOUT
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(method + ": " + answer["error"]["message"])
                return answer["result"]
            self.note(answer)

    # --- what a person does ---

    def size(self, width, height, scheme="light", ratio=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path, fragment=""):
        """Loads a file from disk and waits until its picture is drawn. Returns the milliseconds that took."""
        self.requests.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + fragment)
        self.wait("document.documentElement && document.documentElement.dataset.drawn")
        return float(self.run("document.documentElement.dataset.drawn"))

    def run(self, code):
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(code + ": " + json.dumps(answer["exceptionDetails"])[:600])
        return answer["result"].get("value")

    def wait(self, code):
        """Until the expression is true."""
        until = time.monotonic() + TIMEOUT
        while not self.run(code):
            if time.monotonic() > until:
                raise RuntimeError("never true: " + code)
            time.sleep(0.02)

    def settle(self):
        """Until what was asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click(self, x, y):
        self.drag(x, y, x)

    def drag(self, x, y, to):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for i in range(1, 5):
            self.mouse("mouseMoved", x + (to - x) * i / 4, y, button="left", buttons=1)
        self.mouse("mouseReleased", to, y, button="left", clickCount=1)
        self.settle()

    def wheel(self, x, y, delta):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)
        self.settle()

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def screenshot(self, path, whole=False):
        self.settle()
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
