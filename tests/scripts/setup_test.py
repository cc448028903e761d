"""Goal: scripts/setup installs exactly what is missing, as root or by sudo, and says what only a
person can do; a second run does nothing; an interrupted environment is made again.

Method: stand-ins for dpkg-query, id, sudo, apt-get and python3 on PATH, which record how they were
called; nothing is installed. The script runs whole, in folders with a space in their names.
"""

import hashlib
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
STAMP = hashlib.sha256((SCRIPTS / "requirements.txt").read_bytes()).hexdigest()
STAND_INS = {
    "dpkg-query": 'for last; do :; done\n'
                  'grep -qx -- "$last" "$FAKE/missing" || printf installed\n',
    "id": 'cat "$FAKE/user"\n',
    "sudo": 'echo "sudo $*" >>"$FAKE/calls"\nexec "$@"\n',
    "apt-get": 'echo "apt-get $*" >>"$FAKE/calls"\n'
               'case "$*" in *install*) : >"$FAKE/missing" ;; esac\n',
}
# A python that records what pip was asked for.
PYTHON = '#!/bin/sh\necho "python $*" >>"$FAKE/calls"\n'


ROOT = SCRIPTS.parent
# Debian's package of each thing that cmake looks for; those that come with the tools have none.
PACKAGE_OF = {
    "Threads": None, "CUDAToolkit": None, "Torch": None, "PkgConfig": "pkg-config",
    "fmt": "libfmt-dev", "spdlog": "libspdlog-dev", "nlohmann_json": "nlohmann-json3-dev",
    "yaml-cpp": "libyaml-cpp-dev", "CLI11": "libcli11-dev", "OpenSSL": "libssl-dev",
    "liburing": "liburing-dev", "hwloc": "libhwloc-dev", "libxxhash": "libxxhash-dev",
    "TBB": "libtbb-dev", "GTest": "libgtest-dev", "benchmark": "libbenchmark-dev"}


class PackagesTest(unittest.TestCase):
    def test_everything_that_cmake_looks_for_is_installed(self):
        setup = (SCRIPTS / "setup").read_text()
        packages = re.search(r"packages=\((.*?)\n\)", setup, re.DOTALL).group(1).split()
        wanted = set()
        for file in [ROOT / "CMakeLists.txt", *(path for name in (
                "cmake", "offload", "nvme", "cpu_adam", "kernels", "engine", "tests")
                for path in (ROOT / name).rglob("*") if path.name == "CMakeLists.txt"
                or path.suffix == ".cmake")]:
            text = file.read_text()
            wanted |= set(re.findall(r"find_package\((\S+)", text))
            wanted |= set(re.findall(r"IMPORTED_TARGET (\S+)\)", text))
        self.assertLess({"OpenSSL", "liburing", "GTest"}, wanted)
        for name in wanted:
            self.assertIn(name, PACKAGE_OF, "which package has it?")
            if PACKAGE_OF[name]:
                self.assertIn(PACKAGE_OF[name], packages)


class SetupTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="set up ")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.venv = self.folder / "cache" / "venv"
        (self.folder / "bin").mkdir()
        for name, text in STAND_INS.items():
            self.program(self.folder / "bin" / name, "#!/bin/sh\n" + text)
        self.state(user="0", missing="")

    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def state(self, user, missing):
        (self.folder / "user").write_text(user + "\n")
        (self.folder / "missing").write_text(missing)
        (self.folder / "calls").write_text("")

    def environment(self, stamp):
        self.program(self.venv / "bin" / "python", PYTHON)
        if stamp:
            (self.venv / "headrace-requirements.sha256").write_text(stamp + "\n")

    def run_setup(self, path_after=":" + os.environ["PATH"]):
        done = subprocess.run(
            ["/bin/bash", SCRIPTS / "setup"], capture_output=True, text=True, cwd="/",
            env={"HOME": str(self.folder), "FAKE": str(self.folder),
                 "HEADRACE_VENV": str(self.venv), "PATH": f"{self.folder}/bin{path_after}"})
        calls = (self.folder / "calls").read_text().splitlines()
        return done, calls

    def test_nothing_is_called_where_nothing_is_missing(self):
        self.environment(STAMP)
        done, calls = self.run_setup()
        self.assertEqual((done.returncode, done.stderr, calls), (0, "", []))

    def test_root_installs_only_what_is_missing(self):
        self.environment(STAMP)
        self.state(user="0", missing="ccache\nliburing-dev\n")
        done, calls = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(calls), 2)
        self.assertTrue(calls[0].endswith("update"))
        self.assertTrue(calls[1].endswith("--no-install-recommends ccache liburing-dev"), calls)

    def test_others_ask_for_sudo_by_name_and_say_why(self):
        self.environment(STAMP)
        self.state(user="1000", missing="ccache\n")
        done, calls = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([call.split()[0] for call in calls], ["sudo", "apt-get"] * 2)
        self.assertIn("sudo apt-get install -y --no-install-recommends ccache", done.stderr)

    def test_without_sudo_the_command_is_printed(self):
        self.environment(STAMP)
        self.state(user="1000", missing="ccache\n")
        (self.folder / "bin" / "sudo").unlink()
        for name in ("sed", "dirname", "readlink", "basename", "sh", "grep", "cat"):
            (self.folder / "bin" / name).symlink_to(f"/usr/bin/{name}")
        done, calls = self.run_setup(path_after="")
        self.assertEqual((done.returncode, calls), (2, []))
        self.assertIn("apt-get update && apt-get install -y --no-install-recommends ccache",
                      done.stderr)

    def test_a_package_that_stays_missing_is_told(self):
        self.environment(STAMP)
        self.state(user="0", missing="ccache\n")
        self.program(self.folder / "bin" / "apt-get", "#!/bin/sh\nexit 0\n")
        done, _ = self.run_setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn("still missing after apt-get install: ccache", done.stderr)

    def test_somebody_s_environment_gets_packages_and_loses_nothing(self):
        self.environment(stamp="of other requirements")
        (self.venv / "kept").write_text("mine")
        done, calls = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pip install", calls[0])
        self.assertIn("requirements.txt", calls[0])
        self.assertTrue((self.venv / "kept").exists())
        self.assertEqual(self.run_setup()[1], calls)  # the second run called nothing more

    def test_an_interrupted_environment_is_removed_first(self):
        self.environment(stamp=None)
        (self.venv / "half").write_text("a torch")
        Path(f"{self.venv}.incomplete").touch()
        # The environment is made anew by Debian's python; pip fails here, since nothing is there.
        self.run_setup_without_network()
        self.assertFalse((self.venv / "half").exists())
        self.assertTrue(Path(f"{self.venv}.incomplete").exists())
        self.assertFalse((self.venv / "headrace-requirements.sha256").exists())

    def run_setup_without_network(self):
        done = subprocess.run(
            ["/bin/bash", SCRIPTS / "setup"], capture_output=True, text=True,
            env={"HOME": str(self.folder), "FAKE": str(self.folder), "PIP_NO_INDEX": "1",
                 "PIP_CONFIG_FILE": "/dev/null", "HEADRACE_VENV": str(self.venv),
                 "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("pip could not install", done.stderr)


if __name__ == "__main__":
    unittest.main()
