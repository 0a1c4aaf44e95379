"""Open every built page in Chromium, without network: `python doc/check_pages.py doc/_build/html`.

Fails on errors in the browser's console, on requests that leave the machine, on dead links within
the pages, on pages wider than a telephone, and where the search does not find the right page first
for a newcomer's question.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# What newcomers type, and the page that answers.
QUESTIONS = {
    "number of topics": "guide/how_many_topics",
    "number of clusters": "guide/clusters",
    "which estimator": "user_guide",
    "csv": "auto_examples/plot_tutorial_texts",
    "speeches": "auto_examples/plot_tutorial_speeches",
    "anndata": "auto_examples/plot_tutorial_blood_cells",
    "embeddings": "auto_examples/plot_tutorial_embeddings",
    "latency": "auto_examples/plot_tutorial_api",
    "categories holes": "auto_examples/plot_mixed_table",
    "missing values": "auto_examples/plot_missing_values",
    "gensim": "guide/from_other_libraries",
    "from scikit-learn": "guide/from_scikit_learn",
    "save model": "guide/files",
    "checkpoint": "guide/files",
    "stream": "guide/streams",
    "dask": "guide/cluster",
    "reproducible": "guide/same_answer",
    "latent class analysis": "guide/survey",
    "outliers": "guide/amounts",
    "ratings": "guide/ordinal_columns",
    "seed words": "guide/seeded_topics",
    "plot": "guide/plotting",
    "elbo": "guide/elbo",
    "temperature": "guide/temperature",
    "uncertainty": "guide/posterior",
    "perplexity": "generated/skvt.metrics.perplexity",
    "topic model": "guide/structured_lda",
    "gaussian mixture": "guide/memoized_dpgmm",
    "install": "index",
    "benchmark": "measured",
}
# Opens the pages one after the other, then asks the questions.
DRIVER = """<!DOCTYPE html><link rel="icon" href="data:,"><script>
const sleep = (time) => new Promise((done) => setTimeout(done, time));
const open = (path) => new Promise((done) => {
  document.body.replaceChildren();
  const frame = Object.assign(document.createElement("iframe"), { width: 1200, height: 800 });
  frame.onload = () => done(frame.contentWindow);
  frame.src = path;
  document.body.append(frame);
});
onload = async () => {
  const { pages, questions } = await (await fetch("/tasks")).json();
  const report = { outside: [], found: {}, wide: {} };
  const places = new Set(), links = {};
  for (const page of pages) {
    const shown = await open("/" + page);
    await sleep(100);
    const { pathname } = shown.location;
    places.add(pathname);
    shown.document.querySelectorAll("[id]").forEach((one) => places.add(pathname + "#" + one.id));
    for (const { origin, pathname: to, hash } of shown.document.querySelectorAll("a[href]"))
      if (origin === location.origin && to.endsWith(".html"))
        links[to + decodeURIComponent(hash.length > 1 ? hash : "")] ??= page;
    shown.frameElement.width = 400;
    for (const one of shown.document.querySelectorAll("html, main, .bd-article-container, article"))
      if (one.scrollWidth > 400) report.wide[page] = one.scrollWidth;
    const urls = shown.performance.getEntriesByType("resource").map((entry) => entry.name);
    report.outside.push(...urls.filter((url) => /^https?:/.test(url) &&
      !url.startsWith(location.origin)).map((url) => page + ": " + url));
  }
  report.dead = Object.entries(links).filter(([place]) => !places.has(place));
  for (const question of questions) {
    const { document } = await open("/search.html?q=" + encodeURIComponent(question));
    const ended = () => /found|did not match/.test(
      document.querySelector("#search-results p.search-summary")?.textContent ?? "");
    for (let wait = 0; wait < 100 && !ended(); wait++) await sleep(100);
    const links = [...document.querySelectorAll("#search-results li a")];
    report.found[question] = links.slice(0, 3).map((link) => new URL(link.href).pathname);
  }
  await fetch("/report", { method: "POST", body: JSON.stringify(report) });
};
</script><body></body>"""


class Server(ThreadingHTTPServer):
    """The built pages, the driver, its tasks, and the place that it reports to."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=folder))
        pages = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.html"))]
        self.tasks = {
            "pages": [page for page in pages if not page.startswith("_static")],
            "questions": list(QUESTIONS),
        }
        self.report, self.done = None, Event()


class Handler(SimpleHTTPRequestHandler):
    """Answers of a `Server`."""

    def do_GET(self):
        own = {"/driver": ("text/html", DRIVER)}
        own["/tasks"] = "application/json", json.dumps(self.server.tasks)
        if self.path not in own:
            super().do_GET()
            return
        kind, text = own[self.path]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        self.server.report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.done.set()

    def log_message(self, *args):
        """Say nothing of requests."""


def complaints(folder, timeout=900.0):
    """What is wrong with the pages of a folder, one line each."""
    with Server(folder) as server, tempfile.TemporaryDirectory() as scratch:
        Thread(target=server.serve_forever, daemon=True).start()
        log = Path(scratch, "log")
        with log.open("wb") as errors:
            browser = subprocess.Popen(
                [
                    BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                    "--enable-logging=stderr", f"--user-data-dir={scratch}/profile",
                    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                    "--remote-debugging-port=0",  # stays open until it is told to end
                    f"http://127.0.0.1:{server.server_port}/driver",
                ],
                stderr=errors,
            )  # fmt: skip
            ended = server.done.wait(timeout)
            browser.terminate()
            browser.wait()
        server.shutdown()
        said = re.findall(r":CONSOLE[^\]]*\] (.*)", log.read_text(errors="replace"))
    if not ended:
        return [f"no end after {timeout:g} s", *said]
    # (the theme says in which colours it is)
    colours = re.compile(r'"(\[PST\]: |Got invalid theme mode)')
    wrong = [f"console: {line}" for line in said if not colours.match(line)]
    wrong += [f"asks for {line}" for line in server.report["outside"]]
    wrong += [f"{page}: no {place} to link to" for place, page in server.report["dead"]]
    wrong += [f"{page} is {w} pixels wide, not 400" for page, w in server.report["wide"].items()]
    for question, page in QUESTIONS.items():
        found = [path[1:].removesuffix(".html") for path in server.report["found"][question]]
        if found[:1] != [page]:
            wrong.append(f"search: {question!r} finds {', '.join(found) or 'nothing'}, not {page}")
    print(f"{len(server.tasks['pages'])} pages, {len(QUESTIONS)} questions")
    return wrong


if __name__ == "__main__":
    if BROWSER is None:
        sys.exit("no Chromium: apt-get install chromium")
    found = complaints(Path(sys.argv[1]).resolve())
    sys.exit("\n".join(found) if found else 0)
