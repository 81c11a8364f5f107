#!/usr/bin/env python3
"""Checks that what the documents name exists: options, links and their anchors, tests, checks of tools/gpu-check, paths,
functions and modules.
(tests/style.sh checks names of files. Decisions name things as they were called at the time, and are left out.)

usage: tests/docs_names.py BUILD
"""
import glob
import os
import re
import subprocess
import sys

(BUILD,) = sys.argv[1:]
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] + sorted(glob.glob("docs/*.md", root_dir=ROOT))
# Options of other programs: cmake, ctest, gdb, pkg-config, docker, Slurm, torchrun, and of a user's program.
FOREIGN = set("""--args --build --build-arg --cflags --checkpoint --component --epochs --gpus --gres --install --nproc-per-node
    --ntasks --output-on-failure --prefix --strip --target --test-dir""".split())
MADE_UP = ("kernels/NAME.c", "kernels/NAME.cu", "interpose/driver/unjudged.def")
OF_CODE = ("docs/architecture.md", "docs/glossary.md", "docs/recording.md")  # name functions and modules


def said(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def all_options():
    """Every option that a program of the project prints in its help, or that a source of a bench or script has."""
    texts = [said(f"{BUILD}/{name}", "--help") for name in ("train", "fleet", "scenarios", "ballast")]
    commands = re.findall(r"^  ([a-z]+)  ", said(f"{BUILD}/gpucap", "help"), re.M)
    texts += [said(f"{BUILD}/gpucap", "help", command) for command in commands]
    for tool in glob.glob(f"{ROOT}/tools/*"):
        if os.path.isfile(tool) and os.access(tool, os.X_OK):
            texts.append(said(tool, "--help"))
    for source in glob.glob(f"{ROOT}/tests/**/*", recursive=True):
        if source.endswith((".c", ".h", ".py", ".sh")):
            texts += re.findall(r'"--[a-z-]+|^(?:# )?usage:.*', read(source), re.M)
    found = set(re.findall(r"--[a-z][a-z0-9-]*", "\n".join(texts)))
    # bench programs name their options without the dashes
    benches = "\n".join(read(path) for path in glob.glob("tests/bench/*.c", root_dir=ROOT))
    return found | {"--" + name for name in re.findall(r'"([a-z-]+)=?"', benches)}


def all_tests():
    """From ctest's own files: a second ctest would overwrite the log of the one that runs this."""
    files = glob.glob(f"{BUILD}/**/CTestTestfile.cmake", recursive=True)
    return re.findall(r"^add_test\(\[?=?\[?(\w+)", "\n".join(read(file) for file in files), re.M)


def anchors(path):
    heads = re.findall(r"^#+ (.*)$", read(path), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def wrong_links(path, text):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if target.startswith("http"):
            continue
        file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(os.path.join(ROOT, file)):
            yield f"link to {target}"
        elif anchor and file.endswith(".md") and anchor not in anchors(file):
            yield f"link to {target}#{anchor}"


def main():
    options = all_options() | FOREIGN
    tests = all_tests()
    checks = {line.split()[0] for line in said(f"{ROOT}/tools/gpu-check", "--list").splitlines() if line.strip()}
    cases = set()
    for source in glob.glob(f"{ROOT}/tests/**/*.[ch]", recursive=True):
        cases.update(re.findall(r"\btest_\w+", read(source)))
    if len(options) < 100 or len(tests) < 100 or len(checks) < 20 or len(cases) < 1000:
        sys.exit(f"found only {len(options)} options, {len(tests)} tests, {len(checks)} checks, {len(cases)} cases")
    words = set(tests)
    for folder in ("interpose", "harness", "kernels", "tools", "tests"):
        for source in glob.glob(f"{ROOT}/{folder}/**/*.*", recursive=True):
            words.update(re.findall(r"\w+", read(source)) if source.endswith((".c", ".h", ".inc", ".cu")) else ())
    wrong = []
    for path in DOCUMENTS:
        text = read(path)
        here = [f"option {o}" for o in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text) if o not in options]
        here += wrong_links(path, text)
        for names in re.findall(r"gpu-check[^`\n]*--only[ =]([a-z_,]+)", text):
            here += [f"gpu-check --only {n}" for n in names.strip(",").split(",") if n not in checks]
        for pattern in re.findall(r"ctest[^`\n]*-R '?([^'` ]+)", text):
            here += [] if any(re.search(pattern, test) for test in tests) else [f"ctest -R {pattern}"]
        here += [f"test {c}" for c in re.findall(r"\btest_[a-z_]+", text) if c not in cases]
        for name in re.findall(r"\b(?:interpose|harness|kernels|tools|tests|docs|cmake)/[\w./-]*\w", text):
            if name not in MADE_UP and not glob.glob(f"{ROOT}/{name}*"):
                here.append(f"path {name}")
        if path in OF_CODE:
            here += [f"name {n}" for n in re.findall(r"`([a-z]\w*_\w+)(?:\(\))?`", text) if n not in words]
        wrong += [f"{path}: {what}" for what in sorted(set(here))]
    if wrong:
        sys.exit("documents name what does not exist:\n" + "\n".join(wrong))


main()
