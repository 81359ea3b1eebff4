#include "actors/averaging/averaging_step.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/averaging/part_table.hpp"

namespace waggle {

std::vector<coded_part> coded_parts_of(const round_plan& plan) {
  std::vector<coded_part> parts;
  part_table table{plan};
  for (std::size_t i = 0; i < table.size(); ++i)
    parts.push_back({table[i].offset, table[i].count, table[i].codec});
  return parts;
}

failure check_request(const average_vector& what, bool auxiliary) {
  auto elements = what.values ? what.values->size() : what.elements;
  if (elements == 0)
    return {ec::wrong_shape, "there is nothing to average"};
  if (what.values && what.elements != 0 && what.elements != elements)
    return {ec::wrong_shape, "the vector does not have `elements` values"};
  if (!what.values && !what.require_trigger && !auxiliary)
    return {ec::wrong_shape, "values are missing, and no trigger will supply them"};
  if (elements > plan_elements_max)
    return {ec::oversize, "the vector has more values than a round may have"};
  if (!is_weight(what.weight))
    return {ec::bad_weight, "a weight must be 0, or finite and positive"};
  if (!std::isfinite(what.alpha))
    return {ec::bad_config, "alpha must be finite"};
  if (what.gather.size() > gather_bytes_max)
    return {ec::oversize, "gather may have at most " + std::to_string(gather_bytes_max) + " bytes"};
  return {};
}

void averaging_step::begin_attempt(steady_time now) {
  stage = step_stage::looking_for_group;
  attempt_began = now;
  plan.reset();
  others_left = false;
  kept_group = false;
  lost.clear();
}

void averaging_step::tell_stage() {
  if (auto asked = std::exchange(await_group, std::nullopt))
    asked->deliver(stage);
}

milliseconds averaging_step::time_left(steady_time now) const {
  auto left = std::chrono::duration_cast<milliseconds>(began + what.deadline - now);
  return std::max(left, milliseconds{0});
}

bool averaging_step::is_finite() {
  known_finite = known_finite || !what.values || all_finite(*what.values);
  return known_finite;
}

void averaging_step::begin_sending(error_feedback* feedback, vector_pool& vectors) {
  if (sent)
    return;
  bool exact = std::all_of(codecs.begin(), codecs.end(),
                           [](const codec_run& run) { return run.codec == codec_id::none; });
  if (feedback == nullptr || exact || !what.values) {
    sent = what.values;
    return;
  }
  auto with_residual = vectors.take(elements);
  feedback->begin(*what.values, *with_residual);
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
  bool deltas = what.deltas && sent; // else the group_averager has added them
  if (!mean || !what.values || weight_sum <= 0 || (what.alpha == 1 && !deltas))
    return mean;
  const auto& own = *what.values;
  auto out = vectors.take(own.size());
  if (deltas && plan)
    write_carried(*sent, coded_parts_of(*plan), *out);
  else
    std::copy(own.begin(), own.end(), out->begin());
  for (std::size_t i = 0; i < own.size(); ++i) {
    double delta = static_cast<double>((*mean)[i]) - (*out)[i];
    (*out)[i] = static_cast<float>(own[i] + what.alpha * delta);
  }
  return out;
}

} // namespace waggle
