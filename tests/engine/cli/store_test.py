"""Goal: nothing that was committed is lost, whatever a user or a drive does: a resume that is
refused, a drive that fills, dies or hangs, a kill in a save or while parts are repacked, a store
that is moved (CKPT-2, CKPT-11, NVME-2, HANG). Each ends in one message that says what to do, and
the run that goes on has the bits of the run that nothing happened to.

Method: the program of the tests, which can be told to kill itself, or to lose or fail requests to
its drives, on a tiny model. Real drives that fill or die are loop mounts: root only.
Usage: store_test.py PROGRAM_OF_THE_TESTS
"""
import fcntl
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import tiny

PROGRAM = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
FAILED, USAGE, DOES_NOT_FIT, BAD_DATA = 1, 2, 3, 4
KILLED = -signal.SIGKILL
STEPS = 8
SMALL = ("gpu_budget=32MiB", "ram_budget=32MiB", "compute_threads=1", "part_bytes=8KiB",
         "parameters=nvme", "optimizer=nvme",
         f"max_steps={STEPS}", "learning_rate=1e-2", "warmup_ratio=0")
RESUME = "resume_from_checkpoint=true"
IN_MEMORY = ("parameters=ram", "optimizer=ram")
# In which the run has committed some steps and is not near its end.
REQUESTS_OF_SOME_STEPS = 700
# struct ext4: _IOR('X', 125, __u32), and the flag that flushes nothing.
EXT4_SHUTDOWN, NO_FLUSH = 0x8004587D, 2


class StoreTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.good = tempfile.TemporaryDirectory(prefix="headrace stores ")
        cls.root = Path(cls.good.name)
        tiny.write_model(cls.root / "model")
        tiny.write_data(cls.root / "data")
        cls.model, cls.data = cls.root / "model", cls.root / "data" / "tokens.jsonl"
        # Set already: a program that starts over would do so without the faults.
        cls.program = tiny.Program(PROGRAM, sys.executable, cls.root, OMP_WAIT_POLICY="passive")
        drive = cls.root / "drive"
        drive.mkdir()
        whole = cls.program.run("train", cls.model, cls.data, "--nvme", drive,
                                f"output_dir={cls.root / 'whole'}", *SMALL)
        assert whole.code == 0, whole
        cls.expected = whole.fact("sha256"), whole.fact("states")

    @classmethod
    def tearDownClass(cls):
        cls.good.cleanup()

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="headrace runs ")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.out = self.folder / "out"
        self.drives = [self.folder / f"drive{i}" for i in range(3)]
        for drive in self.drives:
            drive.mkdir()
        self.drive = self.drives[0]

    # ---- what the tests are made of ------------------------------------------------------------

    def job(self, *more, drives=None):
        """Later settings win."""
        paths = [word for drive in drives or [self.drive] for word in ("--nvme", drive)]
        return ("train", self.model, self.data, *paths, f"output_dir={self.out}", *SMALL, *more)

    def ended(self, code, *words, parts=(), **more):
        """The program leaves with this code, and what went wrong is one message with all parts."""
        outcome = self.program.run(*words, **more)
        self.assertEqual(outcome.code, code, outcome)
        for part in parts:
            self.assertIn(str(part), outcome.err, outcome)
        if code > 0:
            self.assertEqual(outcome.err.count("headrace: "), 1, outcome)
        for noise in ("CHECK", "terminate called"):
            self.assertNotIn(noise, outcome.err)
        return outcome

    def stopped(self, *more, drives=None):
        """A run that was killed after some steps; how many of them were surely committed."""
        ended = self.ended(KILLED, *self.job("--kill-at-request", REQUESTS_OF_SOME_STEPS, *more,
                                             drives=drives))
        return int(re.findall(r" step=(\d+)/", ended.out)[-1]) - 1

    def committed(self, drives=None):
        """The step of the newest commit, every byte of which is as it was written; None without."""
        paths = [word for drive in drives or [self.drive] for word in ("--nvme", drive)]
        verified = self.program.run("store", "verify", self.out, *paths)
        if verified.code == BAD_DATA and "no store" in verified.err:
            return None
        self.assertEqual(verified.code, 0, verified)
        return int(re.search(r"whole: the commit of step (\d+),", verified.out)[1])

    def check_resumes(self, *more, drives=None):
        resumed = self.ended(0, *self.job(RESUME, *more, drives=drives))
        self.assertEqual((resumed.fact("sha256"), resumed.fact("states")), self.expected, resumed)
        for drive in drives or [self.drive]:
            self.assertEqual([path for path in drive.iterdir() if path.is_dir()
                              and path.name.startswith("headrace")], [], resumed)
        return resumed

    def started(self, *words):
        running = self.program.start(*words)
        self.addCleanup(running.kill)
        return running

    def wait_for(self, running, word):
        for line in running.stdout:
            if word in line:
                return
        self.fail(f"it ended without '{word}':\n{running.stderr.read()}")

    # ---- resume as a user ----------------------------------------------------------------------

    def test_a_resume_that_is_refused_changes_nothing(self):
        done = self.stopped()
        other_data = self.folder / "other.jsonl"
        rows = [json.loads(line) for line in self.data.read_text().splitlines()]
        rows[2]["input_ids"][3] += 1
        tiny.write_lines(other_data, rows)
        other_model = shutil.copytree(self.model, self.folder / "model")
        header, stored = tiny.read_header(other_model / "model.safetensors")
        tiny.write_with_header(other_model / "model.safetensors", header,
                               stored[:2] + b"\x3f" + stored[3:])
        before = tiny.tree_of(self.drive), tiny.tree_of(self.out)
        for code, parts, words in (
                (BAD_DATA, ["train_data was", "compute_threads was 1 and is 2",
                            "dtype was bf16 and is fp32", "compute_threads=1", "dtype=bf16"],
                 [f"train_data={other_data}", "compute_threads=2", "dtype=fp32"]),
                (BAD_DATA, ["model was"], [f"model={other_model}"]),
                (USAGE, ["steps, and this start asks for 1", "exports what is there"],
                 ["max_steps=1"])):
            self.ended(code, *self.job(RESUME, *words), parts=parts)
        self.ended(USAGE, *self.job(), parts=[RESUME, "overwrite_output_dir=true"])
        self.assertEqual((tiny.tree_of(self.drive), tiny.tree_of(self.out)), before)

        # A result that finds no place is told when the store is open already.
        (self.out / "model").mkdir()
        (self.out / "model" / "thesis.tex").write_text("")
        refused = self.ended(USAGE, *self.job(RESUME), parts=["thesis.tex"])
        self.assertIn(RESUME, refused.out)
        shutil.rmtree(self.out / "model")
        self.assertGreaterEqual(self.committed(), done)
        self.check_resumes()

    def test_a_run_whose_last_writes_are_under_way_is_not_thrown_away(self):
        done = self.stopped()
        store, = self.drive.iterdir()
        with open(store / "map", "rb") as held:  # as the kernel holds it until they are done
            fcntl.flock(held, fcntl.LOCK_EX)
            running = self.started(*self.job())
            time.sleep(1)
        _, said = running.communicate()
        self.assertEqual(running.returncode, USAGE, said)
        self.assertIn("unfinished run", said)
        self.assertGreaterEqual(self.committed(), done)
        self.check_resumes()

    def test_other_drives_are_refused_with_what_moves_the_store(self):
        self.stopped(drives=self.drives[:2])
        for drives in (self.drives[:1], self.drives):
            self.ended(BAD_DATA, *self.job(RESUME, drives=drives), parts=["headrace store move"])
        self.ended(BAD_DATA, *self.job("overwrite_output_dir=true", drives=self.drives[1:2]),
                   parts=["headrace store remove"])
        self.check_resumes(drives=self.drives[1::-1])

    def test_a_renamed_output_dir_is_found_out(self):
        self.stopped()
        moved = self.folder / "moved"
        self.out.rename(moved)
        store, = (path.name.removeprefix("headrace-") for path in self.drive.iterdir())
        self.ended(BAD_DATA, *self.job(RESUME, f"output_dir={moved}"),
                   parts=[moved, f"'{store}' (step ", "renamed"])
        moved.rename(self.out)
        # Its files in another place, but under the same name, by way of a link.
        elsewhere = self.folder / "elsewhere"
        elsewhere.symlink_to(self.folder)
        self.ended(USAGE, *self.job(f"output_dir={elsewhere / 'out'}"), parts=["unfinished run"])
        shutil.rmtree(self.out)  # all that is needed is in the store
        self.check_resumes()

    def test_a_start_on_other_drives_sees_the_run_that_is_left(self):
        self.stopped()
        metrics = (self.out / "metrics.jsonl").read_bytes()
        in_memory = [word for word in self.job(*IN_MEMORY) if word not in ("--nvme", self.drive)]
        for job in (in_memory, self.job(drives=self.drives[1:2])):
            self.ended(USAGE, *job, parts=["unfinished run", self.drive])
        self.assertEqual((self.out / "metrics.jsonl").read_bytes(), metrics)
        self.check_resumes()

    def test_a_finished_run_and_other_recipes(self):
        self.stopped()
        other = self.ended(0, *self.job(RESUME, "learning_rate=2e-2", "max_steps=7"))
        for change in ("learning_rate was 0.01 and is 0.02", f"max_steps was {STEPS} and is 7"):
            self.assertIn(change, other.out + other.err)
        self.ended(BAD_DATA, *self.job(RESUME), parts=["no run to resume", "finished"])
        self.ended(BAD_DATA, "train", self.out / "config.resolved.yaml", parts=["finished"])

    def test_damaged_metrics_do_not_stop_a_resume(self):
        self.stopped()
        path = self.out / "metrics.jsonl"
        kept = path.read_bytes()[:-40]  # the last line is cut
        path.write_bytes(os.urandom(3000) + b"\n" + kept)
        self.check_resumes()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        steps = [row["step"] for row in rows if "loss" in row]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual((steps[0], steps[-1], rows[-1]["event"]), (1, STEPS, "finished"))

    def test_ckpt_2_starts_that_are_killed_take_the_space_of_one(self):
        taken = []
        for _ in range(3):
            self.stopped("overwrite_output_dir=true")
            taken.append({path.relative_to(self.drive): path.stat().st_blocks
                          for path in self.drive.rglob("*") if path.is_file()})
        self.assertEqual(taken[0].keys(), taken[2].keys())
        self.assertEqual(sum(taken[0].values()), sum(taken[2].values()))
        # Each kept room for its result.
        self.assertEqual(len([path for path in self.out.iterdir() if "partial" in path.name]), 1)
        self.check_resumes()
        self.assertEqual(sorted(path.name for path in self.out.iterdir()),
                         ["config.resolved.yaml", "metrics.jsonl", "model"])

    # ---- saves ---------------------------------------------------------------------------------

    def save_job(self, *more):
        return self.job(*IN_MEMORY, "save_steps=2", *more)

    def check_the_last_save_is_whole(self, ended, before):
        """The newest commit is at or after the last save that was told, and is on the drive."""
        told = [int(step) for step in re.findall(r"saved after step (\d+)", ended.out)]
        found = self.committed()
        if told or before:
            self.assertGreaterEqual(found, max(told, default=before), ended)
            self.assertEqual(found % 2, 0, ended)
        return found

    def test_ckpt_11_kills_and_full_drives_in_a_save(self):
        chance = random.Random(11)
        saved, resumed = None, 0
        for start in range(7):
            how = ("--kill-at-request", "--fill-request", "--fail-request")[start % 3]
            request = chance.randrange(1, 150) if saved else chance.randrange(130, 230)
            ended = self.program.run(*self.save_job(RESUME if saved else
                                                    "overwrite_output_dir=true", how, request))
            if ended.code == 0:
                self.assertEqual(ended.fact("sha256"), self.expected[0])
                saved = None
                continue
            self.assertEqual(ended.code, KILLED if how == "--kill-at-request" else FAILED, ended)
            resumed += bool(saved)
            saved = self.check_the_last_save_is_whole(ended, saved)
        self.assertGreater(resumed, 0)
        if saved:
            self.check_resumes(*IN_MEMORY)

    def test_a_stop_is_a_save_also_where_an_evaluation_is_due(self):
        forever = (*IN_MEMORY, "commit=at_saves", f"eval_data={self.data}", "eval_steps=1",
                   "lr_scheduler_type=constant", "max_steps=1000000")
        running = self.started(*self.job(*forever))
        tiny.wait_for_step(running, 3)
        ended = tiny.end(running, signal.SIGINT)
        self.assertEqual(ended.code, 128 + signal.SIGINT, ended)
        stopped_after = int(re.search(r"after step (\d+) of", ended.err)[1])
        self.assertIn(f"saved after step {stopped_after} of", ended.out)
        self.assertEqual(self.committed(), stopped_after)

    # ---- drives --------------------------------------------------------------------------------

    def test_hang_a_request_that_never_ends_ends_the_program(self):
        for engine, request in (("uring", 20), ("threads", REQUESTS_OF_SOME_STEPS)):
            began = time.monotonic()
            ended = self.ended(
                FAILED, *self.job("overwrite_output_dir=true", f"io_engine={engine}",
                                  "--lose-request", request),
                parts=["lane is stuck", " of the place '", self.drive, "the last commit is as it"])
            self.assertEqual(len(ended.err.splitlines()), 1, ended)
            self.assertLess(time.monotonic() - began, 10)
        self.check_resumes()

    def test_requests_that_fail_in_a_step(self):
        for engine, how, word in (("uring", "--fail-request", "EIO"),
                                  ("threads", "--fill-request", "ENOSPC")):
            ended = self.ended(
                FAILED, *self.job("overwrite_output_dir=true", f"io_engine={engine}", how,
                                  REQUESTS_OF_SOME_STEPS),
                parts=["the place '", " bytes at offset ", self.drive, word])
            self.assertIn(RESUME, ended.out)
            self.assertIn("resuming after step", self.check_resumes().out)

    def mounted(self, image, megabytes):
        """An ext4 of its own, or a skipped test. With smaller blocks a loop device on a full file
        system takes the part of a request that still fits, and says that it took all."""
        drive = self.folder / "mounted"
        drive.mkdir()
        with open(image, "wb") as file:
            file.truncate(megabytes << 20)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        made = os.geteuid() == 0 and all(
            subprocess.run(command, **quiet, check=False).returncode == 0 for command in (
                ["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^has_journal",
                 str(image)],
                ["mount", "-o", "loop", str(image), str(drive)]))
        if not made:
            self.skipTest("needs root and loop mounts")
        self.addCleanup(subprocess.run, ["umount", "-l", str(drive)], check=True)
        return drive

    def test_nvme_2_a_thin_drive_fills_in_mid_run(self):
        # What holds the drive's image is full: reserved space does not help.
        below = self.folder / "below"
        below.mkdir()
        if os.geteuid() != 0 or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(below)],
                stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("needs root and mounts")
        self.addCleanup(subprocess.run, ["umount", "-l", str(below)], check=True)
        drive = self.mounted(below / "image", 64)
        # An ext4 fills small gaps with zeros by itself: places must be large. In fp32 there is
        # nothing to write of the states before the first save.
        job = self.job(*IN_MEMORY, "save_steps=100", "lr_scheduler_type=constant",
                       "max_steps=1000000", "part_bytes=64KiB", "dtype=fp32",
                       drives=[drive])
        running = self.started(*job, "--slow-requests", 10)  # a save is not over at once
        self.wait_for(running, "saved after step 100")
        # The second copies, which the next save goes to, have never been written.
        os.kill(running.pid, signal.SIGSTOP)
        ballast = below / "ballast"
        self.fill(ballast)
        os.kill(running.pid, signal.SIGCONT)
        out, err = running.communicate(timeout=30)
        self.assertEqual(running.returncode, FAILED, out + err)
        self.assertEqual(err.count("headrace: "), 1, err)
        for part in (drive, " bytes at offset "):
            self.assertIn(str(part), err)
        self.assertTrue("ENOSPC" in err or "EIO" in err, err)
        ballast.unlink()
        self.assertEqual(self.committed([drive]), 100)
        resumed = self.ended(0, *job, RESUME, "max_steps=102")
        self.assertIn("resuming after step 100 of 102", resumed.out)

    @staticmethod
    def fill(path):
        with open(path, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass

    def test_a_drive_that_dies_in_mid_run(self):
        drive = self.mounted(self.folder / "image", 64)
        running = self.started(*self.job("lr_scheduler_type=constant", "max_steps=1000000",
                                         drives=[drive]))
        tiny.wait_for_step(running, 3)
        descriptor = os.open(drive, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_SHUTDOWN, struct.pack("I", NO_FLUSH))
        except OSError:
            self.skipTest("this kernel cannot shut an ext4 down")
        finally:
            os.close(descriptor)
        out, err = running.communicate(timeout=30)
        self.assertEqual(running.returncode, FAILED, out + err)
        self.assertEqual(err.count("headrace: "), 1, err)
        self.assertIn(str(drive), err)
        self.assertIn("EIO", err)

    def test_a_drive_that_is_too_small_is_refused_beforehand(self):
        drive = self.mounted(self.folder / "image", 16)
        ballast = drive / "ballast"
        with open(ballast, "wb") as file:
            space = os.statvfs(drive)
            file.write(bytes(space.f_bavail * space.f_frsize - (2 << 20)))
        before = sorted(drive.iterdir())
        told = self.ended(DOES_NOT_FIT, *self.job(drives=[drive]),
                          parts=["this job does not fit", "on nvme_paths", drive,
                                 "may take 1.9", "more there, or name another drive"])
        self.assertNotIn("nvme_budget=", told.err)  # no setting makes room
        self.assertEqual(sorted(drive.iterdir()), before)
        # With the room it has it fits; and then also beside an old store that it replaces.
        ballast.write_bytes(bytes(ballast.stat().st_size - (2 << 20)))
        self.stopped(drives=[drive])
        again = self.ended(0, *self.job("overwrite_output_dir=true", drives=[drive]))
        self.assertRegex(again.out, r"nvme 2\.\d+ MiB of [34]\.\d+ MiB")

    # ---- repacking -----------------------------------------------------------------------------

    def test_kills_while_parts_are_repacked(self):
        chance = random.Random(5)
        done = self.stopped()
        sizes = ("16KiB", "8KiB", "32KiB")
        for start in range(5):
            ended = self.program.run(*self.job(RESUME, f"part_bytes={sizes[start % 3]}",
                                               "--kill-at-request", chance.randrange(1, 150)))
            self.assertEqual(ended.code, KILLED, ended)
            found = self.committed()
            self.assertGreaterEqual(found, done, ended)
            done = found
        self.assertLess(done, STEPS)
        self.check_resumes("part_bytes=4KiB")

    def test_repacking_stays_inside_the_budgets(self):
        self.stopped()
        told = self.program.run(*self.job(RESUME, "nvme_budget=3MiB", "part_bytes=64KiB"))
        self.assertEqual(told.code, DOES_NOT_FIT, told)
        self.assertIn("raise nvme_budget for this start", told.err)
        resumed = self.check_resumes("nvme_budget=8MiB", "part_bytes=64KiB")
        self.assertIn("repacking the run's parts", resumed.out)

    # ---- signals -------------------------------------------------------------------------------

    def test_a_signal_while_loading_and_repacking(self):
        loading = self.started(*self.job("--slow-requests", 3))
        self.wait_for(loading, "a step reads")
        ended = tiny.end(loading, signal.SIGTERM)
        self.assertEqual(ended.code, 128 + signal.SIGTERM, ended)
        self.assertIn("stopped by signal 15 before the first step", ended.err)
        self.assertEqual(list(self.drive.iterdir()), [])

        done = self.stopped()
        for again in (False, True):
            repacking = self.started(*self.job(RESUME, "--slow-requests", 3, "part_bytes=16KiB"))
            self.wait_for(repacking, "repacking" if not again else "resuming")
            if again:  # the second signal does not wait
                repacking.send_signal(signal.SIGINT)
                time.sleep(0.02)
            ended = tiny.end(repacking, signal.SIGINT if again else signal.SIGTERM)
            self.assertEqual(ended.code, -signal.SIGINT if again else 128 + signal.SIGTERM, ended)
        self.assertGreaterEqual(self.committed(), done)
        self.check_resumes()

    def test_a_stop_whose_save_fails_is_a_failure(self):
        job = self.job(*IN_MEMORY, "commit=at_saves", "max_steps=1000000")
        whole = self.ended(0, *job, "max_steps=1")
        # A load and a save, of which the last fails.
        request = int(re.search(r"wrote [^(]* in (\d+) ", whole.out)[1])
        for fault, code, word in ((("--fail-request", request), FAILED, "EIO"),
                                  (("--fill-request", request), FAILED, "ENOSPC"),
                                  ((), 128 + signal.SIGTERM, "stopped by signal 15 after step")):
            running = self.started(*job, "overwrite_output_dir=true", *fault)
            tiny.wait_for_step(running, 2)
            ended = tiny.end(running, signal.SIGTERM)
            self.assertEqual(ended.code, code, ended)
            self.assertIn(word, ended.err)
            self.assertEqual("stopped by signal" in ended.err, not fault, ended)

    def test_a_signal_while_exporting_comes_too_late(self):
        running = self.started(*self.job("--slow-requests", 2, "max_steps=2"))
        self.wait_for(running, "step=2/2")
        time.sleep(0.2)
        ended = tiny.end(running, signal.SIGTERM)
        self.assertIn(ended.code, (0, 128 + signal.SIGTERM), ended)
        self.assertEqual(ended.code == 0, (self.out / "model" / "model.safetensors").exists())
        if ended.code != 0:
            self.ended(0, *self.job(RESUME, "max_steps=2"))

    # ---- headrace store ------------------------------------------------------------------------

    def test_list_tells_what_is_there(self):
        self.stopped(drives=self.drives[:2])
        foreign = self.drive / "headrace-thesis"
        foreign.mkdir()
        (foreign / "chapter1.tex").write_text("")
        (self.drive / "photos").mkdir()
        told = self.ended(0, "store", "list", *self.drives).out
        for part in ("path 1 of 2", "path 2 of 2", "committed: step", "unusable", "no store"):
            self.assertIn(part, told)
        self.assertNotIn("photos", told)
        self.ended(FAILED, "store", "list", self.folder / "absent", parts=["absent"])
        self.ended(FAILED, "store", "remove", "thesis", "--nvme", self.drive, parts=["thesis"])
        self.assertTrue((foreign / "chapter1.tex").exists())

    def test_commands_that_are_mistyped(self):
        for words, parts in ((["lsit", self.drive], ["'list'"]), (["move", self.out], ["--to"]),
                             (["verify", self.out], ["--nvme"])):
            self.ended(USAGE, "store", *words, parts=parts)
        for action, run in (("verify", "absent-12345678"), ("remove", self.folder / "out")):
            self.ended(BAD_DATA, "store", action, run, "--nvme", self.drive,
                       parts=["no store", "store list"])
        told = self.ended(0, "store", "move", "--help").out
        for part in ("RUN", "--to", "--nvme"):
            self.assertIn(part, told)

    def test_verify_names_the_damaged_place(self):
        self.stopped()
        data, = self.drive.rglob("data")
        whole = data.read_bytes()
        with open(data, "r+b") as file:  # both copies of the first place
            for page in (0, 2):
                file.seek(4096 * page + 99)
                file.write(bytes([whole[4096 * page + 99] ^ 1]))
        verified = self.program.run("store", "verify", self.out)
        self.assertEqual(verified.code, BAD_DATA, verified)
        place = re.search(r"1 of \d+ places .*: ((?:hi|opt) [\w./]+)", verified.err)
        self.assertIsNotNone(place, verified)
        resumed = self.program.run(*self.job(RESUME))
        self.assertNotEqual(resumed.code, 0, resumed)
        self.assertIn(f"'{place[1]}'", resumed.err)
        data.write_bytes(whole)
        self.check_resumes()

    def test_a_store_in_use_is_left_alone(self):
        running = self.started(*self.job("lr_scheduler_type=constant", "max_steps=1000000"))
        tiny.wait_for_step(running, 2)
        for words in (("remove", self.out), ("move", self.out, "--to", self.drives[1])):
            self.ended(FAILED, "store", *words, parts=["in use", running.pid])
        self.assertIn(f"in use by process {running.pid}",
                      self.ended(0, "store", "list", self.drive).out)
        self.ended(FAILED, *self.job(RESUME, "lr_scheduler_type=constant", "max_steps=1000000"),
                   parts=["in use", running.pid])
        self.assertIsNone(running.poll())
        tiny.end(running)
        self.ended(0, "store", "remove", self.out)
        self.assertEqual(list(self.drive.iterdir()), [])

    def test_a_request_that_never_ends_ends_verify_and_move(self):
        self.stopped()
        for words in (("verify", self.out), ("move", self.out, "--to", self.drives[1])):
            self.ended(FAILED, "store", *words, "--lose-request", 60,
                       parts=["is stuck: ", " of the place '"])
        self.check_resumes()

    def test_a_store_moves_to_more_drives_and_to_fewer(self):
        done = self.stopped()
        self.ended(FAILED, "store", "move", self.out, "--to", self.folder / "absent",
                   parts=["absent"])
        moved = self.ended(0, "store", "move", self.out, "--to", self.drive, "--to",
                           self.drives[1])
        self.assertIn("resume with nvme_paths=", moved.out)
        self.assertGreaterEqual(self.committed(self.drives[:2]), done)
        nvme = ("--nvme", self.drives[1], "--nvme", self.drive)
        self.ended(0, "store", "move", self.out, *nvme, "--to", self.drives[2])
        for drive in self.drives[:2]:
            self.assertEqual(list(drive.iterdir()), [])
        self.check_resumes(drives=self.drives[2:])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
