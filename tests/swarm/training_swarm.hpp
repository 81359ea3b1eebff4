#pragma once

// Shared by the tests of whole swarms that train.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "tests/support/simulation.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {

using namespace std::chrono_literals;
using index = simulation::index;

constexpr std::uint64_t last_epoch = 40;

/// For node_config::training_parts::make_learner.
inline auto toys(const toy_options& toy) {
  return [toy]() -> result<std::unique_ptr<learner>> {
    return std::unique_ptr<learner>{make_toy_learner(toy)};
  };
}

inline node_config training_node(std::uint64_t data_seed) {
  node_config config{.run_id = "sim"};
  config.progress.ledger.target_batch_size = 256;
  config.averaging.emplace();
  config.averaging->matchmaking.prefix = "gradients";
  config.averaging->matchmaking.parts.largest = 16;
  config.averaging->matchmaking.min_matchmaking_time = 1500ms;
  config.averaging->averaging.kind = "gradients";
  config.averaging->averaging.round.stall_timeout = 2s;
  auto& parts = config.training.emplace();
  parts.training.target_batch_size = 256;
  parts.training.max_epochs = last_epoch;
  parts.training.schedule.peak = 0.05;
  parts.training.step_interval = 100ms;
  parts.training.join_timeout = 5s;
  parts.training.may_start_alone = true;
  parts.training.checkpoint_interval = 0ms;
  parts.training.averaging_timeout = 20s;
  parts.training.sync_timeout = 30s;
  parts.make_learner = toys({.parameters = 64, .micro_batch = 4, .data_seed = data_seed});
  return config;
}

/// Every round that several members report ended equally on all members that finished it.
/// `auxiliaries`: some members contribute to no round, so a complete one has fewer contributors
/// than members.
inline void expect_rounds_kept_the_contract(simulation& sim, bool auxiliaries = false) {
  struct outcome {
    std::vector<peer_id> contributors;
    double weight_sum;
    digest values;
  };
  std::map<round_id, outcome> rounds;
  for (index i = 0; i < sim.size(); ++i)
    for (const auto& report : sim[i].rounds) {
      if (report.outcome == round_outcome::failed) {
        EXPECT_NE(report.why.code, ec::none) << "a round failed without a reason";
        EXPECT_EQ(report.values, nullptr);
        continue;
      }
      ASSERT_NE(report.values, nullptr);
      outcome mine{report.contributors, report.weight_sum,
                   sha256(as_string_view(std::as_bytes(std::span{*report.values})))};
      auto [known, first] = rounds.emplace(report.round, mine);
      if (first || report.weight_sum == 0)
        continue;
      EXPECT_EQ(known->second.contributors, mine.contributors)
        << "round " << to_string(report.round);
      EXPECT_EQ(known->second.weight_sum, mine.weight_sum) << "round " << to_string(report.round);
      EXPECT_EQ(known->second.values, mine.values) << "round " << to_string(report.round);
      bool complete = report.outcome == round_outcome::complete;
      bool all = report.contributors.size() == report.group_size;
      if (auxiliaries) {
        EXPECT_TRUE(complete || !all) << "a round with all contributions is complete";
      } else {
        EXPECT_EQ(complete, all);
      }
    }
}

/// Every sample that a peer computed entered an update, was dropped and counted, or is pending.
inline void expect_samples_accounted(const training_status& s) {
  EXPECT_EQ(s.samples_pending(), s.samples_toward_epoch);
  EXPECT_EQ(s.steps * 4, s.samples_used + s.samples_dropped + s.samples_toward_epoch);
}

inline bool all_finished_equal(simulation& sim) {
  std::optional<digest> parameters;
  for (auto i : sim.living()) {
    auto status = sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{});
    if (!status || status->phase != trainer_phase::finished || status->epoch.value() != last_epoch)
      return false;
    if (parameters && *parameters != status->parameters)
      return false;
    parameters = status->parameters;
  }
  return true;
}

inline std::string picture(simulation& sim) {
  std::string text;
  for (auto i : sim.living()) {
    auto s = sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{});
    text += "\n  " + std::to_string(i) + " " + short_name(sim[i].self->id());
    if (s)
      text += " " + std::string{to_string(s->phase)} + " epoch " + to_string(s->epoch) + " of "
              + to_string(s->global_epoch) + " parameters " + short_name(s->parameters)
              + " history " + short_name(s->past.branch) + " group of "
              + std::to_string(s->group_size) + " last " + s->last_outcome;
  }
  return text;
}

/// A swarm whose peers train without end. With four peers an epoch takes a fifth of a second.
struct trainers {
  explicit trainers(std::uint64_t seed, net::sim_network::options weather = {})
    : sim(seed, weather) {}

  static node_config endless(std::uint64_t data_seed) {
    auto config = training_node(data_seed);
    config.training->training.max_epochs = 0;
    // A fifth of a second for four peers.
    config.training->training.target_batch_size = 32;
    config.progress.ledger.target_batch_size = 32;
    return config;
  }
  static node_config with_checkpoints(std::uint64_t data_seed, std::shared_ptr<memory_disk> files) {
    auto config = endless(data_seed);
    config.training->training.checkpoints.emplace(std::move(files), "/data");
    return config;
  }
  index add(node_config config, const std::vector<index>& through) {
    if (through.empty())
      config.training->training.join_timeout = 0ms;
    return sim.start(std::move(config), through);
  }
  /// Joins through the first peer, or is it.
  index join(node_config config) {
    return add(std::move(config), sim.size() == 0 ? std::vector<index>{} : std::vector<index>{0});
  }
  bool all_finished() {
    auto all = sim.living();
    return std::all_of(all.begin(), all.end(),
                       [this](index i) { return status_of(i).phase == trainer_phase::finished; });
  }
  /// How many lines with these words `who` has logged. REQUIRES: sim.keep_log_lines() before.
  std::size_t lines_with(index who, const std::string& words) {
    const auto& all = *sim[who].lines;
    return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const std::string& line) {
        return line.find(words) != std::string::npos;
      }));
  }
  training_status status_of(index i) {
    auto status = sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{});
    return status.value_or(training_status{});
  }
  /// All living peers are in one group, at the same epoch or one apart, of one history.
  bool together() { return together(sim.living()); }
  bool together(const std::vector<index>& peers) { return together(peers, peers.size()); }
  /// `members`: the size of the group, including members that do not train.
  bool together(const std::vector<index>& peers, std::size_t members) {
    std::optional<training_status> first;
    for (auto i : peers) {
      auto s = status_of(i);
      bool works = s.phase == trainer_phase::training || s.phase == trainer_phase::averaging;
      if (!works || s.group_size != members)
        return false;
      if (first
          && (s.past.branch != first->past.branch || s.epoch.value() > first->epoch.value() + 1
              || first->epoch.value() > s.epoch.value() + 1))
        return false;
      if (!first)
        first = s;
    }
    return true;
  }
  /// Makes a Byzantine peer send an arbitrary claim about itself, with a valid signature, to all
  /// peers.
  void lie(index teller, const digest& branch, epoch_id epoch) {
    const auto& ctx = sim[teller].node.ctx;
    progress_report report{.who = ctx.record, .epoch = epoch, .time = ctx.wall->now()};
    report.claim.past = {branch, {}, {}, ~std::uint64_t{0}};
    report.claim.group_size = 64;
    report.claim.ready = true;
    record entry{.kind = record_kind::progress,
                 .name = "progress",
                 .value = encode_progress(report),
                 .expiration = ctx.wall->now() + 50s,
                 .sequence = static_cast<std::uint64_t>(to_nanoseconds(ctx.wall->now()))};
    sign_record(ctx.run_id, *ctx.self, entry);
    for (auto i : sim.living())
      if (i != teller) {
        caf::anon_send(sim[teller].node.parts.switchboard,
                       notify_peer{sim[i].node.ctx.record, wire::progress_push{entry}, {}});
        sim.later<peer_answer>(sim[teller].node.parts.switchboard,
                               call_peer{sim[i].node.ctx.record, wire::dht_store{{entry}}, 1s},
                               [](const peer_answer&) {});
      }
  }

  simulation sim;
};

} // namespace waggle::testing
