// average_in_group ─► first vector ─► round ─► committed ─► second vector ─► round ─► decode ─► report
// (the compute_worker computes between the rounds; an auxiliary without a vector computes nothing)

#include <algorithm>

#include <spdlog/logger.h>

#include "actors/averaging/group_averager.hpp"
#include "actors/caf_error.hpp"
#include "runtime/allreduce/round_report.hpp"

namespace waggle {

namespace {

/// Both rounds may be committed already: there is no reason to give up within the time in which the
/// asker waits beyond the deadline of the rounds.
constexpr milliseconds compute_timeout_min = 4s;
constexpr milliseconds remember_timeout = 10min; // behind a vector that is still being computed

} // namespace

/// Lets the compute_worker write a vector. Nothing follows if the epoch's rounds are given up
/// meanwhile.
void group_averager::compute(std::uint64_t elements, std::function<void(float_vector&)> write,
                             std::function<void(std::shared_ptr<const float_vector>)> then) {
  auto job = [vectors = ctx_.vectors, elements,
              write = std::move(write)]() -> std::shared_ptr<const float_vector> {
    auto out = vectors->take(static_cast<std::size_t>(elements));
    write(*out);
    return out;
  };
  auto timeout = std::max(current_->step.time_left(now()), compute_timeout_min);
  request(coder_, timeout, run_job{std::move(job)})
    .then(
      [this, run = current_, then = std::move(then)](const job_done& done) {
        if (current_ == run)
          then(done.values);
      },
      [this, run = current_](const caf::error& why) {
        if (current_ != run)
          return;
        round_report failed{.why = from_caf(why),
                            .round = current_->step.plan ? current_->step.plan->id : round_id{}};
        group_.leave();
        deliver(std::move(failed));
      });
}

/// Before all later vectors: its mailbox is a queue.
void group_averager::tell_coding(void (two_round_coding::*what)()) {
  if (!coding_)
    return;
  auto job = [coding = coding_, what]() -> std::shared_ptr<const float_vector> {
    (coding.get()->*what)();
    return nullptr;
  };
  request(coder_, remember_timeout, run_job{std::move(job)})
    .then([](const job_done&) {},
          [this](const caf::error& why) {
            ctx_.log->error("the coding of gradients failed: {}", to_string(from_caf(why)));
          });
}

void group_averager::begin_coded(bool call) {
  auto values = current_->values;
  if (group_.next().members.size() > 1) {
    if (call) // at once, so that all members compute at the same time
      tell_others(group_.next(), wire::call_round{group_.next().id});
    return compute(
      elements_of(coding_->first_tensors()),
      [coding = coding_, values](float_vector& out) { coding->write_first(*values, out); },
      [this](std::shared_ptr<const float_vector> first) {
        current_->step.what.values = std::move(first);
        start_round(current_->replaced);
      });
  }
  // Alone: both rounds end at once, with our own vector.
  auto end = [this](std::shared_ptr<const float_vector> mean) {
    auto& run = *current_;
    run.step.plan = group_.next();
    auto report = report_of_one(*run.step.plan, run.step.what.weight, std::move(mean));
    settle_group(report);
    report.round = group_.next().id;
    settle_group(report);
    deliver(std::move(report));
  };
  if (current_->step.what.weight == 0)
    return end(std::move(values));
  compute(
    elements_,
    [coding = coding_, values](float_vector& out) { coding->finish_alone(*values, out); },
    [this, end = std::move(end)](std::shared_ptr<const float_vector> sum) {
      tell_coding(&two_round_coding::commit);
      end(std::move(sum));
    });
}

void group_averager::begin_second_round(round_report first) {
  auto& run = *current_;
  if (!group_.is_member()) {
    const auto& plan = *run.step.plan;
    bool stayed = stayed_of(plan, first).contains(position_of(ctx_.record.id, plan));
    first.outcome = round_outcome::failed;
    first.why = stayed ? failure{ec::lost_quorum, "no member is left that may reduce"}
                       : failure{ec::excluded, "the epoch's second round began without this peer"};
    first.values = nullptr;
    return deliver(std::move(first));
  }
  run.first = std::move(first);
  run.step = {
    .what = std::move(run.step.what), .sent = {}, .began = run.step.began, .plan = {}, .held = {}};
  run.step.what.values = nullptr;
  if (!coding_)
    return start_round(false);
  compute(
    elements_of(coding_->second_tensors()),
    [coding = coding_, values = run.values, mean = run.first->values](float_vector& out) {
      coding->write_second(*values, *mean, out);
    },
    [this](std::shared_ptr<const float_vector> values) {
      current_->step.what.values = std::move(values);
      start_round(false);
    });
}

void group_averager::decode(round_report second) {
  auto& run = *current_;
  second = report_of_two(*run.first, std::move(second));
  auto mean = std::exchange(second.values, nullptr);
  if (!coding_ || second.weight_sum <= 0) {
    second.values = run.values;
    return deliver(std::move(second));
  }
  const auto& in = second.contributors;
  bool counted =
    run.step.what.weight > 0 && std::find(in.begin(), in.end(), ctx_.record.id) != in.end();
  auto given = counted ? run.step.what.values : nullptr;
  bool encoded = run.step.sent != nullptr; // not if the other members were lost
  auto parts = counted && encoded && config_.error_feedback > 0 ? coded_parts_of(*run.step.plan)
                                                                : std::vector<coded_part>{};
  compute(
    elements_,
    [coding = coding_, values = run.values, mean, given, parts](float_vector& out) {
      std::vector<float> decoded;
      if (is_lossy(parts)) {
        decoded.resize(given->size());
        write_carried(*given, parts, decoded);
      }
      auto carried = given ? std::span<const float>{*given} : std::span<const float>{};
      coding->finish(*values, *mean, decoded.empty() ? carried : decoded, out);
    },
    [this, second](std::shared_ptr<const float_vector> result) {
      tell_coding(&two_round_coding::commit);
      auto report = second;
      report.values = std::move(result);
      deliver(std::move(report));
    });
}

} // namespace waggle
