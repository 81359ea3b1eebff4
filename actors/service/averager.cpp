#include "waggle/averager.hpp"

#include <algorithm>

#include "actors/service/running_node.hpp"

namespace waggle {

namespace {

constexpr auto change_timeout = 5s; // the node answers at once

} // namespace

std::shared_ptr<averager_table> averagers_of(const node_options& options, const node_parts& parts) {
  auto all = std::make_shared<averager_table>();
  for (std::size_t i = 0; i < options.averagers.size(); ++i)
    all->add(options.averagers[i].name, parts.further[i]);
  return all;
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
  if (auto found = peer.running()->averagers->find(name); !found)
    return found.error();
  return vector_averager{peer.running(), name};
}

result<vector_averager> vector_averager::add(const node& peer, const averager_options& options) {
  const auto& running = peer.running();
  auto parts = averaging_parts_of(options, running->agreement.get());
  if (!parts)
    return parts.error();
  auto made = running->ask<averaging_actors>(running->node.node, change_timeout,
                                             add_averager{std::move(*parts)});
  if (!made)
    return made.error();
  running->averagers->add(options.name, std::move(*made));
  return vector_averager{running, options.name};
}

status vector_averager::end() {
  auto ended = peer_->ask<caf::unit_t>(peer_->node.node, change_timeout, end_averager{name_});
  if (!ended)
    return ended.error();
  peer_->averagers->remove(name_);
  return done{};
}

result<average_report> vector_averager::average(std::span<float> values,
                                                const average_options& options) {
  if (values.empty())
    return failure{ec::wrong_shape, "there is nothing to average: the vector is empty"};
  if (auto valid = check_timeout(options.timeout, "average_options::timeout"); !valid)
    return valid.error();
  auto& all = *peer_->averagers;
  auto averager = all.find(name_);
  if (!averager)
    return averager.error();
  auto question = average_question(values, options, *peer_->node.ctx.vectors);
  if (!all.begin_round())
    return failure{ec::not_ready, "this peer is paused"};
  auto answer = peer_->ask<round_report>(*averager, options.timeout + 1s, std::move(question));
  all.end_round();
  if (answer) { // for the metrics, and those that watch
    round_ended event{*answer};
    event.report.values.reset();
    caf::anon_send(peer_->node.parts.reports, std::move(event));
  }
  if (!answer)
    return answer.error();
  return average_report_of(*answer, values);
}

} // namespace waggle
