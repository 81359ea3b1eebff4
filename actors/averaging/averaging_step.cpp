#include "actors/averaging/averaging_step.hpp"

#include <algorithm>
#include <utility>

#include <spdlog/logger.h>

#include "runtime/averaging/part_table.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

namespace {

/// Whether another attempt with another group may help.
bool may_retry(ec why) {
  switch (why) {
    case ec::excluded: // the others have finished, or are about to
    case ec::shutting_down:
    case ec::internal:
      return false;
    default:
      return true;
  }
}

milliseconds until(steady_time end, steady_time now) {
  return std::max(std::chrono::duration_cast<milliseconds>(end - now), milliseconds{0});
}

} // namespace

std::vector<coded_part> coded_parts_of(const round_plan& plan) {
  std::vector<coded_part> parts;
  part_table table{plan};
  for (std::size_t i = 0; i < table.size(); ++i)
    parts.push_back({table[i].offset, table[i].count, table[i].codec});
  return parts;
}

milliseconds averaging_step::time_left(steady_time now) const {
  return until(began + what.deadline, now);
}

void averaging_step::begin_sending(error_feedback* feedback, residual_range where,
                                   vector_pool& vectors) {
  if (sent)
    return;
  bool exact = std::all_of(plan->codecs.begin(), plan->codecs.end(),
                           [](const codec_run& run) { return run.codec == codec_id::none; });
  if (feedback == nullptr || exact || !what.values) {
    sent = what.values;
    return;
  }
  auto with_residual = vectors.take(plan->elements);
  feedback->begin(*what.values, *with_residual, where);
  sent = std::move(with_residual);
}

void averaging_step::settle(error_feedback& feedback, const round_report& report,
                            const peer_id& self) const {
  if (!feedback.in_round())
    return;
  const auto& counted = report.contributors;
  if (report.values && what.weight > 0
      && std::find(counted.begin(), counted.end(), self) != counted.end())
    feedback.commit(*sent, coded_parts_of(*plan));
  else if (held && what.weight > 0) // otherwise the next round would send the old residual again
    feedback.commit(*sent, coded_parts_of(*held));
  else
    feedback.roll_back();
}

std::shared_ptr<const float_vector> averaging_step::result(std::shared_ptr<const float_vector> mean,
                                                           double weight_sum,
                                                           vector_pool& vectors) const {
  if (!mean || !what.values || weight_sum <= 0 || !what.deltas || !sent)
    return mean;
  const auto& own = *what.values;
  auto out = vectors.take(own.size());
  write_carried(*sent, coded_parts_of(*plan), *out);
  for (std::size_t i = 0; i < own.size(); ++i) {
    double delta = static_cast<double>((*mean)[i]) - (*out)[i];
    (*out)[i] = static_cast<float>(own[i] + delta);
  }
  return out;
}

milliseconds group_attempts::time_left(steady_time now) const {
  return until(began + deadline, now);
}

bool group_attempts::again(const round_report& report, std::uint32_t retries_max,
                           const node_context& ctx, steady_time now) const {
  if (report.outcome != round_outcome::failed || !may_retry(report.why.code)
      || failures > retries_max || time_left(now) == 0ms)
    return false;
  log_about about{{.epoch = report.epoch, .round = report.round, .reason = report.why.code}};
  ctx.log->info("round {} failed, trying again: {}", short_name(report.round),
                to_string(report.why));
  return true;
}

} // namespace waggle
