#!/usr/bin/env python3
"""Tests the judgement of watch.py with hand-made samples, without peers and without waiting."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from watch import History, Sample, one_history, share_in_step, spells_of, verdict

PERIOD = 0.05
HOLD = 4


def history(phases, epoch_seconds=0.1, first_epoch=0, rounds=True, name="a"):
    """`phases`: [(until, phase)], starting at 0 s. Epochs last `epoch_seconds`, and each ends with a round."""
    made, tick = History(), 0
    for until, phase in phases:
        while tick * PERIOD < until:
            at = tick * PERIOD
            epoch = first_epoch + int(at / epoch_seconds)
            if phase is not None:
                made.add(Sample(at, phase, epoch, epoch if rounds else 0, f"{name}{epoch}"))
            tick += 1
    return made


STEADY = history([(20, "training")])


class InStep(unittest.TestCase):
    def judge(self, mine, others=(STEADY,), since=0.0, now=20.0, hold=HOLD):
        return verdict(mine, list(others), since, now, hold)

    def test_a_peer_that_goes_with_the_others_is_in_step_from_its_first_round(self):
        found = self.judge(history([(3, "joining"), (20, "training")]))
        self.assertAlmostEqual(found.settled, 3, delta=0.2)
        self.assertTrue(found.stays)

    def test_nobody_is_in_step_alone(self):
        self.assertIsNone(self.judge(STEADY, others=()).settled)

    def test_others_that_do_not_answer_any_more_do_not_count(self):
        self.assertIsNone(self.judge(STEADY, [history([(2, "training")])], since=4).settled)

    def test_without_rounds_equal_epochs_are_not_enough(self):
        self.assertIsNone(self.judge(history([(20, "training")], rounds=False)).settled)

    def test_epochs_behind_or_ahead_are_not_in_step(self):
        self.assertIsNone(self.judge(history([(20, "training")], first_epoch=10)).settled)
        self.assertIsNone(self.judge(STEADY, [history([(20, "training")], first_epoch=10)]).settled)

    def test_the_furthest_of_the_others_counts_not_the_one_that_hangs(self):
        stuck = history([(20, "averaging")], epoch_seconds=1000)
        self.assertAlmostEqual(self.judge(STEADY, [STEADY, stuck]).settled, 0, delta=0.3)
        self.assertIsNone(self.judge(stuck, [STEADY, STEADY], since=2).settled)

    def test_a_hang_in_averaging_is_not_in_step_while_the_others_go_on(self):
        stuck = history([(20, "averaging")], epoch_seconds=1000, first_epoch=20)
        self.assertIsNone(self.judge(stuck, since=3).settled)

    def test_a_swarm_that_stands_still_is_not_in_step(self):
        halted = history([(20, "averaging")], epoch_seconds=1000, first_epoch=7)
        self.assertIsNone(self.judge(halted, [halted], since=3).settled)

    def test_whoever_falls_out_again_did_not_stay(self):
        found = self.judge(history([(2, "training"), (6, "syncing"), (20, "training")]))
        self.assertAlmostEqual(found.first, 0, delta=0.3)
        self.assertAlmostEqual(found.settled, 6, delta=0.2)
        self.assertFalse(found.stays)

    def test_a_moment_out_of_step_does_not_end_a_spell(self):
        found = self.judge(history([(2, "training"), (2.3, "syncing"), (20, "training")]))
        self.assertAlmostEqual(found.settled, 0, delta=0.3)
        self.assertTrue(found.stays)

    def test_a_peer_that_does_not_answer_is_not_in_step(self):
        found = self.judge(history([(2, "training"), (5, None), (20, "training")]))
        self.assertFalse(found.stays)
        self.assertAlmostEqual(found.settled, 5, delta=0.2)

    def test_rounds_before_the_return_prove_nothing(self):
        slow = history([(100, "training")], epoch_seconds=5)
        self.assertAlmostEqual(self.judge(slow, [slow], since=31, now=100).settled, 35, delta=0.2)

    def test_one_long_pause_does_not_make_epochs_long(self):
        stood = History()
        for tick in range(400):
            at = tick * PERIOD
            epoch = int((at if at < 9 else max(9, at - 4)) / 0.1)  # no progress from 9 to 13 s
            stood.add(Sample(at, "training", epoch, epoch))
        spells = spells_of(stood, [stood], 0, 20)
        self.assertEqual(len(spells), 2)
        self.assertAlmostEqual(spells[0][1], 9 + 1.5, delta=0.2)
        self.assertAlmostEqual(spells[1][0], 13, delta=0.3)

    def test_a_spell_under_way_is_pending(self):
        found = self.judge(history([(18, "joining"), (20, "training")]))
        self.assertIsNone(found.settled)
        self.assertTrue(found.pending)

    def test_long_epochs_allow_long_times_between_rounds(self):
        slow = history([(100, "training")], epoch_seconds=5)
        found = self.judge(slow, [slow], since=30, now=100)
        self.assertAlmostEqual(found.settled, 30, delta=0.2)
        self.assertTrue(found.stays)

    def test_the_share_counts_only_the_time_in_step(self):
        mine = history([(5, "training"), (10, "syncing"), (20, "training")])
        inside, whole = share_in_step(mine, [STEADY], 0, 20)
        self.assertEqual(whole, 20)
        self.assertAlmostEqual(inside, 15, delta=0.5)


class Histories(unittest.TestCase):
    def test_one_history_is_found_when_all_had_the_same_parameters(self):
        late = History()
        for sample in STEADY.samples:
            late.add(sample._replace(parameters="other" if sample.at < 7 else sample.parameters))
        self.assertAlmostEqual(one_history([STEADY, late], 1), 7, delta=0.2)

    def test_one_history_is_also_the_same_branch_where_no_epoch_shows_all(self):
        def branched(until, parity):
            made = History()
            for sample in STEADY.samples:
                seen = sample.parameters if sample.epoch % 2 == parity else ""
                made.add(sample._replace(parameters=seen, branch="run" if sample.at >= until else f"own{parity}"))
            return made
        self.assertAlmostEqual(one_history([branched(0, 0), branched(7, 1)], 1), 7, delta=0.2)
        self.assertIsNone(one_history([branched(30, 0), branched(30, 1)], 1))

    def test_a_state_that_is_not_trained_on_is_no_history(self):
        stale = History()
        for sample in STEADY.samples:
            old = sample.at < 3
            stale.add(sample._replace(phase="joining" if old else "training", epoch=100 if old else sample.epoch,
                                      parameters="old" if old else sample.parameters))
        self.assertAlmostEqual(one_history([STEADY, stale], 0), 3, delta=0.2)

    def test_an_agreement_before_a_split_is_none(self):
        split = History()
        for sample in STEADY.samples:
            split.add(sample._replace(parameters="other" if sample.at > 7 else sample.parameters))
        self.assertIsNone(one_history([STEADY, split], 1))
        self.assertAlmostEqual(one_history([STEADY, split], 1, until=6), 1, delta=0.2)

    def test_two_histories_are_never_one(self):
        self.assertIsNone(one_history([STEADY, history([(20, "training")], name="b")], 0))

    def test_the_longest_pause_begins_with_the_fault(self):
        broken = history([(5, "training"), (12, None), (20, "training")])
        self.assertAlmostEqual(broken.longest_pause(5, 20), 7, delta=0.2)
        self.assertAlmostEqual(broken.longest_pause(13, 20), 0.1, delta=0.1)


if __name__ == "__main__":
    unittest.main()
