"""Drives the report of culvert bench in Chromium: mouse, keys, filters, narrow and dark screens.

make page-test runs it. PAGE_SHOTS names a directory for screenshots.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).parents[4]
CULVERT = ROOT / "bin" / "culvert"
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)

# What each report is measured with.
REPORTS = {
    "sweep": ["data", "--sweep", "--bs", "4K,64K,1M", "--threads", "1,4", "--peer", "pread", "--repeat", "2"],
    "mixed": ["data", "--rw", "randrw", "--mix", "70", "--bs", "64K,256K", "--overwrite"],
    "one": ["data", "other data", "--bs", "64K"],
}


# OVERLAPS lists the pairs of texts of a chart that cover each other.
OVERLAPS = """id => {
  const all = [...document.querySelectorAll(`#${id} text`)].map(e => [e.textContent, e.getBoundingClientRect()]);
  return all.flatMap(([a, p], i) => all.slice(i + 1).filter(([, q]) => p.x < q.right && q.x < p.right && p.y + 3 < q.bottom && q.y + 3 < p.bottom).map(([b]) => [a, b]));
}"""


@unittest.skipUnless(CHROMIUM, "chromium is not installed (apt-get install chromium)")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        root = pathlib.Path(cls.dir.name)
        for name in ("data", "other data"):
            (root / name).write_bytes(os.urandom(4 << 20))
        environment = dict(os.environ, XDG_CACHE_HOME=cls.dir.name, CULVERT_MACHINE="soft")
        for name, arguments in REPORTS.items():
            command = [CULVERT, "bench", *arguments, "--time", "30ms", "--html", f"{name}.html"]
            subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        play = sync_playwright().start()
        cls.addClassCleanup(play.stop)
        cls.browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        cls.addClassCleanup(cls.browser.close)

    def open(self, name, width=1400, scheme="light"):
        """Opens a report. What it says on the console or asks from elsewhere fails the test."""
        context = self.browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.addCleanup(context.close)
        page = context.new_page()
        page.on("console", lambda message: self.fail(message.text))
        page.on("pageerror", lambda error: self.fail(error.message))
        page.on("request", lambda request: request.url.startswith("file:") or self.fail(request.url))
        page.goto(f"file://{self.dir.name}/{name}.html")
        return page

    def test_fits_every_screen(self):
        for name in REPORTS:
            for width in (400, 1400):
                for scheme in ("light", "dark"):
                    with self.subTest(name=name, width=width, scheme=scheme):
                        page = self.open(name, width, scheme)
                        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
                        for text in page.locator("#throughput text, #latency text, #heat text, #routes text").all():
                            box = text.bounding_box()
                            self.assertTrue(box["x"] >= 0 and box["x"] + box["width"] <= width, text.text_content())
                        for chart in ("throughput", "latency", "heat", "routes"):
                            self.assertEqual(page.evaluate(OVERLAPS, chart), [], chart)
                        self.assertIn("0", page.locator("#throughput text").all_text_contents(), "no unit, whatever that of the others")
                        if shots := os.environ.get("PAGE_SHOTS"):
                            page.screenshot(path=pathlib.Path(shots) / f"{name}-{scheme}-{width}.png", full_page=True)

    def test_mouse(self):
        page = self.open("sweep")
        tip = page.locator("#tip")
        box = page.locator("#throughput .point").first.bounding_box()
        page.mouse.move(box["x"] + 8, box["y"] + 8)  # beside the point
        self.assertRegex(tip.text_content(), r"(?s)block size \S+\n.*GB/s|MB/s.*median of 2 rounds")
        self.assertEqual(page.locator("#throughput .series.on").count(), 1)
        page.keyboard.press("Escape")
        self.assertTrue(tip.is_hidden())
        page.locator("#routes .bar").first.hover()
        self.assertRegex(tip.text_content(), "100% of the bytes\nthrough host memory: ")
        page.locator("#heat .cell").first.hover()
        self.assertRegex(tip.text_content(), "calls: [1-9]")
        page.mouse.move(1, 1)
        self.assertTrue(tip.is_hidden())

    def test_keys(self):
        page = self.open("sweep")
        tip = page.locator("#tip")
        stops = []
        for _ in range(60):
            page.keyboard.press("Tab")
            stops.append(page.evaluate("document.activeElement.closest('.chart, #controls, table, h2, body').id"))
            if stops[-1] == "figures":
                break
        charts = [stop for stop in stops if stop in ("throughput", "latency", "heat", "routes")]
        self.assertEqual(charts, ["throughput", "latency", "heat", "routes"], "each chart is one stop")
        page.locator("#throughput svg").focus()
        seen = []
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown"):
            page.keyboard.press(key)
            seen.append(tip.text_content())
        self.assertEqual(len(set(seen[:3])), 3, seen)
        for text, block in zip(seen, ("4K", "64K", "1M", "64K")):
            self.assertIn(f"block size {block}\n", text)
        page.keyboard.press("Escape")
        self.assertTrue(tip.is_hidden())
        page.locator("#heat svg").focus()
        page.keyboard.press("ArrowUp")
        self.assertIn("calls:", tip.text_content())
        page.keyboard.press("Tab")
        self.assertTrue(tip.is_hidden())

    def test_filters(self):
        page = self.open("sweep")
        lines = page.locator("#throughput .series")
        before = lines.count()
        page.get_by_label("pread").uncheck()
        self.assertEqual(lines.count(), before - 2)  # by 1 and by 4 threads
        page.get_by_label("4 threads").uncheck()
        self.assertEqual(lines.count(), before // 2 - 1)
        self.assertEqual(page.evaluate("document.activeElement.dataset.name"), "filter 4", "the focus stays")
        colour = "e => getComputedStyle(e).getPropertyValue('--own')"
        self.assertEqual(lines.first.evaluate(colour), page.locator("#routes .bar").first.evaluate(colour), "a route has one colour")
        page.locator("[data-name=axis]").select_option("threads")
        self.assertIn("threads", page.locator("#latency").text_content())
        page.locator("[data-name=scale]").select_option("log")
        self.assertEqual(lines.count(), page.locator("#latency .series").count() // 2)

    def test_table(self):
        page = self.open("sweep")
        button = page.locator("#figures th button", has_text="GB/s").first
        button.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")  # the focus stays on the column
        rates = [float(t) for t in page.locator("#figures td:nth-child(7)").all_text_contents()]
        self.assertEqual(rates, sorted(rates, reverse=True))
        rows = self.open("mixed").locator("#figures td:first-child").all_text_contents()
        self.assertEqual([row.strip() for row in rows], ["culvert", "reads", "writes"] * 2)


if __name__ == "__main__":
    unittest.main()
