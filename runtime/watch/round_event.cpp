#include "runtime/watch/round_event.hpp"

#include <algorithm>
#include <cmath>

namespace waggle::watch {

namespace {

std::optional<double> ms(round_marks::time at) {
  if (at == round_marks::never)
    return std::nullopt;
  return std::chrono::duration<double, std::milli>(at).count();
}

} // namespace

round_ended event_of(const round_report& report, std::int64_t began,
                     const std::function<std::chrono::microseconds(const peer_id&)>& round_trip) {
  round_ended out{.round = report.round,
                  .kind = report.kind,
                  .epoch = report.epoch.value(),
                  .outcome = std::string{to_string(report.outcome)}};
  if (report.why.code != ec::none)
    out.reason = to_string(report.why);
  out.began = began;
  out.duration_ms = 1000 * report.allreduce_seconds;
  out.search_ms = 1000 * report.matchmaking_seconds;
  out.agreement_ms = 1000 * report.agreement_seconds;
  out.recovery_ms = 1000 * report.recovery_seconds;
  if (!report.marks)
    return out;
  const auto& in = report.contributors;
  for (std::size_t i = 0; i < report.marks->members.size(); ++i) {
    const auto& its = report.marks->members[i];
    round_member m{.peer = its.peer,
                   .self = i == report.marks->self,
                   .contributed = std::find(in.begin(), in.end(), its.peer) != in.end(),
                   .reduces = its.reduces};
    if (its.weight > 0 && its.weight < 1e15 && its.weight == std::floor(its.weight))
      m.samples = static_cast<std::uint64_t>(its.weight);
    m.first_ms = ms(its.contributions.first);
    m.last_ms = ms(its.contributions.last);
    m.result_first_ms = ms(its.results.first);
    m.result_last_ms = ms(its.results.last);
    m.bytes_in = its.bytes_in;
    m.bytes_out = its.bytes_out;
    if (auto trip = m.self ? std::chrono::microseconds{0} : round_trip(its.peer); trip.count() > 0)
      m.rtt_ms = std::chrono::duration<double, std::milli>(trip).count();
    out.members.push_back(std::move(m));
  }
  return out;
}

round_phases phases_of(const round_report& report) {
  round_phases out;
  out.search = std::max(0.0, report.matchmaking_seconds);
  out.agreement = std::clamp(report.agreement_seconds, 0.0, report.allreduce_seconds);
  auto rest = report.allreduce_seconds - out.agreement;
  auto last = round_marks::time{0};
  if (report.marks)
    for (const auto& m : report.marks->members)
      last = std::max(last, m.contributions.last);
  out.contributions = std::clamp(seconds_of(last), 0.0, rest);
  out.results = rest - out.contributions;
  return out;
}

} // namespace waggle::watch
