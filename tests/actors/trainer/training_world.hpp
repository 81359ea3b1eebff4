#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <spdlog/sinks/ostream_sink.h>

#include "actors/training/model_worker.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/learner_layer.hpp"
#include "runtime/training/training_state.hpp"
#include "tests/actors/trainer/slow_worker.hpp"
#include "tests/support/actor_test.hpp"
#include "tests/support/memory_disk.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle::testing {

/// What a test observes and controls of one learner.
struct learner_probe {
  std::vector<std::vector<float>> applied;
  std::vector<double> rates;
  float_vector stepped; // the first tensor, as the last local step left it
  std::uint64_t micro_steps = 0;
  std::uint64_t non_finite_steps = 0; // this many of the next micro-steps are not finite
  bool infinite_mean = false;
  std::deque<micro_step> fakes; // the next micro-steps return these and compute nothing
  bool adds_in_place = false;
  std::string own_state;                 // to be kept in checkpoints
  std::optional<std::string> own_loaded; // from one
  /// The place in the data that it was given, and the passes before.
  std::optional<std::pair<std::string, std::uint64_t>> resumed_at;
};

/// The toy learner with a probe.
class probed_learner final : public learner_layer {
public:
  /// `resumes`: it can resume an unfinished epoch.
  probed_learner(const toy_options& options, std::shared_ptr<learner_probe> probe, bool resumes)
    : learner_layer(make_toy_learner(options)), probe_(std::move(probe)), resumes_(resumes) {}

  [[nodiscard]] learner_abilities abilities() const override {
    auto can = below().abilities();
    can.resumes = resumes_;
    can.adds_in_place = probe_->adds_in_place;
    return can;
  }
  micro_step accumulate() override {
    ++probe_->micro_steps;
    if (!probe_->fakes.empty()) {
      auto step = probe_->fakes.front();
      probe_->fakes.pop_front();
      if (!step.finite && probe_->adds_in_place)
        step.lost = below().drop_gradient();
      return step;
    }
    if (probe_->non_finite_steps > 0) {
      --probe_->non_finite_steps;
      return {std::nan(""), 4, false};
    }
    return below().accumulate();
  }
  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    auto mean = below().take_mean_vector(vectors, room);
    if (probe_->infinite_mean)
      std::fill(mean.values->begin(), mean.values->end(), INFINITY);
    return mean;
  }
  [[nodiscard]] bool waits_for_pass() const override { return probe_->adds_in_place; }
  [[nodiscard]] std::string own_state() const override { return probe_->own_state; }
  status load_own_state(std::string_view own) override {
    probe_->own_loaded = own;
    return own == "spoilt" ? status{failure{ec::malformed, "spoilt"}} : status{done{}};
  }
  status load_position(std::string_view position) override {
    probe_->resumed_at.emplace(position, probe_->micro_steps);
    return below().load_position(position);
  }
  void apply(std::span<const float> gradient, double lr) override {
    probe_->applied.emplace_back(gradient.begin(), gradient.end());
    probe_->rates.push_back(lr);
    below().apply(gradient, lr);
  }
  void step_locally(double lr) override {
    probe_->rates.push_back(lr);
    below().step_locally(lr);
    probe_->stepped.resize(static_cast<std::size_t>(tensors()[0].elements()));
    read_tensor(0, probe_->stepped);
  }

private:
  const std::shared_ptr<learner_probe> probe_;
  const bool resumes_;
};

/// Trainers with fakes of the actors that they work with: reports are folded by real ledgers,
/// groups form as trainers request, a round includes all members of the group, and states come from
/// the other trainers. The test decides what fails.
class training_world : public actor_test {
protected:
  ~training_world() override { // actors end before the objects that they refer to
    for (const auto& m : members) {
      for (const auto& one :
           {caf::actor_cast<caf::actor>(m->actor), caf::actor_cast<caf::actor>(m->keeper),
            caf::actor_cast<caf::actor>(m->peers.averager),
            caf::actor_cast<caf::actor>(m->peers.tracker),
            caf::actor_cast<caf::actor>(m->peers.switchboard),
            caf::actor_cast<caf::actor>(m->peers.exporter)})
        caf::anon_send_exit(one, caf::exit_reason::kill);
    }
    settle();
  }

  struct member {
    node_context ctx;
    std::shared_ptr<learner_probe> probe = std::make_shared<learner_probe>();
    std::shared_ptr<worker_gate> gate = std::make_shared<worker_gate>();
    trainer_actor actor;
    state_keeper_actor keeper;
    trainer_peers peers;
    std::vector<report_progress> reports;
    std::optional<describe_vector> described;                      // received by the averager
    group_residual residual;                                       // what it keeps
    std::vector<average_in_group> questions;                       // received by the averager
    std::vector<std::uint64_t> steps_before;                       // micro-steps, for each question
    std::vector<caf::typed_response_promise<group_round>> answers; // still to be delivered
    std::vector<caf::typed_response_promise<members_found>> searches; // the same
    members_found found;                                              // to be delivered next
    std::size_t group = 0;                                            // number; 0: in none
    group_round answer;                                               // to be delivered next
    std::vector<training_status> statuses;
    std::vector<state_download_ended> downloads;
    std::size_t state_requests = 0; // received by this member's switchboard
    std::vector<peer_id> asked;     // the peers that these were for
    std::vector<pass_done> held;    // see hold_passes
    bool gone = false;
    std::uint64_t resumed = 0; // samples that the process before it had kept
    std::uint64_t micro_batch = 4;
    std::ostringstream said; // see keep_log
  };

  /// Adds a peer; omitted settings are the test's defaults.
  member& add(std::optional<training_config> config = {}, std::optional<toy_options> toy = {}) {
    auto i = members.size();
    members.push_back(std::make_unique<member>());
    auto& m = *members.back();
    m.ctx = test_context(i + 1, wall);
    m.ctx.record.client_mode = clients;
    m.ctx.make_store = [this]() -> result<std::shared_ptr<byte_store>> {
      if (store_fault)
        return *store_fault;
      return make_memory_store();
    };
    m.peers.averager = spawn_averager(i);
    m.peers.tracker = spawn_tracker(i);
    m.peers.switchboard = spawn_switchboard(i);
    m.peers.exporter = spawn_exporter(i);
    auto options = toy.value_or(toy_options{.data_seed = i + 1});
    m.micro_batch = options.micro_batch;
    learner_factory factory = [options, probe = m.probe,
                               resumes = learners_resume]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{std::make_unique<probed_learner>(options, probe, resumes)};
    };
    auto settings = config.value_or(defaults());
    factory = with_averaged_gradients(std::move(factory), settings.how.average_gradients);
    factory = settings.strategy.learners(std::move(factory));
    factory = with_plateau(std::move(factory), settings.schedule.plateau());
    if (!config && i > 0)
      settings.join_timeout = 5s; // the first one begins the run
    m.keeper = sys.spawn<state_keeper>(m.ctx, settings.checkpoints);
    keep(m.keeper);
    m.gate->in_turn = !settings.delay_optimizer_step;
    auto passes = settings.delay_optimizer_step ? pass_place::beside : pass_place::in_turn;
    auto worker = [this, i, ctx = m.ctx, factory, settings, passes, keeper = m.keeper,
                   gate = m.gate](auto owner) {
      auto made = sys.spawn<model_worker>(ctx, factory, settings.checkpoints, keeper,
                                          spawn_relay(i, owner), passes, evaluation);
      auto slow = sys.spawn<slow_worker>(made, gate);
      keep(made);
      keep(slow);
      return model_worker_actor{slow};
    };
    m.actor = sys.spawn<trainer>(m.ctx, settings, worker, m.peers);
    keep(m.actor);
    for (const auto& other : members)
      if (other.get() != &m && !other->gone) {
        caf::anon_send(other->actor, peer_connected{m.ctx.record});
        caf::anon_send(m.actor, peer_connected{other->ctx.record});
      }
    settle();
    return m;
  }
  member& add_started(std::optional<training_config> config = {},
                      std::optional<toy_options> toy = {}) {
    auto& m = add(std::move(config), toy);
    tell(m.actor, start_training{});
    return m;
  }

  /// A newcomer with parameters of its own, which sees the others at once.
  member& add_joiner() {
    auto& m = add_started(joining(), toy_options{.init_seed = 99, .data_seed = members.size() + 1});
    spread();
    return m;
  }

  /// From now on, `said` has what the member logs.
  static void keep_log(member& m) {
    m.ctx.log->sinks() = {std::make_shared<spdlog::sinks::ostream_sink_st>(m.said)};
    m.ctx.log->set_pattern("%v");
    m.ctx.log->set_level(spdlog::level::info);
  }

  static training_config defaults() {
    training_config config;
    config.target_batch_size = 32;
    config.schedule.peak = 0.1;
    config.step_interval = 10ms; // otherwise no virtual time would pass
    config.averaging_timeout = 5s;
    config.join_timeout = 0ms;
    config.may_start_alone = true;
    config.checkpoint_interval = 0ms;
    config.settle_time = 50ms;
    config.split_grace = 300ms;
    return config;
  }
  /// Of a peer that looks for the others first.
  static training_config joining(training_config config = defaults()) {
    config.join_timeout = 5s;
    return config;
  }

  training_status status_of(const member& m) {
    auto answer = ask<training_status>(m.actor, get_training_status{});
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? *answer : training_status{};
  }
  void pass_until(const std::function<bool()>& what, milliseconds limit = 30s) {
    for (milliseconds waited{0}; !what() && waited < limit; waited += 5ms)
      pass(5ms);
    EXPECT_TRUE(what());
  }
  bool all_at(std::uint64_t epoch) {
    for (const auto& m : members)
      if (!m->gone && status_of(*m).epoch < epoch_id{epoch})
        return false;
    return true;
  }
  /// Ends the member's process; all others are notified.
  void end(member& m) {
    m.gone = true;
    m.group = 0;
    caf::anon_send_exit(m.actor, caf::exit_reason::kill);
    for (const auto& other : members)
      if (!other->gone)
        caf::anon_send(other->actor, peer_disconnected{m.ctx.record.id, {ec::peer_lost, ""}});
    settle();
    spread();
  }

  /// After every test, the sample counts of every running trainer are checked.
  void TearDown() override {
    for (const auto& m : members) {
      expect_epochs_in_order(*m);
      if (!m->gone)
        expect_balance(*m);
    }
  }
  /// An epoch is followed by the next one, or by a later one with a state that was loaded (INV-1,
  /// INV-7).
  void expect_epochs_in_order(const member& m) const {
    auto loaded = std::count_if(m.downloads.begin(), m.downloads.end(),
                                [](const state_download_ended& d) { return d.ok; });
    std::vector<epoch_id> epochs; // its group's, while it is not in step
    for (const auto& report : m.reports)
      if (report.claim.ready || report.claim.group_size == 0)
        epochs.push_back(report.epoch);
    for (std::size_t i = 1; i < epochs.size(); ++i) {
      auto before = epochs[i - 1];
      auto after = epochs[i];
      EXPECT_GE(after, before);
      if (after.value() > before.value() + jump_max) {
        EXPECT_GE(--loaded, 0) << "from epoch " << before.value() << " to " << after.value();
      }
    }
  }
  /// Every micro-step's samples are pending, used or dropped, here and in the metrics (INV-2).
  void expect_balance(const member& m) {
    auto s = status_of(m);
    EXPECT_EQ(s.samples_used + s.samples_dropped + s.samples_toward_epoch,
              m.probe->micro_steps * m.micro_batch + m.resumed);
    EXPECT_EQ(s.samples_offered, m.probe->micro_steps * m.micro_batch + m.resumed);
    EXPECT_EQ(s.samples_pending(), s.samples_toward_epoch);
    EXPECT_EQ(exported(*m.ctx.metrics, R"(waggle_training_samples_total{outcome="used")"),
              static_cast<double>(s.samples_used));
    EXPECT_EQ(exported(*m.ctx.metrics, R"(waggle_training_samples_total{outcome="dropped")"),
              static_cast<double>(s.samples_dropped));
  }

  /// Sends every member the view of all last reports.
  void spread() {
    if (hold_views)
      return;
    for (const auto& m : members)
      if (!m->gone)
        caf::anon_send(m->actor, view_of(*m));
  }
  swarm_progress view_of(const member& viewer) const {
    ledger_options options{.target_batch_size = defaults().target_batch_size};
    progress_ledger ledger{viewer.ctx.record.id, options};
    std::optional<progress_report> own;
    for (const auto& m : members) {
      if (m->gone || m->reports.empty())
        continue;
      const auto& last = m->reports.back();
      auto rate = last.samples_per_second > 0 ? last.samples_per_second : 100;
      progress_report report{m->ctx.record, last.epoch,      last.samples, rate,
                             wall->now(),   last.parameters, last.claim};
      if (m.get() == &viewer)
        own = report;
      else
        ledger.record(report, wall->now() + 60s);
    }
    return ledger.view(own, wall->now());
  }

  /// Answers a member's open question.
  void answer_round(member& m, const round_report& report) {
    ASSERT_FALSE(m.answers.empty());
    deliver(m, {report, true, branches[m.group], view_of_group(m)});
    settle();
  }
  /// A promise can only be delivered by the actor that made it, while it runs.
  static void deliver(member& m, group_round round) {
    m.answer = std::move(round);
    caf::anon_send(m.peers.averager, inbound_event{});
  }

  /// Ends a member's search. `ended`: nobody was found, and so the round has ended.
  void end_search(member& m, std::optional<round_report> ended = {}) {
    ASSERT_FALSE(m.searches.empty());
    m.found = {};
    if (ended)
      m.found.ended = group_round{*ended, true, branches[m.group], view_of_group(m)};
    tell(m.peers.averager, peer_connected{});
  }

  /// Ends the rounds that were held, and holds no more.
  void release_rounds() {
    hold_rounds = false;
    for (const auto& [group, epoch] : std::map{groups})
      run_round(group, epoch);
    settle();
  }
  /// The epoch that the members of a group are at.
  [[nodiscard]] epoch_id epoch_of(std::size_t group) const { return groups.at(group); }

  std::map<std::size_t, epoch_id> groups; // by number
  std::map<std::size_t, digest> branches;
  std::vector<std::unique_ptr<member>> members;
  bool clients = false;        // nobody can dial the members that are added next
  bool hold_views = false;     // trainers only see what a test tells them
  bool hold_rounds = false;    // rounds are answered by the test
  bool learners_resume = true; // those of members that are added from now on
  bool hold_searches = false;  // the same for searches for their members
  bool hold_passes = false;    // trainers do not learn that a pass has ended: see member::held
  std::uint64_t jump_max = 1;  // epochs from one report to the next without a download
  /// The reason why this member's round at this epoch fails; none: it takes part.
  std::function<ec(const member&, epoch_id)> round_fault = [](const member&, epoch_id) {
    return ec::none;
  };
  std::function<void(std::size_t donor, std::string& image)> spoil_state;
  std::map<digest, std::string> left_images; // that the switchboards pass on (left_progress)
  /// What these members say that a peer has left with them; empty: they send none of
  /// it.
  std::map<peer_id, std::string> left_with;
  bool hold_left = false;    // what a peer leaves does not arrive
  std::vector<peer_id> told; // that a neighbour has what they have left
  std::vector<caf::typed_response_promise<peer_answer>> unanswered;
  std::optional<evaluation_plan> evaluation; // of the members that are added from now on
  /// The failure of storing a copy of a state; none: it succeeds.
  std::optional<failure> store_fault;

private:
  /// Forwards what a worker reports to its trainer.
  model_listener_actor spawn_relay(std::size_t i, const model_listener_actor& to) {
    auto handle = sys.spawn(
      [this, i, to](model_listener_actor::pointer self) -> model_listener_actor::behavior_type {
        return {
          [self, to](gradient_offered msg) { self->send(to, msg); },
          [this, i, self, to](const pass_done& msg) {
            if (hold_passes)
              members[i]->held.push_back(msg);
            else
              self->send(to, msg);
          },
          [self, to](const update_applied& msg) { self->send(to, msg); },
          [self, to](const image_loaded& msg) { self->send(to, msg); },
          [self, to](const model_evaluated& msg) { self->send(to, msg); },
        };
      });
    keep(handle);
    return handle;
  }

  group_averager_actor spawn_averager(std::size_t i) {
    auto handle = sys.spawn(
      [this, i](group_averager_actor::pointer self) -> group_averager_actor::behavior_type {
        return {
          [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
          [this, i](const inbound_event&) { // see deliver
            auto& m = *members[i];
            auto promise = m.answers.back();
            m.answers.pop_back();
            promise.deliver(m.answer);
          },
          [this, i](const peer_connected&) { // see end_search
            auto& m = *members[i];
            auto promise = m.searches.back();
            m.searches.pop_back();
            promise.deliver(m.found);
          },
          [](const peer_disconnected&) {},
          [this, i](const describe_vector& msg) { members[i]->described = msg; },
          [this, i](const found_group& msg) {
            auto& m = *members[i];
            m.group = ++last_group_;
            groups[m.group] = msg.epoch;
            branches[m.group] = msg.branch;
            return view_of_group(m);
          },
          [this, i](const enter_group& msg) -> caf::result<group_view> {
            auto& m = *members[i];
            for (const auto& other : members)
              if (other->group != 0 && !other->gone && !msg.through.empty()
                  && other->ctx.record.id == msg.through.front().id) {
                if (branches[other->group] != msg.branch)
                  return to_caf(ec::wrong_run);
                m.group = other->group;
                auto made = view_of_group(m);
                for (const auto& one : members)
                  if (one->group == m.group && one.get() != &m)
                    caf::anon_send(one->actor, view_of_group(*one));
                return made;
              }
            return to_caf(ec::unreachable);
          },
          [this, i](quit_group) { members[i]->group = 0; },
          [this, i](get_residual) { return members[i]->residual; },
          [this, i, self](const find_members& question) -> caf::result<members_found> {
            auto& m = *members[i];
            if (m.group == 0 || groups[m.group] != question.epoch)
              return to_caf(ec::not_ready);
            if (question.call && !hold_rounds && !hold_searches)
              call_others(m, question.epoch);
            if (!hold_searches)
              return members_found{};
            m.searches.push_back(self->make_response_promise<members_found>());
            return m.searches.back();
          },
          [this, i, self](const average_in_group& question) -> caf::result<group_round> {
            auto& m = *members[i];
            if (m.group == 0 || groups[m.group] != question.epoch)
              return to_caf(ec::not_ready);
            m.questions.push_back(question);
            m.steps_before.push_back(m.probe->micro_steps);
            auto promise = self->make_response_promise<group_round>();
            m.answers.push_back(promise);
            if (question.call && !hold_rounds)
              call_others(m, question.epoch);
            if (!hold_rounds)
              run_round(m.group, question.epoch);
            return promise;
          },
        };
      });
    keep(handle);
    return handle;
  }

  void call_others(const member& m, epoch_id epoch) {
    for (const auto& other : members)
      if (other->group == m.group && other.get() != &m)
        caf::anon_send(other->actor, round_called{epoch});
  }

  group_view view_of_group(const member& m) const {
    group_view out;
    if (m.group == 0)
      return out;
    out.member = true;
    out.epoch = groups.at(m.group);
    out.branch = branches.at(m.group);
    for (const auto& other : members)
      if (other->group == m.group)
        out.members.push_back(other->ctx.record.id);
    return out;
  }

  /// Once all members of the group have sent their vectors: the weighted mean, for all.
  void run_round(std::size_t group, epoch_id epoch) {
    std::vector<member*> parts;
    for (const auto& m : members) {
      if (m->gone || m->group != group)
        continue;
      if (m->answers.empty())
        return; // a member's vector is still missing
      parts.push_back(m.get());
    }
    if (parts.empty())
      return;
    round_report report{.group_size = static_cast<std::uint32_t>(parts.size())};
    std::vector<double> sums;
    for (auto* m : parts) {
      if (round_fault(*m, epoch) != ec::none)
        continue;
      const auto& q = m->questions.back();
      sums.resize(q.values->size());
      for (std::size_t k = 0; k < sums.size(); ++k)
        sums[k] += q.weight * static_cast<double>((*q.values)[k]);
      report.weight_sum += q.weight;
      report.contributors.push_back(m->ctx.record.id);
    }
    auto mean = std::make_shared<float_vector>();
    for (double s : sums)
      mean->push_back(static_cast<float>(s / report.weight_sum));
    report.values = mean;
    report.outcome =
      report.contributors.size() == parts.size() ? round_outcome::complete : round_outcome::shrunk;
    groups[group] = epoch.next();
    for (auto* m : parts)
      if (round_fault(*m, epoch) != ec::none)
        m->group = 0;
    for (auto* m : parts) {
      auto fault = round_fault(*m, epoch);
      if (fault == ec::none) {
        deliver(*m, {report, true, branches[group], view_of_group(*m)});
        continue;
      }
      round_report failed{.why = {fault, "as the test wants"}};
      deliver(*m, {failed, true, branches[group], {}});
    }
  }

  std::size_t last_group_ = 0;

  progress_tracker_actor spawn_tracker(std::size_t i) {
    auto handle = sys.spawn(
      [this, i](progress_tracker_actor::pointer) -> progress_tracker_actor::behavior_type {
        return {
          [](const inbound_call&) -> caf::result<outbound_answer> { return to_caf(ec::internal); },
          [](const inbound_event&) {},
          [this, i](const report_progress& report) {
            members[i]->reports.push_back(report);
            spread();
          },
          [](announce_departure) {},
          [](const peer_connected&) {},
          [](const peer_disconnected&) {},
        };
      });
    keep(handle);
    return handle;
  }

  switchboard_actor spawn_switchboard(std::size_t i) {
    auto handle =
      sys.spawn([this, i](switchboard_actor::pointer self) -> switchboard_actor::behavior_type {
        return {
          [this, i, self](const call_peer& call) -> caf::result<peer_answer> {
            const auto* wanted = std::get_if<wire::open_state>(&call.what);
            const auto* chunk = std::get_if<wire::get_state_chunk>(&call.what);
            if (auto left = chunk ? left_images.find(chunk->content) : left_images.end();
                left != left_images.end())
              return peer_answer{call.to.id, wire::state_chunk{chunk->index},
                                 copy_to_payload(as_byte_span(left->second))};
            bool of_state = !wanted || wanted->owner.is_zero();
            if (wanted && wanted->leaves && wanted->owner == call.to.id)
              told.push_back(call.to.id);
            bool never =
              (wanted && wanted->leaves && hold_left) || (chunk && chunk->content == sha256(""));
            if (never)
              return unanswered.emplace_back(self->make_response_promise<peer_answer>());
            auto said = of_state || wanted->leaves ? left_with.end() : left_with.find(call.to.id);
            if (said != left_with.end()) {
              const auto& bytes = said->second;
              auto content = sha256(bytes);
              if (!bytes.empty())
                left_images[content] = bytes;
              return peer_answer{
                call.to.id,
                wire::state_header{
                  {}, content, {}, std::max<std::size_t>(bytes.size(), 1), 1U << 20U},
                {}};
            }
            if (of_state) {
              ++members[i]->state_requests;
              members[i]->asked.push_back(call.to.id);
            }
            std::size_t donor = 0;
            while (donor < members.size() && members[donor]->ctx.record.id != call.to.id)
              ++donor;
            if (donor == members.size() || members[donor]->gone)
              return to_caf(ec::unreachable);
            auto promise = self->make_response_promise<peer_answer>();
            auto question = wanted
                              ? get_state_snapshot{wanted->branch, wanted->epoch_min, wanted->owner,
                                                   members[i]->ctx.record, wanted->leaves}
                              : get_state_snapshot{};
            self->request(members[donor]->actor, 10s, question)
              .then(
                [this, promise, call, donor, of_state](const state_snapshot& snapshot) mutable {
                  std::string image{as_string_view(read_all(*snapshot.state)->view())};
                  if (!of_state)
                    left_images[snapshot.content] = image;
                  else if (spoil_state)
                    spoil_state(donor, image);
                  peer_answer answer{call.to.id, {}, {}};
                  if (const auto* chunk = std::get_if<wire::get_state_chunk>(&call.what)) {
                    answer.what = wire::state_chunk{chunk->index};
                    answer.body = copy_to_payload(as_byte_span(image));
                  } else {
                    answer.what = wire::state_header{snapshot.epoch, sha256(image),
                                                     snapshot.parameters, image.size(), 1U << 20U};
                  }
                  promise.deliver(answer);
                },
                [promise](const caf::error& why) mutable { promise.deliver(why); });
            return promise;
          },
          [](const notify_peer&) {},
          [](const connect_address&) -> caf::result<peer_connected> {
            return to_caf(ec::unreachable);
          },
        };
      });
    keep(handle);
    return handle;
  }

  metrics_exporter_actor spawn_exporter(std::size_t i) {
    auto handle = sys.spawn(
      [this, i](metrics_exporter_actor::pointer) -> metrics_exporter_actor::behavior_type {
        return {
          [this, i](const training_status& status) { members[i]->statuses.push_back(status); },
          [](const helper_status&) {},
          [](const round_ended&) {},
          [this, i](const state_download_ended& ended) { members[i]->downloads.push_back(ended); },
          [](const swarm_progress&) {},
          [](const peer_connected&) {},
          [](const peer_disconnected&) {},
        };
      });
    keep(handle);
    return handle;
  }
};

} // namespace waggle::testing
