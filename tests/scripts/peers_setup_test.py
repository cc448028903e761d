"""Goal: scripts/peers/setup makes an environment of its own that borrows the project's packages,
compiles before it says ready, does nothing a second time, starts over where it was interrupted,
and deletes nothing that is not its own.

Method: stand-ins for dpkg-query and apt-get, and a project's python that makes environments whose
python records its calls and fails when told to; nothing is installed. Folders have a space in
their names.
"""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "peers" / "setup"
# `python -m venv FOLDER` makes one; `python - FOLDER` is given the program that borrows.
PYTHON = """#!/bin/sh
echo "python $*" >>"$FAKE/calls"
case "$*" in
    "-m venv "*)
        mkdir -p "$3/bin" "$3/lib"
        touch "$3/pyvenv.cfg"
        cp "$0" "$3/bin/python" ;;
    "- "*) cat >"$2/lib/borrowed" ;;
    "-") cat >/dev/null; test ! -e "$FAKE/broken" ;;
esac
"""


class PeersSetupTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="peers set up ")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.venv = self.folder / "cache" / "peers-venv"
        for name, text in (("dpkg-query", "#!/bin/sh\nprintf installed\n"),
                           ("apt-get", "#!/bin/sh\necho apt-get >>\"$FAKE/calls\"\n"),
                           ("python", PYTHON)):
            path = self.folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def run_setup(self):
        (self.folder / "calls").write_text("")
        done = subprocess.run(
            ["/bin/bash", SCRIPT], capture_output=True, text=True, cwd="/",
            env={"HOME": str(self.folder), "FAKE": str(self.folder),
                 "HEADRACE_PEERS_VENV": str(self.venv),
                 "HEADRACE_PYTHON": str(self.folder / "bin" / "python"),
                 "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        return done, (self.folder / "calls").read_text().splitlines()

    def test_it_is_made_compiled_and_stamped_and_the_second_run_does_nothing(self):
        done, calls = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(calls[0], f"python -m venv {self.venv}")
        self.assertRegex(calls[2], r"^python -m pip install .*/scripts/peers/requirements.txt$")
        self.assertEqual(calls[3:], ["python -"])
        self.assertIn("getsitepackages", (self.venv / "lib" / "borrowed").read_text())
        self.assertTrue((self.venv / "requirements.sha256").exists())
        done, calls = self.run_setup()
        self.assertEqual((done.returncode, calls), (0, []))

    def test_what_does_not_compile_is_no_environment_and_is_made_again(self):
        (self.folder / "broken").touch()
        done, _ = self.run_setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn("compile.log", done.stderr)
        self.assertFalse((self.venv / "requirements.sha256").exists())
        (self.folder / "broken").unlink()
        (self.venv / "half").touch()
        done, calls = self.run_setup()
        self.assertEqual((done.returncode, len(calls)), (0, 4), done.stderr)
        self.assertFalse((self.venv / "half").exists())

    def test_a_folder_of_somebody_else_stays(self):
        self.venv.mkdir(parents=True)
        (self.venv / "letters").touch()
        done, calls = self.run_setup()
        self.assertEqual((done.returncode, calls), (1, []))
        self.assertIn("is not a Python environment", done.stderr)
        self.assertTrue((self.venv / "letters").exists())


if __name__ == "__main__":
    unittest.main()
