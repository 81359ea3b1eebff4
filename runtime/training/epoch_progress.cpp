#include "runtime/training/epoch_progress.hpp"

#include <algorithm>
#include <set>

#include "runtime/training/smooth.hpp"

namespace waggle {

namespace {

constexpr double look_again = 0.1;     // seconds, at the latest
constexpr double report_delay = 0.002; // seconds from a peer's report to another peer's decision
constexpr double longest_pass_believed = 60;           // seconds
constexpr auto believed_max = std::uint64_t{1} << 40U; // the sum of 64 members does not overflow

std::uint64_t milliseconds_of(swarm_time wall) {
  return static_cast<std::uint64_t>(to_nanoseconds(wall)) / 1'000'000;
}

} // namespace

void epoch_progress::begin_counting(swarm_time wall, steady_time now) {
  boundary_time_ = milliseconds_of(wall);
  // Clocks differ: a round that another peer began early belongs to the nearest point of the grid.
  if (auto grid = averages_.due.grid; grid != 0)
    boundary_time_ = (boundary_time_ + grid / 2) / grid * grid;
  boundary_ = now;
  barrier_.begin(now);
  claims_.begin_epoch(now);
}

void epoch_progress::end(steady_time now) {
  auto took = seconds_of(now - began_);
  if (took < early_share * seconds_)
    ended_early_ = now;
  smooth(seconds_, took);
  began_ = now;
}

std::optional<double> epoch_progress::until_end(steady_time now) const {
  return seconds_ > 0 ? std::optional{seconds_ - seconds_of(now - began_)} : std::nullopt;
}

bool epoch_progress::is_comparable() const {
  return averages_.what == lane_content::gradient
         && averages_.due.counts == lane_clock::unit::swarm_samples;
}

void epoch_progress::observe() {
  if (is_comparable())
    for_members([&](const auto& peer) { claims_.observe(peer.who.id, peer.samples); });
}

std::uint64_t epoch_progress::samples_of_others(steady_time now) const {
  bool by_samples = averages_.due.counts == lane_clock::unit::swarm_samples;
  std::uint64_t sum = 0;
  for_members([&](const auto& peer) {
    sum += by_samples ? claims_.counted(peer.who.id, peer.samples, now)
                      : std::min(peer.samples, believed_max);
  });
  return sum;
}

void epoch_progress::describe(situation& what, std::uint64_t own_samples,
                              const sample_ledger* ledger, steady_time now) {
  what.swarm_samples = own_samples + samples_of_others(now);
  if (averages_.due.counts != lane_clock::unit::each_member)
    return;
  auto without = group_.without_pass(at_.past().branch, at_.epoch());
  if (without && ledger != nullptr)
    std::erase_if(*without, [&](const peer_id& who) { return ledger->left_to(who) == 0; });
  if (without)
    what.members_missing = barrier_.missing(*without, now);
}

void epoch_progress::describe_time(situation& what, swarm_time wall) const {
  what.boundary_time = boundary_time_;
  what.time = milliseconds_of(wall);
}

epoch_id epoch_progress::schedule_epoch(const schedule_clock& clock, epoch_id epoch,
                                        std::uint64_t own_samples, bool round_runs,
                                        steady_time now) {
  schedule_position at{epoch, at_.held_past().steps};
  if (clock.epochs_per_round > 1) {
    at.per_round = averages_.due.every;
    // While a round runs, the others have not reported anything toward the next one.
    at.samples = own_samples + (round_runs ? 0 : samples_of_others(now));
  }
  return schedule_ = without_going_back(clock, schedule_, waggle::schedule_epoch(clock, at));
}

double epoch_progress::longest_pass(const pass_account& passes, steady_time now) const {
  auto longest = passes.seconds;
  for_members([&](const auto& peer) {
    if (auto speed = claims_.speed(peer.who.id, peer.samples_per_second, now); speed > 0)
      longest = std::max(longest, static_cast<double>(passes.samples) / speed);
  });
  // What members claim of their speed must not hold up the others for long.
  return std::min(
    {longest, seconds_ > 0 ? seconds_ : longest_pass_believed, longest_pass_believed});
}

bool epoch_progress::exhausted(const sample_ledger& ledger, std::uint64_t own_samples, bool adds,
                               const pass_account& passes, steady_time now) {
  auto left = ledger.left_to(seen_.self);
  std::set<peer_id> reported{seen_.self};
  for_members([&](const auto& peer) {
    left += ledger.left_to(peer.who.id);
    reported.insert(peer.who.id);
  });
  auto samples = own_samples + samples_of_others(now);
  if (samples != samples_ || grew_ < began_) {
    samples_ = samples;
    grew_ = now;
  }
  if (adds)
    return false;
  if (samples < left) // blocks weigh more than they are, so of these this is rare
    return seconds_of(now - grew_) > tail_patience + longest_pass(passes, now);
  const auto& members = group_.members();
  return now - began_ > reports_due
         || std::all_of(members.begin(), members.end(), [&](const peer_id& who) {
              return reported.contains(who) || ledger.left_to(who) == 0;
            });
}

pass_decision epoch_progress::next_pass(std::uint64_t own_samples, const pass_account& passes,
                                        bool round_runs, swarm_time wall, steady_time now) const {
  if (averages_.due.counts == lane_clock::unit::each_member)
    return {own_samples == 0, look_again};
  if (round_runs) {
    auto since = seconds_of(now - boundary_);
    double samples = static_cast<double>(own_samples);
    double rates = passes.rate;
    for_members([&](const auto& peer) {
      auto speed = claims_.speed(peer.who.id, peer.samples_per_second, now);
      samples += speed * since;
      rates += speed;
    });
    auto target = static_cast<double>(target_);
    return {samples < target, target / std::max(rates, 1.0)};
  }
  pass_situation situation{
    .target = target_, .own_samples = own_samples, .own_pass = passes.seconds, .epoch = seconds_};
  for_members([&](const auto& peer) {
    situation.others.push_back({claims_.counted(peer.who.id, peer.samples, now),
                                std::max(0.0, seconds_of(difference(wall, peer.time))),
                                report_delay,
                                claims_.speed(peer.who.id, peer.samples_per_second, now), 0});
  });
  return decide_pass(situation);
}

} // namespace waggle
