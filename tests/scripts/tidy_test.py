"""Goal: scripts/tidy.py finds what it promises to find, and leaves alone what is right.

Method: trees of a few invented files. A clean one gives no finding; each case then changes one
thing and must give exactly the findings of one rule, at the named place. Last, every rule and every
row of BANNED must have had a case, so that a rule that finds nothing cannot hide.
"""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import tidy  # noqa: E402

CLEAN = {
    "README.md": "Run `scripts/test`, then read offload/part.h and tests/offload/.\n",
    "scripts/test": "#!/bin/sh\necho tested\n",
    "offload/README.md": "Decides.\n",
    "offload/CMakeLists.txt": "headrace_library(offload SOURCES\n  part.cc\n)\n",
    "offload/part.h": "// A part.\n#pragma once\n\nnamespace headrace::offload {\n"
                      "int64_t part_count(uint64_t size_bytes);\n}\n",
    "offload/part.cc": '#include "offload/part.h"\n\nnamespace headrace::offload {\n'
                       "// A string and a comment hold no code: throw, new int.\n"
                       'const char* text = "throw new std::cout /tmp";\n'
                       "int64_t part_count(uint64_t size_bytes) { return size_bytes / 1'0; }\n}\n",
    "nvme/README.md": "Reads.\n",
    "nvme/CMakeLists.txt": "headrace_library(nvme SOURCES ring.cc USES headrace::offload)\n",
    "nvme/ring.h": "// A ring.\n#pragma once\n#include \"offload/part.h\"\n"
                   "namespace headrace::nvme {\nstruct Ring;\n}\n",
    "nvme/ring.cc": '#include "nvme/ring.h"\n#include <liburing.h>\n',
    "engine/README.md": "Trains.\n",
    "engine/CMakeLists.txt": "headrace_library(engine SOURCES run.cc torch/llama.cc "
                             "train/run.cc)\n",
    "engine/train/run.h": "// A run.\n#pragma once\nnamespace headrace::engine {\n"
                          "struct Train;\n}\n",
    "engine/train/run.cc": '#include "engine/train/run.h"\n',
    "engine/torch/llama.h": "// A model.\n#pragma once\n#include <torch/torch.h>\n"
                            "namespace headrace::engine {\nstruct Llama;\n}\n",
    "engine/torch/llama.cc": '#include "engine/torch/llama.h"\n',
    "engine/run.h": "// A run.\n#pragma once\nnamespace headrace::engine {\nstruct Run;\n}\n",
    "engine/run.cc": '#include "engine/run.h"\n#include "nvme/ring.h"\n',
    "tests/CMakeLists.txt": "headrace_test(part_test SOURCES offload/part_test.cc)\n",
    "tests/offload/part_test.cc": "// Goal: parts. Method: cases.\n#include \"offload/part.h\"\n",
}


def faults(changes, remove=()):
    """The findings in the clean tree after the changes, as (rule, path, line)."""
    texts = {path: text for path, text in {**CLEAN, **changes}.items() if path not in remove}
    tree = tidy.Tree([tidy.File(path, text) for path, text in texts.items()])
    return [(finding.rule, finding.path, finding.line) for finding in tidy.find_faults(tree)]


def appended(path, line):
    """The clean file with one more line, and that line's number."""
    return {path: CLEAN[path] + line + "\n"}, CLEAN[path].count("\n") + 1


# (rule, file of the clean tree, line appended to it)
LINES = [
    ("arrow", "offload/part.cc", '#include "nvme/ring.h"'),
    ("arrow", "nvme/ring.cc", '#include "nvme/missing.h"'),
    ("arrow", "engine/torch/llama.cc", '#include "engine/train/run.h"'),
    ("torch", "engine/run.cc", "#include <ATen/ATen.h>"),
    ("torch", "engine/run.cc", '#include "engine/torch/llama.h"'),
    ("heavy", "nvme/ring.h", "#include <liburing.h>"),
    ("columns", "offload/part.cc", "// " + "x" * 98),
    ("spaces", "offload/part.cc", "int64_t kept;\t"),
    ("print", "nvme/ring.cc", 'std::cout << 1;'),
    ("print", "engine/run.cc", 'std::fprintf(stderr, "x");'),
    ("exception", "nvme/ring.cc", "throw Fault{};"),
    ("assert", "nvme/ring.cc", "assert(true);"),
    ("environment", "engine/run.cc", 'getenv("HOME");'),
    ("open", "engine/run.cc", '::open("x", O_RDONLY);'),
    ("stream", "offload/part.cc", 'std::ifstream file("x");'),
    ("istreambuf", "engine/run.cc", "std::istreambuf_iterator<char> begin(file);"),
    ("mmap", "engine/run.cc", "mmap(nullptr, 1, 2, 3, 4, 5);"),
    ("new", "engine/run.cc", "auto* run = new Run;"),
    ("malloc", "engine/run.cc", "void* bytes = std::malloc(5);"),
    ("io_uring", "engine/run.cc", "io_uring_submit(&ring);"),
    ("cuda", "engine/run.cc", "cudaMalloc(&bytes, 5);"),
    ("process", "nvme/ring.cc", 'std::system("ls");'),
    ("random", "offload/part.cc", "std::random_device random;"),
    ("clock", "offload/part.cc", "auto now = std::chrono::steady_clock::now();"),
    ("simulating", "offload/part.cc", "void f() { if (simulating) g(); }"),
    ("using", "offload/part.cc", "using namespace std;"),
    ("unit", "offload/part.h", "void read(uint64_t offset);"),
    ("path", "README.md", "Run `./scripts/absent`."),
    ("path", "offload/part.cc", "// see offload/absent.h"),
    ("foreign", "offload/part.cc", "// measured in /wor" + "k/main"),
    ("unfinished", "offload/part.cc", "// TO" + "DO: the rest"),
]
# (rule, path of the finding, line, changed files, removed files)
FILES = [
    ("long", "offload/part.cc", 8,
     {"offload/part.cc": CLEAN["offload/part.cc"] + "void f() {\n" + "g();\n" * 69 + "}\n"}, ()),
    ("long", "scripts/x.py", 1, {"scripts/x.py": "def f():\n" + "    g()\n" * 70}, ()),
    ("header", "offload/part.h", 220, {"offload/part.h": CLEAN["offload/part.h"] + "\n" * 215}, ()),
    ("header", "engine/run.h", 1,
     {"engine/run.h": "// A run.\nnamespace headrace::engine {\nstruct Run;\n}\n"}, ()),
    ("namespace", "engine/run.h", 1,
     {"engine/run.h": "// A run.\n#pragma once\nnamespace other {\nstruct Run;\n}\n"}, ()),
    ("opening", "tests/offload/part_test.cc", 1,
     {"tests/offload/part_test.cc": '#include "offload/part.h"\n'}, ()),
    ("dead", "engine/run.h", 1, {"engine/run.cc": '#include "nvme/ring.h"\n'}, ()),
    ("unlisted", "nvme/ring.cc", 1,
     {"nvme/CMakeLists.txt": "headrace_library(nvme SOURCES other_ring.cc)\n"}, ()),
    ("mirror", "tests/offload/gone_test.cc", 1,
     {"tests/offload/gone_test.cc": "// Goal: none.\n",
      "tests/CMakeLists.txt": "part_test.cc gone_test.cc\nheadrace_test(offload/part_test.cc "
                              "offload/gone_test.cc)\n"}, ()),
    ("arrow", "engine/attic/run.cc", 1,
     {"engine/attic/run.cc": "", "engine/attic/CMakeLists.txt": "run.cc"}, ()),
    ("readme", "offload/README.md", 40, {"offload/README.md": "A line.\n" * 41}, ()),
    ("readme", "nvme/README.md", 1, {}, ("nvme/README.md",)),
    ("assertions", "nvme", 1, {"nvme/ring.cc": CLEAN["nvme/ring.cc"] + "int x;\n" * 100}, ()),
]


class TidyTest(unittest.TestCase):
    def test_clean_tree_has_no_finding(self):
        self.assertEqual(faults({}), [])

    def test_each_line_is_found_where_it_stands(self):
        for rule, path, line in LINES:
            with self.subTest(rule=rule, line=line):
                changes, number = appended(path, line)
                self.assertEqual(faults(changes), [(rule, path, number)])

    def test_each_fault_of_a_file_is_found(self):
        for rule, path, line, changes, removed in FILES:
            with self.subTest(rule=rule, path=path):
                self.assertEqual(faults(changes, removed), [(rule, path, line)])

    def test_every_rule_has_a_case(self):
        seen = {case[0] for case in LINES} | {case[0] for case in FILES}
        self.assertLessEqual({row.rule for row in tidy.BANNED}, seen)
        source = Path(tidy.__file__).read_text()
        named = set(tidy.re.findall(r'Finding\([\w./{}f" ]+, [\w]+, "(\w+)"', source))
        self.assertLessEqual(named - {"large"}, seen)
        self.assertGreaterEqual(len(named), 14)

    def test_a_waiver_needs_a_reason(self):
        call = "auto* run = new Run;"
        for waiver, expected in (("// tidy: allow new, because it lives as long as the program", 0),
                                 ("// tidy: allow new, because", 1),
                                 ("// tidy: allow mmap, because x", 1)):
            changes, _ = appended("engine/run.cc", waiver + "\n" + call)
            self.assertEqual(len(faults(changes)), expected, waiver)

    def test_a_long_function_may_say_why(self):
        text = "// tidy: long, because it is one table\nvoid f() {\n" + "g();\n" * 69 + "}\n"
        self.assertEqual(faults({"offload/part.cc": CLEAN["offload/part.cc"] + text}), [])

    def test_homes_may_call_what_is_theirs(self):
        changes, _ = appended("nvme/ring.cc", '::open("x", O_DIRECT); io_uring_submit(ring);')
        self.assertEqual(faults(changes), [])

    def test_a_factory_may_reach_a_private_constructor(self):
        for line in ("auto run = std::unique_ptr<Run>(new Run(5));",
                     "std::unique_ptr<a::Run> run(new Run(5));"):
            changes, _ = appended("engine/run.cc", line)
            self.assertEqual(faults(changes), [])

    def test_functions_are_told_from_other_braces(self):
        code = """namespace a {
struct S {
    S(int x) : x_{x}, y_(2) {
        f();
    }
    S() : x_{1}, y_{2} {}
    int values[2] = {1, 2};
};
const auto table = std::to_array({
    1,
});
template <typename T>
[[nodiscard]] Result<T> g(
    int x) {
    auto inner = [&](int y) { return y; };
    if (x) { for (;;) { } }
    return {};
}
#define M(x) \\
    do { f(x); } while (false)
int h() { return 1; }
}
"""
        self.assertEqual(tidy.cpp_functions(code), [(3, 5), (6, 6), (12, 18), (21, 21)])

    def test_files_on_disk_are_read_without_git(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in CLEAN.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            (root / "build").mkdir()
            (root / "build" / "made.cc").write_text("throw 1;\n")
            (root / "picture.png").write_bytes(b"\x89PNG\0" * 10)
            (root / "huge.txt").write_text("x" * (tidy.FILE_BYTES_LIMIT + 1))
            tree, findings = tidy.read_tree(root)
            self.assertEqual(sorted(tree.files), sorted(CLEAN))
            self.assertEqual([(f.rule, f.path) for f in findings], [("large", "huge.txt")])


if __name__ == "__main__":
    unittest.main()
