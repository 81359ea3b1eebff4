
#include <gmock/gmock.h>

#include "actors/training/trainer.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/schedule_text.hpp"
#include "tests/actors/trainer/training_world.hpp"
#include "tests/support/states.hpp"

namespace waggle::testing {
namespace {

using Trainer = training_world;

/// The rate of each epoch is another one.
lr_schedule falling() {
  return *make_schedule(*parse_schedule("step:every=1,factor=0.8"), 0.1, 0, 0);
}

// -- joining -------------------------------------------------------------------------------------

TEST_F(Trainer, AJoinerIsTheDonorBitForBitAndStaysIt) { // INV-3
  auto config = defaults();
  config.schedule = falling();
  auto& donor = add_started(config);
  pass_until([&] { return all_at(3); });
  auto& joiner = add_started(joining(config), toy_options{.init_seed = 99, .data_seed = 2});
  spread();
  pass_until([&] {
    return status_of(joiner).state_downloads == 1
           && status_of(joiner).epoch == status_of(donor).epoch;
  });
  auto state = ask<state_snapshot>(donor.actor, get_state_snapshot{});
  auto its = ask<state_snapshot>(joiner.actor, get_state_snapshot{});
  ASSERT_TRUE(state.ok() && its.ok());
  EXPECT_EQ(its->epoch, state->epoch);
  EXPECT_EQ(as_string_view(read_all(*its->state)->view()),
            as_string_view(read_all(*state->state)->view()));
  auto joined = its->epoch;
  auto applied = joiner.probe->applied.size();
  auto later = joined.value() + 3;
  pass_until([&] { return all_at(later) && status_of(joiner).epoch == status_of(donor).epoch; });
  EXPECT_EQ(status_of(joiner).state_downloads, 1U);
  EXPECT_EQ(exported(*joiner.ctx.metrics, "waggle_state_downloads_total{outcome=\"complete\""), 1);
  EXPECT_EQ(status_of(joiner).parameters, status_of(donor).parameters);
  EXPECT_EQ(joiner.probe->applied.back(), donor.probe->applied.back());
  EXPECT_EQ(joiner.probe->rates.back(), donor.probe->rates.back());
  ASSERT_GT(joiner.probe->rates.size(), applied);
  EXPECT_EQ(joiner.probe->rates[applied], falling().at(joined)); // F11
  EXPECT_NE(falling().at(joined), falling().at(joined.next()));
}

TEST_F(Trainer, ADamagedStateChangesNothingAndAnotherDonorIsAsked) {
  auto& a = add_started();
  add_started();
  pass_until([&] { return all_at(2); });
  // The corrupt image has the hash that its donor announced, but its content is no state.
  auto first = members[0]->ctx.record.id < members[1]->ctx.record.id ? 0U : 1U;
  spoil_state = [first](std::size_t donor, std::string& image) {
    if (donor == first)
      image[60] = static_cast<char>(image[60] ^ 1);
  };
  auto& joiner = add_joiner();
  pass_until([&] { return !joiner.downloads.empty(); });
  ASSERT_FALSE(joiner.downloads[0].ok);
  EXPECT_EQ(joiner.downloads[0].why.code, ec::hash_mismatch);
  EXPECT_TRUE(joiner.probe->applied.empty());
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
  pass_until([&] { return status_of(joiner).parameters == status_of(a).parameters; });
}

TEST_F(Trainer, AStateThatIsLargerThanItsModelIsNotDownloaded) {
  add_started();
  pass_until([&] { return all_at(2); });
  spoil_state = [](std::size_t, std::string& image) { image += '\0'; };
  auto& joiner = add_joiner();
  pass_until([&] { return !joiner.downloads.empty(); });
  ASSERT_FALSE(joiner.downloads[0].ok);
  EXPECT_EQ(joiner.downloads[0].why.code, ec::oversize);
  EXPECT_EQ(joiner.state_requests, 1U) << "no chunk is asked for";
  spoil_state = nullptr; // as with another donor
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
}

TEST_F(Trainer, APeerThatLeavesItsGroupComputesNothingUntilItIsInOneAgain) {
  add_started();
  pass_until([&] { return all_at(2); });
  store_fault = failure{ec::io_error, "no space left"}; // no donor can give its state
  auto& joiner = add_joiner();
  keep_log(joiner);
  pass_until([&] { return joiner.group != 0; });
  hold_views = true;
  auto view = view_of(joiner);
  for (auto& peer : view.peers)
    peer.claim.ready = false;
  tell(joiner.actor, view);
  auto left = [&] {
    return joiner.said.str().find("no peer holds the state") != std::string::npos;
  };
  pass_until(left);
  EXPECT_EQ(joiner.probe->micro_steps, 0U) << "no pass begins outside of a group";
}

/// Does not answer whoever wants its state.
trainer_actor::behavior_type silent_donor(trainer_actor::pointer self) {
  return {
    [](start_training) {},
    [](pause_training) { return training_status{}; },
    [](resume_training) { return training_status{}; },
    [](stop_training) { return training_status{}; },
    [](get_training_status) { return training_status{}; },
    [self](const get_state_snapshot&) -> caf::result<state_snapshot> {
      return self->make_response_promise<state_snapshot>();
    },
    [](const swarm_progress&) {},
    [](const group_view&) {},
    [](const round_called&) {},
    [](const peer_connected&) {},
    [](const peer_disconnected&) {},
    [](const dht_status&) {},
  };
}

TEST_F(Trainer, ADownloadEndsByItsDeadline) { // --load-state-timeout
  auto& donor = add_started();
  pass_until([&] { return all_at(2); });
  auto answers = std::exchange(donor.actor, spawn(silent_donor));
  for (milliseconds limit : {1s, 4s}) {
    auto config = joining();
    config.sync_timeout = limit;
    auto& joiner = add_started(config, toy_options{.init_seed = 99, .data_seed = 2});
    spread();
    pass_until([&] { return joiner.state_requests > 0; });
    pass(limit - 20ms);
    EXPECT_TRUE(joiner.downloads.empty()) << limit.count() << " ms";
    pass(20ms);
    ASSERT_EQ(joiner.downloads.size(), 1U) << limit.count() << " ms";
    EXPECT_EQ(joiner.downloads[0].why.code, ec::timeout);
    EXPECT_EQ(joiner.downloads[0].why.detail, "the download did not end by its deadline");
    EXPECT_EQ(exported(*joiner.ctx.metrics, R"(waggle_state_downloads_total{outcome="failed")"), 1);
    end(joiner);
  }
  donor.actor = answers;
}

TEST_F(Trainer, WithoutRoomForACopyNobodyGetsTheStateAndTrainingGoesOn) {
  auto& donor = add_started();
  pass_until([&] { return all_at(3); });
  store_fault = failure{ec::io_error, "no space left"};
  EXPECT_EQ(ask<state_snapshot>(donor.actor, get_state_snapshot{}).error().code, ec::io_error);
  auto later = status_of(donor).epoch.value() + 2;
  pass_until([&] { return all_at(later); });
  store_fault.reset();
  EXPECT_TRUE(ask<state_snapshot>(donor.actor, get_state_snapshot{}).ok());
}

TEST_F(Trainer, APeerThatDownloadedNothingSeesThatEpochsAreShorterThanADownload) {
  auto& donor = add_started();
  pass_until([&] { return all_at(3); });
  store_fault = failure{ec::io_error, "no space left"};
  auto& joiner = add_joiner();
  pass(4s);
  EXPECT_EQ(status_of(joiner).state_downloads, 0U);
  store_fault.reset();
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
  auto later = status_of(donor).epoch.value() + run_health::window;
  pass_until([&] { return all_at(later); });
  EXPECT_EQ(status_of(donor).state_downloads, 0U);
  EXPECT_EQ(exported(*donor.ctx.metrics, R"(waggle_run_health{rule="short_epochs")"), 1);
  EXPECT_THAT(text_of(status_of(donor).notices),
              ::testing::HasSubstr("in which a peer that joins downloads the state"));
}

TEST_F(Trainer, AStateOfAnotherModelIsRefusedAndRetriedEverMoreSlowly) {
  auto& donor = add_started();
  pass_until([&] { return all_at(2); });
  auto& joiner = add_started(joining(), toy_options{.parameters = 11});
  spread();
  pass(10s);
  ASSERT_FALSE(joiner.downloads.empty());
  EXPECT_EQ(joiner.downloads[0].why.code, ec::schema_mismatch);
  EXPECT_EQ(status_of(joiner).epoch, epoch_id{0});
  EXPECT_TRUE(joiner.probe->applied.empty());
  EXPECT_LE(joiner.downloads.size(), 7U); // 0.5 + 1 + 2 + 4 + 8 s
  EXPECT_GT(status_of(donor).epoch, epoch_id{2});
}

TEST_F(Trainer, AStateIsGivenOnlyToReadersOfItsOwnHistory) {
  auto& donor = add_started();
  pass_until([&] { return all_at(2); });
  auto branch = status_of(donor).past.branch;
  EXPECT_TRUE(ask<state_snapshot>(donor.actor, get_state_snapshot{branch, {}}).ok());
  auto other = ask<state_snapshot>(donor.actor, get_state_snapshot{sha256("other"), {}});
  EXPECT_EQ(other.error().code, ec::wrong_run);
}

TEST_F(Trainer, AStateOfAnotherHistoryChangesNothingAndAnotherDonorIsAsked) {
  auto& a = add_started();
  add_started();
  pass_until([&] { return all_at(2); });
  auto first = members[0]->ctx.record.id < members[1]->ctx.record.id ? 0U : 1U;
  spoil_state = [first](std::size_t donor, std::string& image) {
    auto state = decode_state(as_byte_span(image));
    if (donor != first || !state.ok())
      return;
    state->past.branch = sha256("a fork");
    image = std::string{as_string_view(testing::encode_state(*state).view())};
  };
  auto& joiner = add_joiner();
  pass_until([&] { return !joiner.downloads.empty(); });
  ASSERT_FALSE(joiner.downloads[0].ok);
  EXPECT_EQ(joiner.downloads[0].why.code, ec::wrong_run);
  EXPECT_TRUE(joiner.probe->applied.empty());
  pass_until([&] { return status_of(joiner).state_downloads == 1; });
  pass_until([&] { return status_of(joiner).parameters == status_of(a).parameters; });
  EXPECT_EQ(joiner.downloads.size(), 2U) << "the first donor is not asked again";
}

TEST_F(Trainer, AHistoryWhoseStateNobodyHoldsAnyMoreIsLeft) {
  auto& donor = add_started();
  pass_until([&] { return all_at(2); });
  spoil_state = [](std::size_t, std::string& image) {
    image[60] = static_cast<char>(image[60] ^ 1);
  };
  auto& joiner = add_joiner();
  pass_until([&] { return !joiner.downloads.empty(); });
  EXPECT_EQ(status_of(joiner).phase, trainer_phase::syncing);
  end(donor);
  pass_until([&] { return status_of(joiner).epoch >= epoch_id{2}; }, 10s);
  EXPECT_EQ(status_of(joiner).state_downloads, 0U);
  auto ended = [&](const char* outcome) {
    return exported(*joiner.ctx.metrics,
                    std::string{"waggle_state_downloads_total{outcome=\""} + outcome + "\"");
  };
  EXPECT_EQ(ended("complete"), 0) << "it arrived, but was not the state of the run";
  EXPECT_GE(ended("refused"), 1);
}

/// The alert WaggleStateMismatch counts on it: the peer that differs may not say so itself.
TEST_F(Trainer, PeersThatSeeADifferenceCountItAlsoIfOthersWereEqualBefore) {
  for (int i = 0; i < 3; ++i)
    add_started();
  pass_until([&] { return all_at(3); });
  auto& one = *members[0];
  auto counted = [&](const char* outcome) {
    return exported(*one.ctx.metrics,
                    std::string{"waggle_state_hash_checks_total{outcome=\""} + outcome + "\"");
  };
  EXPECT_EQ(counted("differing"), 0);
  EXPECT_GT(counted("equal"), 0);
  hold_views = true;
  auto downloads = status_of(one).state_downloads;
  for (int tries = 0; tries < 200 && counted("differing") == 0; ++tries) {
    pass(5ms);
    auto view = view_of(one);
    caf::anon_send(one.actor, view); // in which all are equal
    settle();
    for (auto& peer : view.peers)
      if (peer.who.id == members[2]->ctx.record.id && !peer.parameters.is_zero())
        peer.parameters = sha256("what a broken peer holds");
    caf::anon_send(one.actor, view);
    settle();
  }
  EXPECT_EQ(counted("differing"), 1);
  EXPECT_EQ(counted("minority"), 0) << "it is one of two that are equal";
  EXPECT_EQ(status_of(one).state_downloads, downloads);
  hold_views = false;
}

TEST_F(Trainer, PeersThatHoldOtherParametersThanMostTakeTheStateOfTheOthers) {
  for (int i = 0; i < 3; ++i)
    add_started();
  pass_until([&] { return all_at(3); });
  auto& odd = *members[2];
  auto downloads = status_of(odd).state_downloads;
  hold_views = true;
  // The reports that the others would send if `odd` held the wrong parameters.
  for (int tries = 0; tries < 200 && status_of(odd).state_downloads == downloads; ++tries) {
    pass(5ms);
    auto view = view_of(odd);
    for (auto& peer : view.peers)
      if (peer.who.id != odd.ctx.record.id && !peer.parameters.is_zero())
        peer.parameters = sha256("what most hold");
    caf::anon_send(odd.actor, view);
    settle();
  }
  EXPECT_EQ(status_of(odd).state_downloads, downloads + 1);
  hold_views = false;
  spread();
  auto later = status_of(odd).epoch.value() + 3;
  pass_until([&] { return all_at(later); });
  EXPECT_EQ(status_of(odd).parameters, status_of(*members[0]).parameters);
}

// -- checkpoints ---------------------------------------------------------------------------------

struct TrainerCheckpoints : Trainer {
  training_config with_checkpoints() {
    auto config = defaults();
    config.checkpoints.emplace(files, "/data");
    return config;
  }
  training_status stop(const member& m) {
    auto answer = ask<training_status>(m.actor, stop_training{});
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? *answer : training_status{};
  }

  std::shared_ptr<memory_disk> files = std::make_shared<memory_disk>();
};

TEST_F(TrainerCheckpoints, StoppingWritesOneAndTheNextStartGoesOnFromIt) {
  auto config = with_checkpoints();
  config.schedule = falling();
  auto& m = add_started(config);
  pass_until([&] { return all_at(4); });
  pass(15ms);
  auto before = stop(m);
  EXPECT_EQ(before.phase, trainer_phase::stopped);
  EXPECT_EQ(before.samples_used + before.samples_toward_epoch, m.probe->micro_steps * 4);
  auto steps = m.probe->micro_steps;
  pass(1s);
  EXPECT_EQ(m.probe->micro_steps, steps); // it stays stopped
  end(m);

  auto& again = add_started(config, toy_options{.init_seed = 99});
  again.resumed = before.samples_toward_epoch;
  settle();
  EXPECT_EQ(again.reports.front().epoch, before.epoch); // INV-1
  EXPECT_EQ(again.reports.front().parameters, before.parameters);
  pass_until([&] { return all_at(before.epoch.value() + 1); });
  EXPECT_EQ(again.probe->rates[0], falling().at(before.epoch)); // F11
  EXPECT_LT(again.probe->rates[0], m.probe->rates.back());
}

TEST_F(TrainerCheckpoints, HoldWhatBelongsToThisPeerOnly) {
  auto& m = add_started(with_checkpoints());
  m.probe->own_state = "scale 8";
  pass_until([&] { return all_at(2); });
  m.probe->own_state = "scale 16";
  auto snapshot = ask<state_snapshot>(m.actor, get_state_snapshot{});
  auto image = std::string{as_string_view(read_all(*snapshot->state)->view())};
  EXPECT_EQ(image.find("scale"), std::string::npos) << "another peer would receive it";
  auto kept = stop(m).samples_toward_epoch;
  end(m);
  auto& again = add_started(with_checkpoints());
  again.resumed = kept;
  EXPECT_EQ(again.probe->own_loaded, "scale 16");
}

TEST_F(TrainerCheckpoints, APassUnderWayWhenItStopsIsCounted) { // INV-2
  auto& m = add_started(with_checkpoints());
  pass_until([&] { return all_at(4); });
  auto steps = m.probe->micro_steps;
  sched.advance_time(
    defaults().step_interval); // the next pass is due, and stop_training follows at once
  tell(m.actor, stop_training{});
  auto after = status_of(m);
  ASSERT_GT(m.probe->micro_steps, steps);
  EXPECT_EQ(after.samples_used + after.samples_toward_epoch, m.probe->micro_steps * 4);
}

TEST_F(TrainerCheckpoints, AFullDiskIsCountedAndTrainingGoesOn) {
  auto& m = add_started(with_checkpoints());
  pass_until([&] { return all_at(2); });
  auto names = *files->list("/data");
  files->fail_writes(failure{ec::io_error, "no space left"});
  pass_until([&] { return all_at(5); });
  EXPECT_EQ(*files->list("/data"), names);
  EXPECT_GE(exported(*m.ctx.metrics, R"(waggle_checkpoint_saves_total{outcome="failed")"), 3);
  EXPECT_EQ(status_of(m).phase, trainer_phase::training);
}

TEST_F(TrainerCheckpoints, EveryZeroEpochsMeansOnlyAtTheEnd) {
  auto config = with_checkpoints();
  config.checkpoint_every = 0;
  auto& m = add_started(config);
  pass_until([&] { return all_at(3); });
  EXPECT_TRUE(files->list("/data")->empty());
  stop(m);
  EXPECT_EQ(files->list("/data")->size(), 2U) << "one, and what only this peer has";
}

TEST_F(TrainerCheckpoints, StoppingInTheMiddleOfARoundKeepsItsSamples) {
  hold_rounds = true;
  auto& m = add_started(with_checkpoints());
  add_started();
  pass_until([&] { return !m.questions.empty(); });
  auto s = stop(m);
  EXPECT_EQ(s.samples_used, 0U);
  EXPECT_EQ(s.samples_toward_epoch, m.probe->micro_steps * 4);
  round_report late{.outcome = round_outcome::complete,
                    .values = std::make_shared<float_vector>(8, 1.0F)};
  answer_round(m, late);
  EXPECT_TRUE(m.probe->applied.empty());
}

} // namespace
} // namespace waggle::testing
