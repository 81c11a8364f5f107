#!/usr/bin/env python3
"""The page of a recording in a real browser: it loads from disk without any request, draws, zooms, answers the
pointer and the keys, and shows the blocks that were live, as a recount of the recording has them.

usage: page_browser.py BUILD_FOLDER [SCREENSHOT_FOLDER]

Exit status 77 where there is no Chromium. With a folder, screenshots are left there.
"""
import base64
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402
import recount  # noqa: E402

MILLION = 1000000
EVENTS = 20000
ACTIVATIONS = 4  # the tag, in make_recording
OTHERS = 2171 << 20  # what the job's other processes had at its refusal
PAGES = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "pages"))
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10


def check(condition, words):
    if not condition:
        raise AssertionError(words)


def size_words(size):
    """As page_data.js writes sizes."""
    for unit, name, places in ((GIB, "GiB", 2), (MIB, "MiB", 0), (KIB, "KiB", 0)):
        if size >= unit:
            digits = places or (1 if size < 10 * unit and size % unit else 0)
            return "%.*f %s" % (digits, int(size * 10**digits / unit + 0.5) / 10**digits, name)
    return "%d B" % size


class Case:
    def __init__(self, build, folder, chrome):
        self.build, self.folder, self.chrome = build, folder, chrome

    def path(self, name):
        return os.path.join(self.folder, name)

    def record(self, name, events, process):
        subprocess.run([os.path.join(self.build, "make_recording"), self.path(name), str(events), str(process), "plain"], check=True)
        return self.path(name)

    def page(self, name, *recordings):
        subprocess.run([os.path.join(self.build, "gpucap"), "page", *recordings, "-o", self.path(name)], check=True,
                       stderr=subprocess.PIPE)
        return self.path(name)

    def open(self, path, fragment=""):
        took = self.chrome.open(path, fragment)
        check(self.chrome.errors == [], self.chrome.errors)
        check(self.chrome.requests == ["file://" + path], "requests: %s" % self.chrome.requests)
        return took

    def view(self):
        return self.chrome.run("[page.view.from, page.view.to]")

    def at(self, share, lane=0):
        """Where a share of the time axis is, in the middle of a lane."""
        return self.chrome.run(
            "(box => [box.left + page.layout.left + %g * page.layout.plot, box.top + page.lanes[%d].y + page.lanes[%d].height / 2])"
            "(page.over.getBoundingClientRect())" % (share, lane, lane))


def test_picture_and_sentence(case, recording):
    case.open(case.page("one.html", recording))
    most, when = recount.peak(recording)
    sentence = case.chrome.run("document.querySelector('#sentences p:not(.bad)').textContent")
    check(size_words(most).split()[0] in sentence, "%s is not in: %s" % (size_words(most), sentence))
    check("%.0f ms" % (when / 1e6) in sentence, "%d is not in: %s" % (when, sentence))
    check(case.chrome.run("document.querySelector('#sentences .bad').textContent").startswith("Out of memory at "), "the refusal is not said")
    colours = case.chrome.run(
        "(data => new Set(Array.from({ length: data.length / 4 }, (_, i) => data[4 * i] << 16 | data[4 * i + 1] << 8 | data[4 * i + 2])).size)"
        "(page.picture.getContext('2d').getImageData(0, 0, page.picture.width, page.picture.height).data)")
    check(colours > 20, "the picture is empty: %d colours" % colours)
    check(len(case.chrome.run("page.picture.getAttribute('aria-label')")) > 60, "the picture has no words")


def test_the_refusal_is_explained_first(case):
    words = case.chrome.run("document.querySelector('#sentences p').innerText").replace("\u00a0", " ")
    used, asked = case.chrome.run("[usedAt(page.tracks[0], page.refusals[0].time), page.refusals[0].bytes]")
    check(asked == 147 * MIB and "asked for 147 MiB (workspace)" in words, "what was asked for: " + words)
    check("In use: %s of 8.00 GiB (limit of the job): activations " % size_words(used + OTHERS).split()[0] in words, "what was in use: " + words)
    check(", other processes of the job 2.12 GiB, " in words, "what others had: " + words)
    case.chrome.wait("page.moment !== null")
    check(case.chrome.run("page.moment.time === page.refusals[0].time && !document.getElementById('moment').hidden"), "its blocks are not shown")
    check(case.chrome.run("page.lanes[0].most") >= used + asked, "the request does not fit the picture")
    case.chrome.key("Escape")


def test_without_a_limit_the_card_is_it(case):
    names = [(67, 0, b"vm\0\0/opt/bin/train --steps=3"), (68, 0, b"simgpu\0GPU-1\0%d" % (8 * MIB))]
    recount.write(case.path("card.gpucap"), names, [(recount.CONTEXT, 5, 0, MIB, 0, 0), (recount.ALLOC, 10, 4096, 5 * MIB, 0, 0), (recount.REFUSAL, 15, 0, 3 * MIB, 0, 0)])
    case.open(case.page("card.html", case.path("card.gpucap")))
    check("the card, 8 MiB" in case.chrome.run("document.getElementById('facts').innerText"), "the card's size is not said")
    check("6 of 8 MiB" in case.chrome.run("document.querySelector('#sentences p').innerText").replace("\u00a0", " "), "6 of 8 MiB were in use")
    check("CUDA context" in case.chrome.run("document.getElementById('legend').innerText"), "the legend lacks the context")
    check(case.chrome.run("topOf(page, page.lanes[0])") >= 9 * MIB, "the request does not fit the picture")
    check(case.chrome.run("document.getElementById('title').innerText") == "train --steps=3", "the title has the program's folder")


def test_zoom(case):
    chrome = case.chrome
    end = chrome.run("page.end")
    check(case.view() == [0, end], "not all is shown at first")
    (left, y), (right, _) = case.at(0.25), case.at(0.5)
    chrome.drag(left, y, right)
    zoomed = case.view()
    check(abs(zoomed[0] - end / 4) < end / 100 and abs(zoomed[1] - end / 2) < end / 100, "a drag zooms to %s" % zoomed)
    chrome.key("ArrowRight")
    moved = case.view()
    check(moved[0] > zoomed[0] and abs((moved[1] - moved[0]) - (zoomed[1] - zoomed[0])) < 1, "an arrow moves to %s" % moved)
    chrome.wheel(*case.at(0.5), -200)
    check(case.view()[1] - case.view()[0] < moved[1] - moved[0], "the wheel does not zoom in")
    before = case.view()
    chrome.key("-")
    check(case.view()[1] - case.view()[0] > before[1] - before[0], "- does not zoom out")
    chrome.key("+")
    chrome.wait("location.hash.includes('t=' + Math.round(page.view.from))")
    kept, fragment = case.view(), chrome.run("location.hash")
    chrome.key("0")
    check(case.view() == [0, end], "0 does not show all")
    case.open(case.path("one.html"), fragment)
    check(all(abs(a - b) <= 1 for a, b in zip(case.view(), kept)), "the address shows %s, not %s" % (case.view(), kept))
    chrome.key("0")


def test_hover(case):
    case.chrome.move(*case.at(0.3))
    text = case.chrome.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")
    check("activations" in text and "in use" in text and "limit" in text, "the pointer shows: " + text)
    x, y = case.chrome.run(
        "(target => [page.over.getBoundingClientRect().left + target.x, page.over.getBoundingClientRect().top + target.y + 30])"
        "(page.targets.find(target => target.mark.type === REFUSAL))")
    case.chrome.move(x, y)
    text = case.chrome.run("document.getElementById('tip').innerText")
    check("refused: 147 MiB for cuDNN (workspace)" in text, "the refusal shows: " + text)


def expect_blocks(case, recording, offset):
    """The table has the blocks that the recording has at the moment shown."""
    count = case.chrome.run("page.moment.track.op.subarray(0, page.moment.step + 1).filter(op => op === OP_ALLOC || op === OP_FREE).length")
    time = case.chrome.run("page.moment.time") - offset
    rows = case.chrome.run("[...document.querySelectorAll('#blocks tbody tr')].map(row => [row.cells[0].innerText.trim(), row.cells[6].innerText])")
    last, live = recount.live_after(recording, count)
    check(0 <= time - last < 1e9, "%d is not the moment after %d" % (time, last))
    check(rows, "no blocks at %d" % time)
    check(case.chrome.run("document.getElementById('blocks-title').innerText").startswith("%d block" % len(live)), "%d blocks are live" % len(live))
    sizes = [size_words(size) for size, _ in live[:len(rows)]]
    check([row[0] for row in rows] == sizes, "at %d: %s, not %s" % (time, rows, sizes))
    addresses = {"0x%x" % address for size, address in live if size_words(size) == sizes[0]}
    check(rows[0][1] in addresses, "at %d: %s is not among %s" % (time, rows[0], addresses))


def test_click_shows_the_blocks_of_that_moment(case, recording):
    for share in (0.02, 0.31, 0.5, 0.77, 0.999):
        case.chrome.click(*case.at(share))
        expect_blocks(case, recording, 0)
    case.chrome.key("m")
    check(case.chrome.run("page.tracks[0].named[page.moment.step] >= Math.max(...page.tracks[0].named)"), "m is not the highest moment")
    expect_blocks(case, recording, 0)
    for key in "nnnppppp":
        case.chrome.key(key)
        expect_blocks(case, recording, 0)
    check(case.chrome.run("document.querySelectorAll('#blocks details li').length") > 0, "no stacks")
    case.chrome.key("Escape")
    check(case.chrome.run("document.getElementById('moment').hidden"), "Escape does not close the moment")


def test_left_out_groups(case, recording):
    """Without activations the picture's peak is that of the rest."""
    case.chrome.run("[...document.querySelectorAll('#legend button')].find(button => button.innerText === 'activations').click()")
    case.chrome.settle()
    live = most = 0
    for event in recount.events(recording):
        if event["type"] == recount.CONTEXT:
            context = event["bytes"]
        if event["type"] in (recount.ALLOC, recount.FREE) and event["tag"] != ACTIVATIONS:
            live += event["bytes"] if event["type"] == recount.ALLOC else -event["bytes"]
        most = max(most, live + context if event["time"] else 0)
    shown = case.chrome.run("page.lanes[0].series.peakUsed - Math.max(...page.tracks[0].value.filter((_, i) => page.tracks[0].op[i] === OP_UNNAMED))")
    check(abs(shown - most) < 64 * MIB and shown < case.chrome.run("page.tracks[0].peakUsed") - GIB, "%d is shown, not %d" % (shown, most))
    case.chrome.click(*case.at(0.5))
    expect_blocks(case, recording, 0)
    case.chrome.run("[...document.querySelectorAll('#legend button')].find(button => button.innerText === 'activations').click()")
    case.chrome.settle()
    check(case.chrome.run("page.lanes[0].series === page.tracks[0]"), "all is shown again")


def test_several_processes(case, recordings):
    case.open(case.page("two.html", *recordings))
    offset = case.chrome.run("page.tracks[1].json.offset")
    check(case.chrome.run("page.lanes.length") == 3, "a lane for all processes, and one for each")
    check(offset == 5000000, "the second began %d ns later" % offset)
    loans = case.chrome.run("page.targets.filter(target => target.mark.type === LEND || target.mark.type === BORROW)"
                            ".map(target => [target.mark.type === LEND, target.lane.series.json.pid, target.mark.other])")
    check(loans and all(loan == [True, 4711, 4730] for loan in loans), "loans are drawn once, from lender to borrower, not %s" % loans)
    text = case.chrome.run("document.getElementById('sentences').innerText").replace("\u00a0", " ")
    check("263 MiB idled in 31 pieces, at most 60 MiB in one block: 173 MiB in chunks with live blocks" in text, "the page says %s" % text)
    ends = case.chrome.run("[page.joins[0].used, page.joins[0].named].map(sums => sums[sums.length - 1])")
    check(ends == [0, 0], "processes that have ended hold nothing, not %s" % ends)
    check(case.chrome.run("limitAt(page.joins[0], 0) === page.tracks[0].limits[0].bytes"), "the job has its limit from the first event on")
    check(case.chrome.run("document.querySelectorAll('#sentences details p').length") == 2, "a sentence for each process")
    case.chrome.click(*case.at(0.4, 2))
    check(case.chrome.run("page.moment.track.index") == 1, "the lane of the second process was clicked")
    expect_blocks(case, recordings[1], offset)
    for mode in ("owner", "kind", "process", "tag"):
        case.chrome.run("document.querySelector('#modes [data-mode=%s]').click()" % mode)
        case.chrome.settle()
        sums = case.chrome.run(
            "(now => (compose(page.joins[0], page.grouping, 5000, now), [now.reduce((a, b) => a + b), page.joins[0].named[5000]]))"
            "(new Float64Array(page.grouping.groups.length))")
        check(abs(sums[0] - sums[1]) < 1, "by %s the parts are %s" % (mode, sums))


def test_the_picture_prints_on_one_page(case):
    """With the words above it; moment and events come on the next."""
    for name in ("one.html", "two.html"):
        for width in (390, 1280):
            case.chrome.size(width, 1400)
            case.open(case.path(name))
            case.chrome.run("for (const id of ['moment', 'events', 'notes']) document.getElementById(id).style.display = 'none'")
            pages = case.chrome.call("Page.printToPDF", preferCSSPageSize=True)["data"]
            count = len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(pages)))
            check(count == 1, "%s prints on %d pages from a window of %d" % (name, count, width))


def sentences(case):
    return case.chrome.run("document.getElementById('sentences').innerText").replace("\u00a0", " ")


def test_a_full_card_is_not_a_limit(case):
    """What the limit leaves says nothing then; and idle memory is named as everywhere else."""
    events = [(recount.LIMIT, 1, 0, 64 * MIB, 0, 0, 2), (recount.GROW, 5, 0, 6 * MIB, 0, 0, 6 * MIB), (recount.ALLOC, 10, 4096, 5 * MIB, 0, 0),
              (recount.DRIVER, 12, 0, 3 * MIB, 0, 0), (recount.REFUSAL, 20, 0, 4 * MIB, 0, 0, 2 * MIB, 0, 4)]
    recount.write(case.path("full.gpucap"), [], events)
    case.open(case.page("full.html", case.path("full.gpucap")))
    text = sentences(case)
    check("and the card itself was full: at most 2 MiB would have fitted. In use: 9 MiB by this process: " in text, "the refusal: " + text)
    check("idle in the driver's pools 3 MiB, idle in the pool 1 MiB" in text, "what idled: " + text)


def test_cards_are_not_summed_up(case):
    """A limit holds for each card: two of one process are two pictures, each with its own sentence."""
    names = [(67, 0, b"vm\0job\0./serve"), (68, 0, b"simgpu\0GPU-a\0" + b"9"), (68, 1, b"simgpu\0GPU-b\0" + b"9")]
    events = [(recount.LIMIT, 1, 0, 8 * MIB, 0, 0, 2, device) for device in (0, 1)]
    events += [(recount.ALLOC, 10 + device, 4096, (5 + device) * MIB, 0, 0, 0, device) for device in (0, 1)] + [(recount.REFUSAL, 20, 0, 4 * MIB, 0, 0, 2 * MIB, 1)]
    recount.write(case.path("cards.gpucap"), names, events)
    case.open(case.page("cards.html", case.path("cards.gpucap")))
    text = sentences(case)
    check("process 4242 on GPU 1 asked for 4 MiB" in text and "In use: 6 of 8 MiB" in text, "the refusal: " + text)
    check("GPU 0: Peak 5 of 8 MiB" in text and "GPU 1: Peak 6 of 8 MiB" in text, "the peaks: " + text)
    check(case.chrome.run("[page.lanes.length, page.joins.length]") == [2, 0], "a lane for each card")
    check(case.chrome.run("page.lanes.every(lane => limitAt(lane.series, 15) === 8 * 2 ** 20)"), "each has its limit")
    check(case.chrome.run("document.getElementById('facts').innerText").count("GPU ") == 2, "both cards are named")


def test_cards_of_one_number_have_different_names(case):
    """With CUDA_VISIBLE_DEVICES in another order, number 0 of one process is number 1 of the other."""
    paths = []
    for pid in (1, 2):
        names = [(67, 0, b"vm\0job\0./serve")] + [(68, device, b"simgpu\0GPU-000%d\0" % ((pid + device) % 2 + 1) + b"99999999") for device in (0, 1)]
        events = [(recount.LIMIT, 1, 0, (6 + (pid + device) % 2) * MIB, 0, 0, 2, device) for device in (0, 1)]
        events += [(recount.ALLOC, 10 + device, 4096, 4 * MIB, 0, 0, 0, device) for device in (0, 1)] + [(recount.REFUSAL, 20, 0, 9 * MIB, 0, 0, 0, 0)]
        paths.append(case.path("order%d.gpucap" % pid))
        recount.write(paths[-1], names, events, 10**6, pid)
    case.open(case.page("order.html", *paths))
    cards = [["GPU 0 (...%s)" % card, "GPU 1 (...%s)" % card] for card in ("0002", "0001")]
    titles = case.chrome.run("page.lanes.map(lane => lane.title.split('  ')[0])")
    check(titles == [cards[0][0]] + cards[0] + [cards[1][1]] + cards[1][::-1], "the lanes: %s" % titles)
    check("process 2 on GPU 0 (...0001) asked for 9 MiB" in sentences(case), "the refusal: " + sentences(case))
    text = case.chrome.run("document.querySelectorAll('#sentences details').forEach(each => each.open = true); document.body.innerText").replace("\u00a0", " ")
    for words in (cards[0][0] + ": peak 8 of 7 MiB", "1 serve, %s:" % cards[0][0], "%s 7 MiB, " % cards[0][0], "1 %s refused" % cards[0][0]):
        check(words in text, "'%s' is not in: %s" % (words, text))
    check("GPU 0:" not in text and "GPU 0 6" not in text, "a card without its name: " + text)
    legend = case.chrome.run("setMode('process'); document.getElementById('legend').innerText")
    check("1 serve, GPU 0 (...0002)" in legend and "2 serve, GPU 0 (...0001)" in legend, "the legend: " + legend)


def test_runs_that_did_not_overlap_are_compared_from_their_beginnings(case):
    """And jobs that did overlap have no limit together."""
    def write(name, job, began, pid):
        events = [(recount.LIMIT, 1, 0, 8 * MIB, 0, 0, 2), (recount.ALLOC, 10, 4096, 5 * MIB, 0, 0), (recount.USED, 1000, 0, 5 * MIB, 0, 0)]
        recount.write(case.path(name), [(67, 0, b"vm\0" + job + b"\0./train"), (68, 0, b"simgpu\0GPU-a\0" + b"9")], events, began, pid)
        return case.path(name)

    first, later, beside = write("run1.gpucap", b"one", 10**6, 1), write("run2.gpucap", b"two", 10**12, 2), write("run3.gpucap", b"two", 10**6 + 100, 3)
    case.open(case.page("runs.html", first, later))
    check(case.chrome.run("[page.end, page.joins.length, page.lanes.length]") == [1000, 0, 2], "each begins at 0, and nothing is summed up")
    title = case.chrome.run("document.getElementById('title').innerText")
    check(title == "2 runs, each from its beginning", "the title: " + title)
    case.open(case.page("jobs.html", first, beside))
    check(case.chrome.run("[page.end, page.joins.length, page.joins[0].sharedLimit]") == [1100, 1, False], "one axis of time, and no common limit")
    title = case.chrome.run("document.getElementById('title').innerText")
    check(title == "2 processes", "the title: " + title)


def test_each_card_has_its_limit(case):
    events = [(recount.LIMIT, 1, 0, (8 - device) * MIB, 0, 0, 2, device) for device in (0, 1)] + [(recount.ALLOC, 10 + device, 4096, MIB, 0, 0, 0, device) for device in (0, 1)]
    recount.write(case.path("limits.gpucap"), [], events)
    case.open(case.page("limits.html", case.path("limits.gpucap")))
    facts = case.chrome.run("document.getElementById('facts').innerText")
    check("GPU 0 8 MiB, GPU 1 7 MiB" in facts, "the limits: " + facts)


def test_a_limit_of_the_job_that_refused_is_not_that_of_the_process(case):
    paths = []
    for pid in (1, 2):
        events = [(recount.LIMIT, 1, 0, 6 * MIB, 0, 0, 1), (recount.ALLOC, 10, 4096, 4 * MIB, 0, 0), (recount.USED, 1000, 0, 4 * MIB, 0, 0)]
        events += [(recount.REFUSAL, 20, 9 * MIB, 2 * MIB, 0, 0, MIB, 0, 2)] if pid == 2 else []
        paths.append(case.path("each%d.gpucap" % pid))
        recount.write(paths[-1], [(67, 0, b"vm\0one\0./train"), (68, 0, b"simgpu\0GPU-a\0" + b"99999999")], events, 10**6, pid)
    case.open(case.page("each.html", *paths))
    check("In use: 8 of 9 MiB (limit of the job): process 1 4 MiB" in sentences(case), "the job: " + sentences(case))
    facts = case.chrome.run("document.getElementById('facts').innerText").replace("\u00a0", " ")
    check("6 MiB each, job 9 MiB" in facts, "the limits: " + facts)
    case.open(case.page("each.html", paths[1]))
    check("In use: 4 of 9 MiB (limit of the job)" in sentences(case), "one of it: " + sentences(case))


def test_the_limit_of_a_process_is_not_that_of_its_job(case):
    """Also where the job's was then set below it, which is so for both from then on."""
    paths = []
    for pid, limits in ((1, ((5, 1), (4, 2))), (2, ((7, 2), (4, 2)))):
        events = [(recount.LIMIT, pid + 50 * i, 0, size * MIB, 0, 0, kind) for i, (size, kind) in enumerate(limits)]
        events[1:1] = [(recount.ALLOC, 10, 4096, 3 * MIB, 0, 0), (recount.USED, 11, 0, 3 * MIB, 0, 0)]
        paths.append(case.path("lowered%d.gpucap" % pid))
        recount.write(paths[-1], [(67, 0, b"vm\0one\0./train"), (68, 0, b"simgpu\0GPU-a\0" + b"99999999")], events, 10**6, pid)
    case.open(case.page("lowered.html", *paths))
    check("Peak 6 MiB at " in sentences(case), "the sum has no limit of one of its parts: " + sentences(case))


def held_by_groups(case, when):
    """What each group has at a moment, and how much they use together as the picture's scale has it."""
    return case.chrome.run(
        "((now, series, step) => (compose(series, page.grouping, step, now), [page.grouping.groups.map((group, g) => [group.name, now[g]]), series.used[step]]))"
        "(new Float64Array(page.grouping.groups.length), page.lanes[0].series, page.lanes[0].series.times.filter(time => time < %d).length - 1)" % when)


def test_each_of_many_processes_has_its_own_memory(case):
    """More than there are colours, and one that has nothing but a context."""
    paths, count, when = [], 12, 500
    for pid in range(1, count + 1):
        events = [(recount.CONTEXT, 5, 0, 8 * MIB, 0, 0), (recount.ALLOC, 10, 4096, pid * MIB, 0, 0), (recount.USED, 1000, 0, (8 + pid) * MIB, 0, 0)]
        paths.append(case.path("many%d.gpucap" % pid))
        recount.write(paths[-1], [(67, 0, b"vm\0one\0./train")], events if pid < count else events[:1] + events[2:], 10**6, pid)
    for shown in (paths[-2:], paths):
        case.open(case.page("many.html", *shown))
        check(case.chrome.run("page.mode") == "process", "the page is stacked by " + case.chrome.run("page.mode"))
        held, used = held_by_groups(case, when)
        named = {int(name.split()[0]): size for name, size in held if name.split()[0].isdigit()}
        check(len(named) == min(len(shown), 7), "there are %d colours" % len(named))
        for pid, size in named.items():
            check(size == (8 + pid % count) * MIB, "process %d has %d MiB" % (pid, size // MIB))
        total = sum((8 + pid % count) * MIB for pid in range(count + 1 - len(shown), count + 1))
        check(used == total and dict(held)["others"] == total - sum(named.values()), "of the others: %s of %d" % (held, used))
    others = dict(held)["others"]
    case.chrome.run("toggleGroup('1 train')")  # which has no colour of its own
    held, used = held_by_groups(case, when)
    check(used == total - 9 * MIB and dict(held)["others"] == others - 9 * MIB, "without process 1: %s of %d" % (held, used))


def test_of_refusals_in_one_place_the_last_is_drawn(case):
    """The sentence is about the last one."""
    events = [(recount.ALLOC, 10, 4096, 4 * MIB, 0, 0)] + [(recount.REFUSAL, 10**6 + i, 0, (i + 1) * MIB, 0, 0, 0, 0, 2) for i in range(3)] + [(recount.LIMIT, 10**9, 0, 8 * MIB, 0, 0, 2)]
    recount.write(case.path("place.gpucap"), [], events)
    case.open(case.page("place.html", case.path("place.gpucap")))
    check("asked for 3 MiB" in sentences(case), "the sentence: " + sentences(case))
    case.chrome.run("window.said = []; (draw => CanvasRenderingContext2D.prototype.fillText = function (...words) { said.push(words[0]); draw.apply(this, words); })"
                    "(CanvasRenderingContext2D.prototype.fillText); redraw()")
    case.chrome.wait("said.some(text => text.startsWith('refused'))")
    labels = case.chrome.run("[...new Set(said)].filter(text => text.startsWith('refused'))")
    check(labels == ["refused 3 MiB and 2 more"], "the labels: %s" % labels)


NOTE_TEXTS = """
window.texts = [];
(draw => CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const { width } = this.measureText(text), height = 10, far = { left: 0, right: 1, center: 0.5 }[this.textAlign], down = { top: 0, bottom: 1, middle: 0.5 }[this.textBaseline];
  texts.push([text, x - width * far, y - height * down, width, height]);
  draw.apply(this, arguments);
})(CanvasRenderingContext2D.prototype.fillText);
drawPicture(page);
"""


def test_no_label_covers_another(case):
    """A limit far above everything, and a refused request at the right end: the job's others had the memory."""
    paths = []
    for pid in (1, 2):
        events = [(recount.LIMIT, 1, 0, 900 * MIB, 0, 0, 1), (recount.ALLOC, 10, 4096, 20 * MIB, 0, 0), (recount.REFUSAL, 10**9, 0, 30 * MIB, 0, 0, 12 * MIB)]
        paths.append(case.path("far%d.gpucap" % pid))
        recount.write(paths[-1], [(67, 0, b"vm\0one\0./train " + b"--width=8 " * 40), (68, 0, b"simgpu\0GPU-a\0" + b"999999999")], events, 10**6, pid)
    for recordings in (paths[:1], paths):
        for width, height in ((390, 844), (1280, 1400)):
            case.chrome.size(width, height)
            case.open(case.page("far.html", *recordings))
            texts = case.chrome.run("(() => { %s return texts; })()" % NOTE_TEXTS)
            check(any(text[0].endswith("far above") for text in texts) and any(text[0].startswith("refused") for text in texts), "the labels: %s" % texts)
            for i, (one, x, y, wide, high) in enumerate(texts):
                check(x >= 0 and x + wide <= width and y >= 4, "%d: '%s' is cut" % (width, one))
                for other, left, top, across, down in texts[:i]:
                    apart = left >= x + wide or x >= left + across or top >= y + high or y >= top + down
                    check(apart, "%d: '%s' covers '%s'" % (width, one, other))


def test_refusals_of_several_processes_are_drawn_by_time(case):
    paths = []
    for pid, at in ((1, 9 * 10**8), (2, 10**8)):  # the first process is the one that is refused last
        events = [(recount.ALLOC, 10, 4096, 4 * MIB, 0, 0), (recount.REFUSAL, at, 0, pid * MIB, 0, 0), (recount.USED, 10**9, 0, 4 * MIB, 0, 0)]
        paths.append(case.path("late%d.gpucap" % pid))
        recount.write(paths[-1], [(67, 0, b"vm\0one\0./train"), (68, 0, b"simgpu\0GPU-a\0" + b"99999999")], events, 10**6, pid)
    case.open(case.page("late.html", *paths))
    check(case.chrome.run("page.joins[0].marks.map(mark => mark.track.json.pid)") == [2, 1], "they are not in order")


def test_times_fit_the_length(case):
    day = 86400 * 10**9
    for end, words, unit in ((10 * day - 10**9, "at 9 d 23:59:59:", " d"), (431, "at 431 ns:", " ns"), (431000, "at 431.0 \u00b5s:", " \u00b5s"), (4440 * 10**6, "at 4.4", " s")):
        recount.write(case.path("time.gpucap"), [(67, 0, b"vm\0\0./x")], [(recount.ALLOC, end // 2, 4096, MIB, 0, 0), (recount.REFUSAL, end, 0, MIB, 0, 0)])
        case.open(case.page("time.html", case.path("time.gpucap")))
        check(words in sentences(case), "%d ns: %s" % (end, sentences(case)))
        ticks = case.chrome.run("timeTicks(0, page.end, 6).map(tick => tick.text)")
        check(len(set(ticks)) == len(ticks) > 2 and all(len(tick) < 12 and tick.endswith(unit) for tick in ticks), "the axis: %s" % ticks)


def test_an_early_moment_of_a_long_recording_has_its_digits(case):
    events = [(recount.ALLOC, 10, 4096, MIB, 0, 0), (recount.REFUSAL, 153 * 10**6, 0, MIB, 0, 0), (recount.REFUSAL, 231 * 10**6, 0, MIB, 0, 0), (recount.USED, 53 * 10**9, 0, MIB, 0, 0)]
    recount.write(case.path("early.gpucap"), [(67, 0, b"vm\0\0./x")], events)
    case.open(case.page("early.html", case.path("early.gpucap")))
    check("Out of memory at 0.231 s:" in sentences(case), "the sentence: " + sentences(case))
    times = case.chrome.run("[...document.querySelectorAll('#events button')].map(button => button.innerText)")
    check(times == ["0.153 s", "0.231 s"], "the list: %s" % times)


def test_long_and_foreign_names(case):
    long, hebrew = b"name-" * 60, "\u05e9\u05dc\u05d5\u05dd".encode()
    names = [(67, 0, b"vm\0\0./" + long), (64, 1, long), (65, 1, long + b"x"), (65, 2, hebrew)]
    recount.write(case.path("long.gpucap"), names, [(recount.ALLOC, 10, 4096, MIB, 1, 1), (recount.ALLOC, 11, 4 * MIB, 3 * MIB, 1, 2), (recount.REFUSAL, 15, 0, MIB, 1, 1)])
    case.open(case.page("long.html", case.path("long.gpucap")))
    words = case.chrome.run("document.querySelector('#sentences p').innerText")
    check(len(words) < 300 and "na\u2026ame-" in words, "a long name: " + words)
    check("\u2068" + hebrew.decode() + "\u2069" in words, "a name from right to left does not turn its figure around: " + words)
    check(case.chrome.run("document.documentElement.scrollWidth <= innerWidth"), "the page fits its window")


def test_hostile_text_is_only_text(case):
    evil = b"</script><img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
    names = [(67, 0, evil + b"\0" + evil + b"\0" + evil), (64, 1, evil), (65, 1, evil), (66, 1, evil), (68, 0, evil + b"\0" + evil + b"\0" + evil)]
    recount.write(case.path("evil.gpucap"), names, [(recount.ALLOC, 10, 4096, MIB, 1, 1), (recount.REFUSAL, 15, 0, MIB, 1, 1), (recount.FREE, 20, 4096, MIB, 1, 1)])
    case.open(case.page("evil.html", case.path("evil.gpucap")))
    case.chrome.key("m")
    case.chrome.move(*case.at(0.6))
    check(case.chrome.run("window.hacked") is None, "text of the recording was run")
    check(case.chrome.run("document.images.length") == 0, "text of the recording became elements")
    check("<img src=x" in case.chrome.run("document.body.innerText"), "the text is not shown")
    check("<img" in case.chrome.run("document.title"), "the title is not shown")


def test_a_million_events(case):
    took = case.open(case.page("million.html", case.record("million.gpucap", MILLION, 0)))
    check(case.chrome.run("page.tracks[0].steps") >= MILLION, "not all events are there")
    check(case.chrome.run("document.querySelector('#facts').innerText").count("1,0") == 1, "the number of events is not said")
    case.chrome.key("m")
    check(case.chrome.run("document.querySelectorAll('#blocks tbody tr').length") > 5, "no blocks at the highest moment")
    print("a million events: drawn after %.0f ms" % took)


def test_pages_of_the_scenarios(case):
    """Those in docs/ say in their first sentence why memory ran out, or that it did not."""
    for letter in "abcd":
        for name, refused in (("scenario-%s.html" % letter, True), ("scenario-%s-gpucap.html" % letter, False)):
            path = os.path.join(PAGES, name)
            check(os.path.getsize(path) < 300000, "%s is large" % name)
            case.open(path)
            words = case.chrome.run("document.querySelector('#sentences p').innerText")
            check(words.startswith("Out of memory at " if refused else "Peak "), "%s: %s" % (name, words))
            check(not refused or "In use: " in words, "%s: %s" % (name, words))


def take_screenshots(case, folder):
    for scheme in ("light", "dark"):
        for width, height in ((1280, 900), (390, 844)):
            case.chrome.size(width, height, scheme)
            case.open(case.path("two.html"))
            case.chrome.key("m")
            case.chrome.screenshot(os.path.join(folder, "page-%s-%d.png" % (scheme, width)))
    # The two of docs/guide.md.
    case.chrome.size(1280, 1050, "light")
    case.open(case.path("two.html"), "#by=tag")
    case.chrome.screenshot(os.path.join(folder, "page-job.png"))
    case.chrome.size(1280, 980, "dark")
    case.open(case.path("one.html"), "#by=tag&t=185000000,215000000")
    case.chrome.click(*case.at(0.62))
    case.chrome.screenshot(os.path.join(folder, "page-moment.png"))


def main():
    if not browser.find():
        print("there is no chromium here")
        return 77
    with tempfile.TemporaryDirectory(prefix="gpucap-page-") as folder:
        chrome = browser.Browser()
        try:
            chrome.size(1280, 1400)
            case = Case(sys.argv[1], folder, chrome)
            recordings = [case.record("a.gpucap", EVENTS, 0), case.record("b.gpucap", EVENTS, 1)]
            test_picture_and_sentence(case, recordings[0])
            test_the_refusal_is_explained_first(case)
            test_zoom(case)
            test_hover(case)
            test_click_shows_the_blocks_of_that_moment(case, recordings[0])
            test_left_out_groups(case, recordings[0])
            test_several_processes(case, recordings)
            test_the_picture_prints_on_one_page(case)
            test_without_a_limit_the_card_is_it(case)
            test_cards_are_not_summed_up(case)
            test_cards_of_one_number_have_different_names(case)
            test_runs_that_did_not_overlap_are_compared_from_their_beginnings(case)
            test_each_card_has_its_limit(case)
            test_a_limit_of_the_job_that_refused_is_not_that_of_the_process(case)
            test_the_limit_of_a_process_is_not_that_of_its_job(case)
            test_each_of_many_processes_has_its_own_memory(case)
            test_of_refusals_in_one_place_the_last_is_drawn(case)
            test_a_full_card_is_not_a_limit(case)
            test_no_label_covers_another(case)
            test_refusals_of_several_processes_are_drawn_by_time(case)
            test_times_fit_the_length(case)
            test_an_early_moment_of_a_long_recording_has_its_digits(case)
            test_long_and_foreign_names(case)
            test_hostile_text_is_only_text(case)
            test_a_million_events(case)
            test_pages_of_the_scenarios(case)
            if len(sys.argv) > 2:
                take_screenshots(case, sys.argv[2])
        finally:
            chrome.close()
    print("page_browser: all is as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
