"""Goal: what holds plans against runs takes the means of both probes, says how far it missed, and
drops no row. Method: machine files and rows made by hand.
"""
import importlib.util
import sys
import unittest
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "scripts" / "measure_forecast.py"
SPEC = importlib.util.spec_from_file_location("measure_forecast", PATH)
forecast = importlib.util.module_from_spec(SPEC)
sys.modules["measure_forecast"] = forecast
SPEC.loader.exec_module(forecast)

MACHINE = """# measured
name: measured
gpu:
  memory: 100                   # half of what was free
  tflops: {tflops}              # headrace bench gemm
drive:
  space: 5
  flush_ms: {flush}
"""


def row(planned_s, measured_s, peak_mb=1000, space_mb=2000):
    return {"configuration": "tiny: somewhere", "planned_s": planned_s, "measured_s": measured_s,
            "slots_and_program_bytes": 1000e6, "peak_rss_bytes": peak_mb * 1e6,
            "planned_space_bytes": 2000e6, "space_bytes": space_mb * 1e6}


class MeasureForecastTest(unittest.TestCase):
    def test_rates_are_the_means_of_all_probes_and_sizes_the_first_ones(self):
        mean = forecast.mean_of([
            MACHINE.format(tflops="0.1", flush="2e-1"),
            MACHINE.format(tflops="0.3", flush="4e-1").replace("100", "90")])
        self.assertIn("  tflops: 0.15\n", mean)  # 1 of work in 10 and in 3.3 s: 6.7 s
        self.assertIn("  flush_ms: 0.3\n", mean)
        self.assertIn("  memory: 100 ", mean)
        self.assertIn("  space: 5\n", mean)
        self.assertIn("name: measured\n", mean)

    def test_every_row_is_shown_and_counted(self):
        text = forecast.table([row(1.1, 1), row(0.5, 1), row(1, 1)])
        self.assertEqual(text.count("| tiny: somewhere |"), 3)
        self.assertIn("median error 10%, worst 50%, of 3 configurations", text)
        self.assertIn("beyond 3% + 50 MB: none", text)

    def test_bytes_beyond_the_tolerance_are_named(self):
        self.assertEqual(forecast.excess(row(1, 1, peak_mb=1079)), 0)
        self.assertAlmostEqual(forecast.excess(row(1, 1, peak_mb=1081)), 1e6)
        self.assertAlmostEqual(forecast.excess(row(1, 1, peak_mb=919)), 1e6)
        self.assertAlmostEqual(forecast.excess(row(1, 1, space_mb=2111)), 1e6)
        self.assertIn("beyond 3% + 50 MB: tiny: somewhere",
                      forecast.table([row(1, 1, space_mb=2200)]))

    def test_there_are_at_least_a_dozen_configurations_and_no_two_are_alike(self):
        self.assertGreaterEqual(len(forecast.CONFIGURATIONS), 12)
        words = [str(one[1:]) for one in forecast.CONFIGURATIONS]
        self.assertEqual(len(set(words)), len(words))


if __name__ == "__main__":
    unittest.main()
