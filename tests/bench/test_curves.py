#!/usr/bin/env python3
"""Tests the judgement of curves.py with hand-made curves, without peers and without waiting."""
import argparse
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from curves import ALONE, MODES, OUTER_MODES, summary, violations

SETTINGS = argparse.Namespace(max_gap=0.5, min_gain=0.05, min_spread=0.1, untrained=math.log(256))


def curve(samples, loss):
    """Straight lines down to `loss`. One process that steps after each pass is 0.4 higher after a quarter of its samples,
    as in tests/bench/RESULTS.md."""
    return [(samples / 8, loss + 1), (samples / 4, loss + 0.4), (samples, loss)]


def judged(**changed):
    """What is said if all is as in tests/bench/RESULTS.md, except for these losses at the end: names with _ for spaces."""
    ends = {"one process": (2.99, 3.03, 3.10), "collaborative": (3.03, 3.08, 3.14),
            "one process, steps after each pass": (2.35, 2.42, 2.43), "local-updates": (2.68, 2.67, 2.71),
            "decentralized-adam": (2.70, 2.68, 2.73)}
    for name, losses in changed.items():
        ends[name.replace("_", "-") if name != "one_process" else "one process"] = losses
    assert ends.keys() == MODES.keys()
    return violations(summary({mode: [curve(6400, loss) for loss in losses] for mode, losses in ends.items()}), SETTINGS)


class Violations(unittest.TestCase):
    def expect_one(self, found, *words):
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_the_curves_of_the_readme_are_as_they_should_be(self):
        self.assertEqual(judged(), [])

    def test_collaborative_is_within_the_range_of_the_seeds(self):
        self.assertEqual(judged(collaborative=(3.13, 3.15, 3.13)), [])
        self.expect_one(judged(collaborative=(3.16, 3.17, 3.16)), "collaborative", "+0.130", "one process", "0.110")
        self.expect_one(judged(collaborative=(2.90, 2.91, 2.92)), "collaborative", "-0.120")

    def test_one_run_on_a_plateau_does_not_decide(self):
        self.assertEqual(judged(collaborative=(3.02, 3.03, 3.25)), [])
        self.expect_one(judged(collaborative=(3.02, 3.20, 3.25)), "collaborative", "+0.170")

    def test_seeds_that_are_close_by_chance_are_no_narrower_bound(self):
        self.assertEqual(judged(one_process=(3.0, 3.0, 3.0), collaborative=(3.09, 3.09, 3.09)), [])
        self.expect_one(judged(one_process=(3.0, 3.0, 3.0), collaborative=(3.11, 3.11, 3.11)), "0.100")

    def test_an_update_may_have_more_samples_than_the_batch(self):
        rows = summary({"one process": [curve(6400, 3.0)], "collaborative": [curve(8000, 3.0)]})
        self.assertGreater(rows[1]["gap"], 0.1, "after equal samples it has made fewer updates")
        self.assertEqual(violations(rows, SETTINGS), [])

    def test_averaged_parameters_have_a_bound(self):
        self.assertEqual(judged(local_updates=(2.71, 2.71, 2.71)), [])
        self.expect_one(judged(local_updates=(3.0, 2.9, 2.95)), "local-updates", "--max-gap", "0.550")
        self.expect_one(judged(decentralized_adam=(3.0, 2.9, 2.95)), "decentralized-adam", "0.550")
        self.assertEqual(judged(local_updates=(2.0, 2.0, 2.0)), [], "a lower loss is welcome")

    def test_peers_that_never_average_are_found(self):
        """They are where one process is after a quarter of the samples: 2.80, although that is within --max-gap."""
        alone = (2.75, 2.82, 2.83)
        self.expect_one(judged(local_updates=alone), "local-updates", "+0.000", "--min-gain")
        self.expect_one(judged(decentralized_adam=alone), "decentralized-adam", "+0.000", "--min-gain")
        self.expect_one(judged(local_updates=(2.72, 2.79, 2.80)), "+0.030", "0.050")
        self.assertEqual(judged(local_updates=(2.65, 2.72, 2.73)), [])

    def test_what_one_peer_would_reach_follows_from_all_samples_of_its_run(self):
        name, other = "one process, steps after each pass", "local-updates"
        curves = {name: [curve(6400, 2.0), curve(6400, 3.0)], other: [curve(6400, 2.4), curve(6400, 3.4)]}
        self.assertAlmostEqual(summary(curves)[1]["gain"], 0)
        curves[other] = [curve(12800, 2.4), curve(12800, 3.4)]  # more samples than the baseline has
        self.assertAlmostEqual(summary(curves)[1]["gain"], -0.4 / 3, msg="one peer would have made more steps, too")

    def test_a_loss_that_does_not_fall_is_reported_whatever_the_baseline_is(self):
        found = judged(**{name: (5.6, 5.6, 5.6) for name in ("one_process", "collaborative")})
        self.assertEqual(len(found), 2, found)
        self.assertIn("learned nothing", found[0])
        self.expect_one(judged(decentralized_adam=(math.nan, 2.7, 2.7)), "decentralized-adam", "learned nothing")


def judged_outer(**changed):
    """The same of --outer: the names of its modes with _ for spaces and without commas."""
    ends = {"data-parallel": 1.70, ALONE: 2.0, f"{ALONE}, outer steps of 50": 2.0, "mean of the peers every 50": 1.77,
            "diloco, 25 steps": 1.71, "diloco, 50 steps": 1.73, "diloco, 100 steps": 1.75, "diloco, 50 steps, muon": 1.73,
            **{f"diloco, {codec}{optimizer}": 1.72 for codec in ("25 steps, float32", "25 steps, e3m0", "30 steps, sparse2", "100 steps, overlap", "100 steps, 4 fragments")
               for optimizer in ("", ", muon")}}
    for name, loss in changed.items():
        known = [mode for mode in ends if mode.replace(",", "").replace(" ", "_") == name]
        ends[known[0]] = loss
    assert ends.keys() == OUTER_MODES.keys()
    return violations(summary({mode: [curve(256000 * OUTER_MODES[mode].share, loss)] for mode, loss in ends.items()}), SETTINGS)


class OuterViolations(unittest.TestCase):
    expect_one = Violations.expect_one

    def test_outer_steps_are_as_they_should_be(self):
        self.assertEqual(judged_outer(), [])

    def test_the_bound_is_a_share_of_the_loss_of_data_parallel(self):
        self.assertEqual(judged_outer(diloco_25_steps=1.75), [])
        self.expect_one(judged_outer(diloco_25_steps=1.76), "diloco, 25 steps", "0.060", "0.051")
        self.expect_one(judged_outer(diloco_100_steps=1.83), "diloco, 100 steps", "0.130", "0.119")

    def test_outer_steps_that_are_no_gain_over_the_mean_are_found(self):
        self.expect_one(judged_outer(diloco_50_steps=1.78), "diloco, 50 steps", "0.010", "mean of the peers")

    def test_outer_steps_that_are_no_gain_over_one_peer_alone_are_found(self):
        self.expect_one(judged_outer(one_peer_alone=1.78), "diloco, 100 steps", "+0.030", "--min-gain")


if __name__ == "__main__":
    unittest.main()
