#include "runtime/training/run_health.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace waggle {

namespace {

using settings = run_health::settings;
using epochs = std::deque<epoch_facts>;
using unit = run_health::unit;
using numbers = run_health::numbers;

constexpr double enough_peers = 0.9;
constexpr double rare = 0.1; // share of the epochs

std::string number(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// With the digits that matter: rounds last from milliseconds to minutes.
std::string in_seconds(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3g s", value);
  return text;
}

double expected(const epoch_facts& e, const settings& how) {
  return how.group_size_max == 0 ? e.peers : std::min(e.peers, how.group_size_max);
}

/// The mean of `value` over the epochs for which `counts`; 0 if there is none.
template <class Value, class Counts>
double mean(const epochs& all, Value value, Counts counts) {
  double sum = 0;
  std::size_t n = 0;
  for (const auto& e : all)
    if (counts(e)) {
      sum += static_cast<double>(value(e));
      ++n;
    }
  return n == 0 ? 0 : sum / static_cast<double>(n);
}

/// How long the peers compute for an epoch; 0: not known.
double compute_seconds(const epoch_facts& e, const settings& how) {
  return e.samples_per_second > 0 ? static_cast<double>(how.target_batch) / e.samples_per_second
                                  : 0;
}

// -- symptoms ------------------------------------------------------------------------------------

bool small_round(const epoch_facts& e, const settings& how) {
  return !e.own_gradient && e.contributors < enough_peers * expected(e, how);
}

bool own_gradient(const epoch_facts& e, const settings& /*how*/) {
  return e.own_gradient;
}

bool short_epoch(const epoch_facts& e, const settings& how) {
  auto seconds = compute_seconds(e, how);
  return !e.own_gradient && seconds > 0 && seconds < e.download_seconds + e.round_seconds;
}

bool small_batch(const epoch_facts& e, const settings& how) {
  return e.peers > 1 && how.target_batch > 0 && how.target_batch < 2 * e.pass_samples * e.peers;
}

bool zero_update(const epoch_facts& e, const settings& /*how*/) {
  return e.gradient_norm == 0.0;
}

// -- numbers, and sentences that follow "in N of the last M epochs " ------------------------------

double peers_expected(const epochs& all, const settings& how) {
  return mean(
    all, [&](const auto& e) { return expected(e, how); },
    [&](const auto& e) { return small_round(e, how); });
}

numbers of_small_rounds(const epochs& all, const settings& how) {
  auto took_part = mean(
    all, [](const auto& e) { return e.contributors; },
    [&](const auto& e) { return small_round(e, how); });
  return {unit::peers, took_part, enough_peers * peers_expected(all, how)};
}

std::string say_small_rounds(const epochs& all, const settings& how) {
  auto text = "only " + number(of_small_rounds(all, how).found, 1) + " of "
              + number(peers_expected(all, how), 1) + " peers took part in the round: ";
  return text
         + (how.searches_groups ? "raise --matchmaking-time, so that more peers find each other"
                                : "members that stall are left out, so raise --stall-timeout or "
                                  "--target-batch-size if their links or machines are slow");
}

/// 0: none succeeded.
double longest_round(const epochs& all) {
  double longest = 0;
  for (const auto& e : all)
    if (!e.own_gradient)
      longest = std::max(longest, e.round_seconds);
  return longest;
}

numbers of_own_gradients(const epochs& all, const settings& how) {
  auto longest = longest_round(all);
  return {unit::seconds, how.averaging_timeout,
          2 * (longest > 0 ? longest : how.averaging_timeout)};
}

std::string say_own_gradients(const epochs& all, const settings& how) {
  auto longest = longest_round(all);
  std::string text = "the round failed and this peer used its own gradient: ";
  auto timeout = "--averaging-timeout, which is " + in_seconds(how.averaging_timeout);
  if (longest == 0)
    return text + "no round succeeded, so try twice the " + timeout;
  text += "the longest round that succeeded took " + in_seconds(longest) + ", ";
  auto enough = of_own_gradients(all, how).required;
  if (enough > how.averaging_timeout)
    return text + "so raise " + timeout + ", to " + in_seconds(enough);
  return text + "so " + timeout
         + ", is long enough: members are lost, raise --stall-timeout if their links are slow";
}

/// The value of --target-batch-size for so many samples from one round to the next.
double per_epoch(double samples, const settings& how) {
  return std::ceil(samples / static_cast<double>(how.epochs_per_round));
}

template <class Value>
double mean_of_short_ones(const epochs& all, const settings& how, Value value) {
  return mean(all, value, [&](const auto& e) { return short_epoch(e, how); });
}

numbers of_short_epochs(const epochs& all, const settings& how) {
  auto computed_meanwhile = [](const epoch_facts& e) {
    return e.samples_per_second * (e.round_seconds + e.download_seconds);
  };
  return {unit::samples, per_epoch(static_cast<double>(how.target_batch), how),
          per_epoch(mean_of_short_ones(all, how, computed_meanwhile), how)};
}

std::string say_short_epochs(const epochs& all, const settings& how) {
  auto average = [&](auto value) { return mean_of_short_ones(all, how, value); };
  auto download = average([](const auto& e) { return e.download_seconds; });
  auto text = "the peers compute " + std::to_string(how.target_batch) + " samples in "
              + in_seconds(average([&](const auto& e) { return compute_seconds(e, how); }))
              + ", less than the "
              + in_seconds(average([](const auto& e) { return e.round_seconds; })) + " of a round";
  if (download > 0)
    text += " and the " + in_seconds(download) + " in which a peer that joins downloads the state";
  return text + ": raise --target-batch-size to " + number(of_short_epochs(all, how).required, 0)
         + " or more";
}

const epoch_facts& last_small_batch(const epochs& all, const settings& how) {
  return *std::find_if(all.rbegin(), all.rend(),
                       [&](const auto& e) { return small_batch(e, how); });
}

numbers of_small_batches(const epochs& all, const settings& how) {
  const auto& last = last_small_batch(all, how);
  return {unit::samples, per_epoch(static_cast<double>(how.target_batch), how),
          per_epoch(2 * static_cast<double>(last.pass_samples) * last.peers, how)};
}

std::string say_small_batches(const epochs& all, const settings& how) {
  const auto& last = last_small_batch(all, how);
  auto pass = std::to_string(last.pass_samples);
  auto peers = std::to_string(last.peers);
  auto several = how.epochs_per_round == 1
                   ? std::string{}
                   : " (" + std::to_string(how.epochs_per_round) + " to a round)";
  return "the target batch of " + number(of_small_batches(all, how).found, 0) + " samples" + several
         + " was less than two passes of " + pass + " samples of each of the " + peers
         + " peers, so some contribute little or nothing: raise --target-batch-size to "
         + number(of_small_batches(all, how).required, 0) + ", or lower --micro-batch";
}

numbers of_zero_updates(const epochs& all, const settings& how) {
  auto size = static_cast<double>(all.size());
  auto zero =
    std::count_if(all.begin(), all.end(), [&](const auto& e) { return zero_update(e, how); });
  return {unit::epochs, size - static_cast<double>(zero), size - (std::ceil(rare * size) - 1)};
}

std::string say_zero_updates(const epochs& /*all*/, const settings& /*how*/) {
  return "the mean gradient was zero, so the run learns nothing: check --data, and whether a "
         "smaller --lr keeps the model from dying";
}

struct row {
  double begins; // share of the epochs
  double ends;
  bool (*shows)(const epoch_facts&, const settings&);
  // REQUIRE: an epoch shows it.
  numbers (*numbers_of)(const epochs&, const settings&);
  std::string (*say)(const epochs&, const settings&);
};

constexpr row table[] = {
  {0.25, rare, small_round, of_small_rounds, say_small_rounds},
  {0.25, rare, own_gradient, of_own_gradients, say_own_gradients},
  {0.5, 0.25, short_epoch, of_short_epochs, say_short_epochs},
  {0.5, 0.25, small_batch, of_small_batches, say_small_batches},
  {0.25, rare, zero_update, of_zero_updates, say_zero_updates},
};
static_assert(std::size(table) == run_health::rules.size());

} // namespace

std::vector<std::string> run_health::end_epoch(const epoch_facts& epoch, steady_time now) {
  epochs_.push_back(epoch);
  if (epochs_.size() > window)
    epochs_.pop_front();
  std::vector<std::string> to_log;
  if (epochs_.size() < judged_from)
    return to_log;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const auto& rule = table[i];
    auto& state = states_[i];
    auto shown = std::count_if(epochs_.begin(), epochs_.end(),
                               [&](const auto& e) { return rule.shows(e, how_); });
    auto share = static_cast<double>(shown) / static_cast<double>(epochs_.size());
    state.holds = state.holds ? share >= rule.ends : share >= rule.begins;
    state.sentence.clear();
    if (!state.holds)
      continue;
    state.last = rule.numbers_of(epochs_, how_);
    state.sentence = "in " + std::to_string(shown) + " of the last "
                     + std::to_string(epochs_.size()) + " epochs " + rule.say(epochs_, how_);
    if (state.logged && now - *state.logged < log_interval)
      continue;
    state.logged = now;
    to_log.push_back(state.sentence);
  }
  return to_log;
}

void run_health::see_peers(const std::map<peer_id, bool>& have_state, steady_time now) {
  for (const auto& [peer, has_state] : have_state)
    if (!has_state)
      downloads_.try_emplace(peer, sighting{now, now}).first->second.last = now;
    else if (auto seen = downloads_.find(peer); seen != downloads_.end())
      download_seconds_ = seconds_of(seen->second.last - seen->second.first);
  std::erase_if(downloads_, [&](const auto& entry) { return entry.second.last != now; });
}

std::optional<std::string> run_health::pass_not_finite(steady_time now) {
  ++not_finite_;
  if (not_finite_logged_ && now - *not_finite_logged_ < log_interval)
    return std::nullopt;
  not_finite_logged_ = now;
  auto passes = std::exchange(not_finite_, 0);
  return std::to_string(passes) + (passes == 1 ? " pass" : " passes")
         + " gave a loss or a gradient that is NaN or infinite, and the samples were dropped: "
           "lower --lr, clip with a smaller --max-gradient-norm, or, if --loss-scale is a number, "
           "make it smaller or dynamic";
}

const run_health::state* run_health::find(std::string_view rule) const {
  auto found = std::find(rules.begin(), rules.end(), rule);
  return found == rules.end() ? nullptr : &states_[static_cast<std::size_t>(found - rules.begin())];
}

bool run_health::holds(std::string_view rule) const {
  const auto* known = find(rule);
  return known != nullptr && known->holds;
}

std::optional<run_health::numbers> run_health::numbers_of(std::string_view rule) const {
  const auto* known = find(rule);
  return known == nullptr ? std::nullopt : known->last;
}

std::string run_health::notice() const {
  std::string all;
  for (const auto& state : states_)
    if (state.holds)
      all += (all.empty() ? "" : "; ") + state.sentence;
  return all;
}

} // namespace waggle
