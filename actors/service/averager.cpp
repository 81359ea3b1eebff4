#include "waggle/averager.hpp"

#include <algorithm>

#include "actors/service/running_node.hpp"

namespace waggle {

result<std::size_t> averager_named(const std::vector<std::string>& names, const std::string& name) {
  auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    return failure{ec::bad_config,
                   "this peer has no averager '" + name + "': name it in node_options::averagers"};
  return static_cast<std::size_t>(found - names.begin());
}

const averager_actor& averager_of(const node_parts& parts, std::size_t which) {
  return which == 0 ? parts.averager : parts.further[which - 1].averager;
}

average_vector average_question(std::span<const float> values, const average_options& options,
                                vector_pool& vectors) {
  auto copy = vectors.take(values.size());
  std::copy(values.begin(), values.end(), copy->begin());
  average_vector question;
  question.values = std::move(copy);
  question.weight = options.weight;
  question.deadline = options.timeout;
  question.expected_peers = options.expected_peers;
  question.reuse_group = options.keep_group;
  return question;
}

result<average_report> average_report_of(const round_report& report, std::span<float> values) {
  if (report.outcome == round_outcome::failed)
    return report.why;
  std::copy(report.values->begin(), report.values->end(), values.begin());
  return average_report{report.contributors, report.weight_sum,
                        report.outcome == round_outcome::complete,
                        report.matchmaking_seconds + report.allreduce_seconds};
}

result<vector_averager> vector_averager::of(const node& peer, const std::string& name) {
  auto which = averager_named(peer.running()->averagers, name);
  if (!which)
    return which.error();
  return vector_averager{peer.running(), *which};
}

result<average_report> vector_averager::average(std::span<float> values,
                                                const average_options& options) {
  if (values.empty())
    return failure{ec::wrong_shape, "there is nothing to average: the vector is empty"};
  auto answer =
    peer_->ask<round_report>(averager_of(peer_->node.parts, which_), options.timeout + 1s,
                             average_question(values, options, *peer_->node.ctx.vectors));
  if (!answer)
    return answer.error();
  return average_report_of(*answer, values);
}

} // namespace waggle
