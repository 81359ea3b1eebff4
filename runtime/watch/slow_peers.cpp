#include "runtime/watch/slow_peers.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "runtime/watch/event_text.hpp"

namespace waggle {

namespace {

/// A member has to be late in so many of its last rounds. If it is late at least pauses_min times,
/// and in time in between, it pauses.
constexpr double most_rounds = 0.7;
constexpr std::size_t pauses_min = 2;
constexpr double pause_ms_min = 100;
constexpr double far_ms_min = 10;
/// A start may be late by so many round trips: the call for the round, the plan, the first part.
constexpr double round_trips_of_start = 4;
constexpr double slower_passes_min = 1.5;
/// Without a round that shows it: machines differ, and not every strategy waits for the slow ones.
constexpr double much_slower_min = 3;

/// What one round says about one member, in milliseconds beyond the median of the others.
struct excess {
  double start = 0;  // of its first contribution
  double send = 0;   // from its first to its last one
  double reduce = 0; // of its last result, after all contributions
  double other_send = 0;
};

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1)
    return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// The median of what the other members have.
template <class Get>
double others(const watch::round_ended& round, const peer_id& but, Get get) {
  std::vector<double> values;
  for (const auto& m : round.members)
    if (m.peer != but)
      if (auto value = get(m))
        values.push_back(*value);
  return median(std::move(values));
}

using member = watch::round_member;

std::optional<double> sending(const member& m) {
  if (!m.first_ms || !m.last_ms)
    return std::nullopt;
  return *m.last_ms - *m.first_ms;
}

excess excess_of(const watch::round_ended& round, const member& m) {
  excess out;
  if (m.first_ms)
    out.start = *m.first_ms - others(round, m.peer, [](const member& x) { return x.first_ms; });
  if (auto own = sending(m)) {
    out.other_send = others(round, m.peer, sending);
    out.send = *own - out.other_send;
  }
  double inputs = 0; // when all contributions were here, and so about then at every reducer
  for (const auto& x : round.members)
    inputs = std::max(inputs, x.last_ms.value_or(0));
  auto lag = [&](const member& x) -> std::optional<double> {
    if (!x.result_last_ms)
      return std::nullopt;
    return std::max(0.0, *x.result_last_ms - inputs);
  };
  if (auto own = lag(m))
    out.reduce = *own - others(round, m.peer, lag);
  return out;
}

/// When the last contribution or result came.
double last_arrival(const watch::round_ended& round) {
  double out = 0;
  for (const auto& m : round.members)
    out = std::max({out, m.last_ms.value_or(0), m.result_last_ms.value_or(0)});
  return out;
}

double median_of(const std::vector<excess>& all, double excess::*field) {
  std::vector<double> values;
  for (const auto& each : all)
    values.push_back(each.*field);
  return median(std::move(values));
}

/// The median of what the other peers say; 0: nobody does.
template <class Report, class Get = std::identity>
double usual_of(const std::map<peer_id, Report>& all, const peer_id& but, Get get = {}) {
  std::vector<double> values;
  for (const auto& [peer, report] : all)
    if (peer != but)
      values.push_back(std::invoke(get, report));
  return median(std::move(values));
}

struct judged {
  slow_peer who;
  double cost = 0; // milliseconds a round
};

/// What a member and the others say of their passes.
judged verdict_on_passes(const peer_id& peer, double seconds, double usual, double cost) {
  return {{peer, slow_cause::passes, 1000 * seconds,
           "it reports passes of " + span_text(1000 * seconds) + ", the others of "
             + span_text(1000 * usual)},
          cost};
}

/// Rounds do not show passes that nobody waits for, nor those that all wait for before the round
/// begins.
std::optional<judged> judge_passes(const peer_id& peer,
                                   const std::map<peer_id, double>& pass_seconds) {
  auto known = pass_seconds.find(peer);
  auto usual = usual_of(pass_seconds, peer);
  if (known == pass_seconds.end() || usual <= 0 || known->second < much_slower_min * usual
      || 1000 * (known->second - usual) < slow_ms_min)
    return std::nullopt;
  return verdict_on_passes(peer, known->second, usual, 1000 * (known->second - usual));
}

struct evidence_of_member {
  std::vector<excess> rounds;
  std::vector<double> trips; // round trips, ms
};

/// Since how many rounds a member has been late in most, at least slow_rounds_min; 0: it is not.
/// Its share of a core lets a slow machine be in time now and then.
std::size_t rounds_since_slow(const std::vector<double>& costs, double limit) {
  std::size_t since = 0;
  std::size_t late = 0;
  for (std::size_t n = 1; n <= costs.size(); ++n)
    if (costs[costs.size() - n] > limit && ++late >= slow_rounds_min
        && static_cast<double>(late) >= most_rounds * static_cast<double>(n))
      since = n;
  return since;
}

/// How often a row of late rounds begins.
std::size_t rows_over(const std::vector<double>& costs, double limit) {
  std::size_t rows = 0;
  for (std::size_t i = 0; i < costs.size(); ++i)
    if (costs[i] > limit && (i == 0 || costs[i - 1] <= limit))
      ++rows;
  return rows;
}

/// A single row of late rounds is something that has begun, or has ended.
std::optional<judged> judge_pauses(const peer_id& peer, std::vector<double> costs,
                                   double threshold) {
  auto count = costs.size();
  auto pause = std::max({pause_ms_min, threshold, 5 * median(costs)});
  if (rows_over(costs, pause) < pauses_min)
    return std::nullopt;
  std::erase_if(costs, [&](double x) { return x <= pause; });
  auto lost = median(costs);
  return judged{{peer, slow_cause::pauses, lost,
                 "it was " + span_text(lost) + " late in " + std::to_string(costs.size())
                   + " of the last " + std::to_string(count) + " rounds, and in time otherwise"},
                lost * static_cast<double>(costs.size()) / static_cast<double>(count)};
}

std::optional<judged> judge(const peer_id& peer, const evidence_of_member& seen, double threshold,
                            double other_trip, const std::map<peer_id, double>& pass_seconds) {
  auto all = seen.rounds;
  if (all.size() < slow_rounds_min)
    return std::nullopt;
  auto cost = [](const excess& x) {
    return std::max(0.0, x.start) + std::max(0.0, x.send) + std::max(0.0, x.reduce);
  };
  std::vector<double> costs;
  for (const auto& each : all)
    costs.push_back(cost(each));
  auto since = rounds_since_slow(costs, threshold);
  if (since == 0)
    return judge_pauses(peer, costs, threshold);
  all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(since));
  costs.erase(costs.begin(), costs.end() - static_cast<std::ptrdiff_t>(since));
  auto typical = median(costs);
  auto start = median_of(all, &excess::start);
  auto send = median_of(all, &excess::send);
  auto reduce = median_of(all, &excess::reduce);
  auto found = [&](slow_cause cause, double number, std::string text) {
    return judged{{peer, cause, number, std::move(text)}, typical};
  };
  auto trip = median(seen.trips);
  if (trip >= far_ms_min && trip >= 2 * other_trip
      && std::max({start, send, reduce}) <= round_trips_of_start * trip)
    return found(slow_cause::far, trip,
                 "the round trip to it takes " + span_text(trip) + ", and rounds wait for it");
  auto known = pass_seconds.find(peer);
  auto usual = usual_of(pass_seconds, peer);
  bool slower =
    known != pass_seconds.end() && usual > 0 && known->second >= slower_passes_min * usual;
  // What fits into one part has no first and last one: then both it and the sums are late.
  bool late_parts = !slower && start >= threshold / 2 && reduce >= threshold / 2;
  if ((send >= start && send >= reduce / 2) || late_parts) {
    auto theirs = median_of(all, &excess::other_send);
    auto own = std::max(send + theirs, late_parts ? start : 0);
    return found(slow_cause::sends_slowly, own,
                 "its contribution takes " + span_text(own) + " to arrive, those of the others "
                   + span_text(theirs));
  }
  if (reduce > start)
    return found(slow_cause::reduces_slowly, reduce,
                 "its sums come " + span_text(reduce) + " after those of the others");
  if (slower)
    return verdict_on_passes(peer, known->second, usual, typical);
  return found(slow_cause::starts_late, start,
               "it starts " + span_text(start) + " after the others");
}

/// Members that train (`pass_seconds` has them) and add little, of those that `found` does not
/// have.
void add_those_of_little_use(std::vector<slow_peer>& found,
                             const std::deque<watch::round_ended>& rounds,
                             const std::map<peer_id, double>& pass_seconds) {
  if (rounds.size() < round_window::count / 2)
    return;
  std::map<peer_id, double> samples;
  double all = 0;
  for (const auto& round : rounds)
    for (const auto& m : round.members) {
      if (m.contributed && !m.samples) // its weight counts something else
        return;
      auto its = m.contributed ? static_cast<double>(*m.samples) : 0;
      all += its;
      samples[m.peer] += its;
    }
  // Helpers, which add nothing, are none of these.
  std::erase_if(samples, [&](const auto& each) { return !pass_seconds.contains(each.first); });
  for (const auto& m : rounds.back().members) {
    auto its = samples.find(m.peer);
    if (m.self || its == samples.end() || all <= 0 || found.size() >= slow_peers_max
        || std::ranges::find(found, m.peer, &slow_peer::peer) != found.end())
      continue;
    auto share = its->second / all;
    auto equal = 1 / static_cast<double>(samples.size());
    if (share >= little_share * equal)
      continue;
    found.push_back({m.peer, slow_cause::adds_little, 100 * share,
                     fmt::format("it adds {:.2g} % of the samples, and an equal share is {:.0f} %",
                                 100 * share, 100 * equal)});
  }
}

} // namespace

std::string_view to_string(slow_cause x) {
  constexpr std::string_view names[slow_causes]{
    "passes", "starts_late", "sends_slowly", "reduces_slowly", "far", "pauses", "adds_little"};
  return names[static_cast<std::size_t>(x)];
}

std::map<peer_id, double> comparable_passes(const std::map<peer_id, reported_pass>& of,
                                            bool by_samples) {
  std::map<peer_id, double> out;
  for (const auto& [peer, pass] : of) {
    auto usual = usual_of(of, peer, &reported_pass::seconds);
    auto rate = usual_of(of, peer, &reported_pass::samples_per_second);
    bool comparable = by_samples && usual > 0 && pass.samples_per_second > 0;
    out[peer] = comparable ? std::clamp(usual * rate / pass.samples_per_second,
                                        std::min(usual, pass.seconds), pass.seconds)
                           : pass.seconds;
  }
  return out;
}

bool round_window::add(watch::round_ended round, steady_time now) {
  if (round.outcome == "failed" || round.members.size() < 2)
    return false;
  if (slot_ && now - *slot_ < apart) {
    if (last_arrival(round) > last_arrival(rounds_.back()))
      rounds_.back() = std::move(round);
    return false;
  }
  slot_ = now;
  rounds_.push_back(std::move(round));
  if (rounds_.size() > count)
    rounds_.pop_front();
  return true;
}

slow_report find_slow(const std::deque<watch::round_ended>& rounds,
                      const std::map<peer_id, double>& pass_seconds) {
  slow_report out;
  if (rounds.size() < slow_rounds_min)
    return out;
  const auto& newest = rounds.back();
  std::set<peer_id> present;
  bool reduces = false;
  for (const auto& m : newest.members) {
    present.insert(m.peer);
    reduces = reduces || (m.self && m.reduces);
  }
  if (!reduces)
    out.cannot_tell = "this peer reduces nothing, so it does not see when the others contribute";
  std::vector<double> durations;
  std::map<peer_id, evidence_of_member> seen;
  for (const auto& round : rounds) {
    durations.push_back(round.duration_ms);
    for (const auto& m : round.members) {
      if (m.self || !present.contains(m.peer))
        continue;
      auto& its = seen[m.peer];
      its.rounds.push_back(excess_of(round, m));
      if (m.rtt_ms)
        its.trips.push_back(*m.rtt_ms);
    }
  }
  auto threshold = std::max(slow_ms_min, slow_share_min * median(durations));
  std::vector<judged> found;
  std::vector<judged> by_reports;
  for (const auto& [peer, its] : seen) {
    if (its.rounds.size() >= slow_rounds_min)
      if (auto verdict = judge_passes(peer, pass_seconds))
        by_reports.push_back(std::move(*verdict));
    if (!reduces)
      continue;
    std::vector<double> trips;
    for (const auto& [other, evidence] : seen)
      if (other != peer && !evidence.trips.empty())
        trips.push_back(median(evidence.trips));
    if (auto verdict = judge(peer, its, threshold, median(std::move(trips)), pass_seconds))
      found.push_back(std::move(*verdict));
  }
  // A reducer to which a slow member sends last is late with its sums, always or now and then.
  auto any = [&](auto holds) {
    return std::any_of(found.begin(), found.end(),
                       [&](const judged& x) { return holds(x.who.cause); });
  };
  auto erase = [&](slow_cause cause) {
    std::erase_if(found, [&](const judged& x) { return x.who.cause == cause; });
  };
  if (any([](slow_cause x) { return x == slow_cause::sends_slowly; }))
    erase(slow_cause::reduces_slowly);
  if (any([](slow_cause x) { return x != slow_cause::pauses; }))
    erase(slow_cause::pauses);
  // A machine that is slow is also late with what it sends and sums.
  for (auto& each : by_reports) {
    auto known = std::find_if(found.begin(), found.end(),
                              [&](const judged& x) { return x.who.peer == each.who.peer; });
    if (known == found.end())
      found.push_back(std::move(each));
    else if (each.cost > known->cost)
      *known = std::move(each);
  }
  std::sort(found.begin(), found.end(),
            [](const judged& a, const judged& b) { return a.cost > b.cost; });
  for (auto& each : found)
    if (out.peers.size() < slow_peers_max)
      out.peers.push_back(std::move(each.who));
  add_those_of_little_use(out.peers, rounds, pass_seconds);
  return out;
}

slow_report slow_watch::add(watch::round_ended round, const std::map<peer_id, double>& pass_seconds,
                            steady_time now) {
  std::size_t more = window_.add(std::move(round), now) ? 1 : 0;
  auto report = find_slow(window_.rounds(), pass_seconds);
  std::set<peer_id> present;
  for (auto& each : report.peers) {
    present.insert(each.peer);
    auto& its = found_.try_emplace(each.peer, finding{each, {each.cause, now}, {}}).first->second;
    its.missed = 0;
    its.found.rounds += more;
    if (!its.named || each.cause == its.what.cause) {
      its.as.reset();
    } else {
      if (!its.as || its.as->cause != each.cause)
        its.as = streak{each.cause, now};
      its.as->rounds += more;
      if (!its.as->lasts(steady_rounds, now))
        continue;
      its.as.reset();
    }
    its.what = std::move(each);
    its.named =
      its.named || its.found.lasts(named_rounds, now)
      || (its.what.cause == slow_cause::passes && now - its.found.since >= reported_after);
  }
  for (auto its = found_.begin(); its != found_.end();) {
    auto& [peer, what] = *its;
    bool missed = !present.contains(peer);
    what.missed += missed ? more : 0;
    its =
      missed && (!what.named || what.missed >= steady_rounds) ? found_.erase(its) : std::next(its);
  }
  report.peers.clear();
  for (const auto& [peer, its] : found_)
    if (its.named && report.peers.size() < slow_peers_max)
      report.peers.push_back(its.what);
  return report;
}

} // namespace waggle
