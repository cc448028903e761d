#!/usr/bin/env python3
"""The project's style, where a program can check it. Runs under ctest; takes about a second.

usage: tidy.py [ROOT]          prints `file:line: rule: what, and what to do instead`; exit 1 if any

A rule that is broken for a good reason is waived where it is broken, on the line or the one before:
  // tidy: allow RULE, because ...
A function over the limit says so inside or just above: `// tidy: long, because ...`.

How it works: every file that git tracks or would track is read once; C++ is looked at without its
comments and strings. Rules are functions from the tree to findings, or rows of BANNED.
"""

import ast
import os
import re
import subprocess
import sys
from collections import namedtuple
from functools import cached_property
from pathlib import Path, PurePosixPath

COLUMN_LIMIT = 100
FUNCTION_LINE_LIMIT = 70
HEADER_LINE_LIMIT = 220
README_LINE_LIMIT = 40
FILE_BYTES_LIMIT = 2 << 20
ASSERTIONS_PER_100_LINES = 3

# Whom each folder may include. Tests may include anything.
ARROWS = {
    "offload": {"offload"},
    "nvme": {"nvme", "offload"},
    "cpu_adam": {"cpu_adam", "offload"},
    "kernels": {"kernels", "offload"},
    "engine": {"engine", "nvme", "cpu_adam", "kernels", "offload"},
}
# The folders of engine/, from the lowest: each may include itself and those before it.
ENGINE_FOLDERS = ("models", "checkpoint", "torch", "config", "data", "plan", "resume", "train",
                  "rehearse", "cli")
TORCH_HOME = "engine/torch/"
TORCH_INCLUDE = re.compile(r"(torch|ATen|c10|caffe2)/")
# Headers that would make every includer slow or unportable: their home is a .cc or .cu file.
HEAVY_INCLUDE = re.compile(
    r"(liburing\.h|cuda|cublas|nccl|hwloc|yaml-cpp/|nlohmann/json\.hpp|CLI/)")

Banned = namedtuple("Banned", "rule pattern homes instead")
BANNED = [
    Banned("print", r"\b(std::(cout|cerr|clog)|stdout|stderr|printf|puts|putchar|fmt::print)\b",
           ["engine/cli/", "offload/check.cc"], "return facts; only engine/cli prints"),
    Banned("exception", r"\bthrow\b", [], "return an offload::Result, or CHECK"),
    Banned("assert", r"(?<![\w:])assert\s*\(", [], "CHECK or DCHECK of offload/check.h"),
    Banned("environment", r"\b(secure_)?getenv\b", ["engine/cli/"],
           "let main read it and pass it down"),
    Banned("open", r"(?<!\w)::(open|openat|creat)\s*\(", ["nvme/", "engine/checkpoint/file.cc"],
           "engine/checkpoint/file.h, or nvme/ for direct I/O"),
    Banned("stream", r"\bfopen\b|\bstd::(basic_)?[io]?fstream\b", ["nvme/", "engine/"],
           "offload/, cpu_adam/ and kernels/ have never heard of a file"),
    Banned("istreambuf", r"\bistreambuf_iterator\b", ["nvme/"],
           "read_text of engine/checkpoint/file.h: the iterator throws on a folder"),
    Banned("mmap", r"(?<![\w.>])(::)?(mmap|munmap|mremap)\s*\(", ["kernels/", "nvme/"],
           "memory comes from offload::Memory"),
    Banned("new", r"(?<![\w:])(new\s+[\w:]|delete\s+\w|delete\[\])", [],
           "std::make_unique, std::unique_ptr<T>(new T(...)) or a container"),
    Banned("malloc", r"\b(std::)?(malloc|calloc|realloc|free|aligned_alloc|posix_memalign)\s*\(",
           ["kernels/"], "a container, or offload::Memory"),
    Banned("io_uring", r"\bio_uring_\w+", ["nvme/"], "nvme/ring.h"),
    Banned("cuda", r"\bcuda[A-Z]\w*\s*\(", ["kernels/cuda/", "engine/torch/"], "kernels/"),
    Banned("process",
           r"(?<![\w.>])(::|std::)?(fork|vfork|execv\w*|posix_spawnp?|popen|system)\s*\(",
           ["engine/data/", "engine/cli/quiet_start.cc", "nvme/uring_probe.cc"],
           "engine/data runs the one program that we run"),
    Banned("random", r"\b(s?rand|drand48)\s*\(|\brandom_device\b", [],
           "a generator whose seed is told, so that a failure can be replayed"),
    Banned("clock", r"\b\w+_clock::now\b|\bclock_gettime\b|\bgettimeofday\b",
           ["nvme/", "cpu_adam/", "kernels/", "engine/"], "offload/ never reads a clock"),
    Banned("simulating", r"\bif\s*\(!?\s*(is_)?simulat(ing|ed)\b", [],
           "run never asks whether it is simulated"),
    Banned("using", r"\busing\s+namespace\s+(?!std::\w*literals)", [], "name what you use"),
]
# `unique_ptr<T>(new T(...))`, named or not, is how a factory reaches a private constructor.
OWNED_NEW = re.compile(r"(?<=unique_ptr<)[\w:]+>( \w+)?\(new ")
SOURCES = tuple(ARROWS)
BARE_NAME = re.compile(
    r"\b(?:u?int\d*_t|size_t|int|unsigned|long|double|float)\s+"
    r"(size|len|length|n|sz|offset|timeout|latency|duration|bandwidth)\s*(?=[,;)={])")
# Paths of one machine. Written so that this file, which is looked at as well, does not contain what
# it looks for.
FOREIGN = re.compile(
    r"(?<![\w.])/(?:wor[k]|roo[t]|hom[e]/\w|tm[p]/build)(?=[/\s\"'`),.-]|$)")
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")
PATH_IN_TEXT = re.compile(
    r"(?<![\w/.~$}-])(?:\./)?((?:offload|nvme|cpu_adam|kernels|engine|configs|tests|scripts|\.ci)/"
    r"[\w./-]*[\w/])(?P<after>[{*<$]?)")
KNOWN_SUFFIX = re.compile(r"\.(h|cc|cu|md|py|sh|yaml|yml|json|cmake|txt)$")

Finding = namedtuple("Finding", "path line rule text")

COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'", re.DOTALL)


def blank(match):
    """As many lines as before, and a pair of quotes where a string was."""
    text = match.group(0)
    return ("" if text.startswith("/") else '""') + "\n" * text.count("\n")


class File:
    """One file: its path from the root, its text, and its code without comments and strings."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.lines = text.split("\n")
        self.suffix = PurePosixPath(path).suffix
        self.top = path.split("/")[0]
        self.is_cpp = self.suffix in (".h", ".cc", ".cu")

    @cached_property
    def code(self):
        return COMMENT_OR_STRING.sub(blank, self.text) if self.is_cpp else self.text

    @cached_property
    def includes(self):
        """(line, path, is quoted) of every #include."""
        found = []
        for number, line in enumerate(self.lines, 1):
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if match:
                found.append((number, match.group(2), match.group(1) == '"'))
        return found

    def waives(self, rule, line):
        """Whether the line or the one before says `tidy: allow RULE, because ...`."""
        words = re.compile(r"tidy: allow " + re.escape(rule) + r", because \w")
        return any(words.search(text) for text in self.lines[max(0, line - 2):line])


class Tree:
    """The project's files by path from the root."""

    def __init__(self, files, existing=None):
        self.files = {file.path: file for file in files}
        self.paths = set(existing if existing is not None else self.files)
        self.folders = {str(parent) for path in self.paths
                        for parent in PurePosixPath(path).parents}

    def cpp(self, *folders):
        return [file for file in self.files.values()
                if file.is_cpp and (not folders or file.top in folders)]

    def named(self, name):
        return [file for file in self.files.values() if PurePosixPath(file.path).name == name]

    def exists(self, path):
        return path in self.paths or path.rstrip("/") in self.folders


# ---- rules: each takes the tree and yields findings ---------------------------------------------


def include_arrows(tree):
    for file in tree.cpp(*SOURCES):
        for line, path, quoted in file.includes:
            top = path.split("/")[0]
            if quoted and top in ARROWS and top not in ARROWS[file.top]:
                yield Finding(file.path, line, "arrow", f"{file.top} must not include {path}: "
                              "engine -> {nvme, cpu_adam, kernels} -> offload; move what is shared "
                              "down, or the includer up")
            if quoted and path not in tree.files:
                yield Finding(file.path, line, "arrow", f'"{path}" is no file of the project; '
                              "quotes name a path from the root")


def engine_arrows(tree):
    def folder_of(path):
        parts = path.split("/")
        return parts[1] if parts[0] == "engine" and len(parts) > 2 else None

    for file in tree.cpp("engine"):
        folder = folder_of(file.path)
        if folder is None:
            continue
        if folder not in ENGINE_FOLDERS:
            yield Finding(file.path, 1, "arrow", f"engine/{folder} has no place in ENGINE_FOLDERS "
                          "of scripts/tidy.py: say whom it may include")
            continue
        above = ENGINE_FOLDERS[ENGINE_FOLDERS.index(folder) + 1:]
        for line, path, quoted in file.includes:
            if quoted and folder_of(path) in above:
                yield Finding(file.path, line, "arrow", f"engine/{folder} must not include {path}: "
                              "in engine the arrows are " + " <- ".join(ENGINE_FOLDERS))


def torch_includes(tree):
    """Nothing outside engine/torch sees a torch header, not even through another header."""
    reaches = {}

    def reached(path, depth=0):
        if path not in reaches and depth < 64:
            reaches[path] = None  # what is being looked at: a cycle adds nothing
            for _, name, quoted in tree.files[path].includes if path in tree.files else []:
                if not quoted and TORCH_INCLUDE.match(name):
                    reaches[path] = name
                elif quoted and reached(name, depth + 1):
                    reaches[path] = name
        return reaches.get(path)

    for file in tree.cpp(*SOURCES):
        if file.path.startswith(TORCH_HOME):
            continue
        for line, name, quoted in file.includes:
            if TORCH_INCLUDE.match(name) or (quoted and reached(name)):
                yield Finding(file.path, line, "torch", f"{name} brings torch headers in; only "
                              f"{TORCH_HOME} includes torch: give it a header without them")


def heavy_includes(tree):
    for file in tree.cpp(*SOURCES):
        if file.suffix != ".h" or file.path.startswith((TORCH_HOME, "kernels/cuda/")):
            continue
        for line, name, quoted in file.includes:
            if not quoted and HEAVY_INCLUDE.match(name):
                yield Finding(file.path, line, "heavy", f"<{name}> in a header slows every "
                              "includer; include it in the .cc and forward-declare here")


def columns(tree):
    for file in tree.files.values():
        if not (file.is_cpp or file.suffix in (".py", ".sh") or file.text.startswith("#!")):
            continue
        for number, line in enumerate(file.lines, 1):
            if len(line) > COLUMN_LIMIT:
                yield Finding(file.path, number, "columns", f"{len(line)} columns, at most "
                              f"{COLUMN_LIMIT}")
            if line != line.rstrip() or "\t" in line:
                yield Finding(file.path, number, "spaces", "a tab, or a space at the line's end")


NOT_A_FUNCTION = re.compile(
    r"^(if|for|while|switch|catch|do|else|namespace|class|struct|enum|union|extern|return)\b")


def cpp_functions(code):
    """(first line, last line) of each function that is not inside another; the code is formatted.

    A brace after a space opens a block, one after a name or a parenthesis an initialiser. A block
    is a function if what stands before it, back to the last `;`, block or label, has a parenthesis
    and is neither a control statement nor a type nor the right side of an assignment."""
    code = re.sub(r"(?m)^[ ]*#(?:[^\n]*\\\n)*[^\n]*$", lambda directive: "\n" * directive.group(0)
                  .count("\n"), code)
    open_braces, functions = [], []
    head_start = inside = 0
    for match in re.finditer(r"[;{}]|\b(?:public|private|protected)\s*:", code):
        token, head = match.group(0), code[head_start:match.start()]
        if token == "{":
            is_block = head == "" or head.isspace() or (
                head[-1].isspace() and head.rstrip()[-1] not in "=,(")
            words = re.sub(r"^(template\s*<[^{;]*?>\s*|\[\[\w+\]\]\s*)+", "", head.strip())
            is_function = is_block and not inside and "(" in words and not (
                NOT_A_FUNCTION.match(words) or re.search(r"=\s*\[", words))
            start = head_start + len(head) - len(head.lstrip())
            open_braces.append((start, head_start, is_block, is_function))
            inside += is_function
        elif token == "}" and open_braces:
            start, previous_head, is_block, is_function = open_braces.pop()
            inside -= is_function
            if is_function:
                functions.append((code.count("\n", 0, start) + 1,
                                  code.count("\n", 0, match.start()) + 1))
            if not is_block:
                head_start = previous_head  # what follows an initialiser belongs to the same head
                continue
        head_start = match.end()
    return functions


def python_functions(text):
    return [(node.lineno, node.end_lineno) for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def function_length(tree):
    for file in tree.files.values():
        if not file.is_cpp and file.suffix != ".py":
            continue
        functions = cpp_functions(file.code) if file.is_cpp else python_functions(file.text)
        for first, last in functions:
            length = last - first + 1
            around = "\n".join(file.lines[max(0, first - 4):last])
            if length > FUNCTION_LINE_LIMIT and not re.search(r"tidy: long, because \w", around):
                yield Finding(file.path, first, "long", f"a function of {length} lines, at most "
                              f"{FUNCTION_LINE_LIMIT}: let one function decide and leaves compute, "
                              "or say `tidy: long, because ...`")


def header_shape(tree):
    for file in tree.cpp(*SOURCES, "tests"):
        if file.suffix == ".h":
            if len(file.lines) - 1 > HEADER_LINE_LIMIT:
                yield Finding(file.path, HEADER_LINE_LIMIT, "header", f"{len(file.lines) - 1} "
                              f"lines, at most {HEADER_LINE_LIMIT}: it holds two ideas")
            if "#pragma once" not in file.text:
                yield Finding(file.path, 1, "header", "no #pragma once")
            declares = re.sub(r"(?m)^#.*", "", file.code).strip()
            wanted = f"namespace headrace::{file.top}"
            if file.top != "tests" and declares and wanted not in file.text:
                yield Finding(file.path, 1, "namespace", f"opens no {wanted}, its folder's")
        if (file.suffix == ".h" or file.path.endswith("_test.cc")) and file.text[:2] != "//":
            yield Finding(file.path, 1, "opening", "opens without a comment that says what it is "
                          "(a test: its goal and its method)")


def banned_calls(tree):
    for file in tree.cpp(*SOURCES):
        for rule, pattern, homes, instead in BANNED:
            if any(file.path.startswith(home) for home in homes):
                continue
            for match in re.finditer(pattern, OWNED_NEW.sub("", file.code)):
                line = file.code.count("\n", 0, match.start()) + 1
                if not file.waives(rule, line):
                    yield Finding(file.path, line, rule, f"`{match.group(0).strip()}` has no place "
                                  f"here; instead: {instead}")


def bare_names(tree):
    for file in tree.cpp(*SOURCES):
        if file.suffix != ".h":
            continue
        for match in BARE_NAME.finditer(file.code):
            line = file.code.count("\n", 0, match.start()) + 1
            if not file.waives("unit", line):
                yield Finding(file.path, line, "unit", f"`{match.group(1)}` has no unit; say "
                              "size_bytes, element_count, offset_bytes, latency_ns")


def listed_sources(tree):
    """A source that no CMakeLists names is never compiled; a header nobody includes is dead."""
    included = {path for file in tree.cpp() for _, path, _ in file.includes}
    for file in tree.cpp(*SOURCES, "tests"):
        path = PurePosixPath(file.path)
        if file.suffix == ".h":
            if file.path not in included:
                yield Finding(file.path, 1, "dead", "no file includes it")
            continue
        lists = [(parent, tree.files[str(parent / "CMakeLists.txt")]) for parent in path.parents
                 if str(parent / "CMakeLists.txt") in tree.files]
        names = [(re.escape(str(path.relative_to(parent))), text.text) for parent, text in lists]
        if not any(re.search(rf"(?<![\w/.]){name}(?![\w.])", text) for name, text in names):
            yield Finding(file.path, 1, "unlisted", "no CMakeLists.txt lists it: never compiled")


def mirrored_tests(tree):
    """tests/nvme/ring_test.cc (or ring_faults_test.cc) tests nvme/ring.h; a test of several files
    of a folder includes at least one of its headers."""
    stems = {str(PurePosixPath(path).with_suffix("")) for path in tree.paths}
    for file in tree.cpp("tests"):
        match = re.match(r"tests/(((?:%s)/(?:.*/)?).*)_test\.cc$" % "|".join(SOURCES), file.path)
        if not match:
            continue
        words = match.group(1).split("_")
        mirrors = any("_".join(words[:count]) in stems for count in range(1, len(words) + 1))
        mirrors |= f"tests/{match.group(1)}" in stems  # what serves as an oracle is tested, too
        if not mirrors and not any(path.startswith(match.group(2)) for _, path, _ in file.includes):
            yield Finding(file.path, 1, "mirror", f"tests nothing in {match.group(2)} that exists")


def readmes(tree):
    for folder in SOURCES:
        if folder in tree.folders and f"{folder}/README.md" not in tree.files:
            yield Finding(f"{folder}/README.md", 1, "readme", "missing: promise, files in reading "
                          "order, what it must never know")
    for file in tree.named("README.md"):
        if "/" in file.path and len(file.lines) - 1 > README_LINE_LIMIT:
            yield Finding(file.path, README_LINE_LIMIT, "readme", f"{len(file.lines) - 1} lines, "
                          f"at most {README_LINE_LIMIT}")


def named_paths(tree):
    """A file named in a document, a comment or a message must exist: so in README commands."""
    for file in tree.files.values():
        if file.path == "scripts/tidy.py" or file.path.startswith("tests/scripts/"):
            continue  # they name files that must not exist
        for number, line in enumerate(file.lines, 1):
            for match in PATH_IN_TEXT.finditer(line):
                path = match.group(1)
                wanted = path.rsplit("/", 1)[0] if match.group("after") else path
                checked = file.suffix == ".md" or KNOWN_SUFFIX.search(path)
                beside = str(PurePosixPath(file.path).parent / wanted)
                if file.is_cpp and line.lstrip().startswith("#"):
                    continue  # include_arrows looks at these
                found = tree.exists(wanted) or tree.exists(beside)
                if checked and not found and not file.waives("path", number):
                    yield Finding(file.path, number, "path", f"{path} does not exist")


def foreign_words(tree):
    for file in tree.files.values():
        for number, line in enumerate(file.lines, 1):
            match = FOREIGN.search(line)
            if match:
                yield Finding(file.path, number, "foreign", f"`{match.group(0)}` is a path of one "
                              "machine, or a document that is not in the project")
            match = UNFINISHED.search(line)
            if match:
                yield Finding(file.path, number, "unfinished", f"`{match.group(0)}`: finish it, or "
                              "file an issue")


def assertions(tree):
    """Per folder, not per file: a table of constants needs none."""
    for folder in SOURCES:
        line_count = check_count = 0
        for file in tree.cpp(folder):
            line_count += sum(bool(line.strip()) for line in file.code.split("\n"))
            check_count += len(re.findall(r"\bD?CHECK(_\w+)?\s*\(|\bstatic_assert\b", file.code))
        if line_count >= 100 and check_count * 100 < line_count * ASSERTIONS_PER_100_LINES:
            yield Finding(folder, 1, "assertions", f"{check_count} in {line_count} lines of code, "
                          f"at least {ASSERTIONS_PER_100_LINES} per 100: state what must hold at "
                          "entry, and what after")


RULES = [include_arrows, engine_arrows, torch_includes, heavy_includes, columns, function_length,
         header_shape, banned_calls, bare_names, listed_sources, mirrored_tests, readmes,
         named_paths, foreign_words, assertions]


def find_faults(tree):
    """Every finding of every rule, by place."""
    return sorted(finding for rule in RULES for finding in rule(tree))


# ---- the files ----------------------------------------------------------------------------------


def list_paths(root):
    """What git tracks or would track; without git, everything but what a build or a run makes."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        paths = [path for path in listed.split("\0") if path]
    except (OSError, subprocess.CalledProcessError):
        paths = []
    if not paths:
        skipped = {".git", ".cache", "build", "runs", "data", "models", "__pycache__"}
        for folder, folders, names in os.walk(root):
            top = Path(folder) == Path(root)
            folders[:] = [name for name in folders if not (
                name == "__pycache__" or (top and name in skipped))]
            paths += [str((Path(folder) / name).relative_to(root)) for name in names]
    return sorted(path for path in paths if (root / path).is_file())


def read_tree(root):
    """(tree, findings about files that cannot be looked at)."""
    files, findings, paths = [], [], list_paths(root)
    for path in paths:
        data = (root / path).read_bytes()
        if len(data) > FILE_BYTES_LIMIT:
            findings.append(Finding(path, 1, "large", f"{len(data):,} bytes, at most "
                                    f"{FILE_BYTES_LIMIT:,}: make it where it is needed"))
        elif b"\0" not in data[:4096]:
            text = data.decode("utf-8", errors="replace")
            if "\ufffd" not in text:  # else binary: goldens, pictures
                files.append(File(path, text))
    return Tree(files, paths), findings


def main():
    if len(sys.argv) > 2 or sys.argv[1:] == ["--help"]:
        sys.exit(__doc__)
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    tree, findings = read_tree(root)
    findings += find_faults(tree)
    for path, line, rule, text in findings:
        print(f"{path}:{line}: {rule}: {text}")
    if findings:
        print(f"{len(findings)} findings in {len(tree.files)} files")
        sys.exit(1)
    print(f"{len(tree.files)} files are tidy")


if __name__ == "__main__":
    main()
