#include "runtime/training/run_health.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace waggle {

namespace {

using options = run_health::options;
using epochs = std::deque<epoch_facts>;

constexpr double enough_peers = 0.9;
constexpr double rare = 0.1; // share of the epochs

double expected(const epoch_facts& e, const options& how) {
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
double compute_seconds(const epoch_facts& e, const options& how) {
  return e.samples_per_second > 0 ? static_cast<double>(how.target_batch) / e.samples_per_second
                                  : 0;
}

// -- symptoms ------------------------------------------------------------------------------------

bool small_round(const epoch_facts& e, const options& how) {
  return !e.own_gradient && e.contributors < enough_peers * expected(e, how);
}

bool own_gradient(const epoch_facts& e, const options& /*how*/) {
  return e.own_gradient;
}

bool short_epoch(const epoch_facts& e, const options& how) {
  auto seconds = compute_seconds(e, how);
  return !e.own_gradient && seconds > 0 && seconds < e.download_seconds + e.round_seconds;
}

bool small_batch(const epoch_facts& e, const options& how) {
  return e.peers > 1 && how.target_batch > 0 && how.target_batch < 2 * e.pass_samples * e.peers;
}

bool zero_update(const epoch_facts& e, const options& /*how*/) {
  return e.gradient_norm == 0.0;
}

// -- what follows "in N of the last M epochs ", and the cure --------------------------------------

struct advice {
  std::string seen;
  std::string cure;
};

advice say_small_rounds(const epochs& all, const options& how) {
  auto average = [&](auto value) {
    return mean(all, value, [&](const auto& e) { return small_round(e, how); });
  };
  return {fmt::format("only {:.1f} of {:.1f} peers took part in the round",
                      average([](const auto& e) { return e.contributors; }),
                      average([&](const auto& e) { return expected(e, how); })),
          how.searches_groups
            ? "raise --matchmaking-time, so that more peers find each other"
            : "members that stall are left out, so raise --stall-timeout or --target-batch-size if "
              "their links or machines are slow"};
}

/// 0: none succeeded.
double longest_round(const epochs& all) {
  double longest = 0;
  for (const auto& e : all)
    if (!e.own_gradient)
      longest = std::max(longest, e.round_seconds);
  return longest;
}

advice say_own_gradients(const epochs& all, const options& how) {
  auto longest = longest_round(all);
  std::string seen = "the round failed and this peer used its own gradient";
  // Three digits: rounds last from milliseconds to minutes.
  auto timeout = fmt::format("--averaging-timeout, which is {:.3g} s", how.averaging_timeout);
  if (longest == 0)
    return {seen, "no round succeeded, so try twice the " + timeout};
  auto cure = fmt::format("the longest round that succeeded took {:.3g} s, so ", longest);
  auto enough = 2 * longest;
  if (enough > how.averaging_timeout)
    return {seen, cure + fmt::format("raise {}, to {:.3g} s", timeout, enough)};
  return {seen, cure + timeout
                  + ", is long enough: members are lost, raise --stall-timeout if their links are "
                    "slow"};
}

/// The value of --target-batch-size for so many samples from one round to the next.
double per_epoch(double samples, const options& how) {
  return std::ceil(samples / static_cast<double>(how.epochs_per_round));
}

advice say_short_epochs(const epochs& all, const options& how) {
  auto average = [&](auto value) {
    return mean(all, value, [&](const auto& e) { return short_epoch(e, how); });
  };
  auto download = average([](const auto& e) { return e.download_seconds; });
  auto computed_meanwhile = average(
    [](const auto& e) { return e.samples_per_second * (e.round_seconds + e.download_seconds); });
  return {
    fmt::format("the peers compute {} samples in {:.3g} s, less than the {:.3g} s of a round{}",
                how.target_batch, average([&](const auto& e) { return compute_seconds(e, how); }),
                average([](const auto& e) { return e.round_seconds; }),
                download > 0 ? fmt::format(
                  " and the {:.3g} s in which a peer that joins downloads the state", download)
                             : ""),
    fmt::format("raise --target-batch-size to {:.0f} or more", per_epoch(computed_meanwhile, how))};
}

advice say_small_batches(const epochs& all, const options& how) {
  const auto& last =
    *std::find_if(all.rbegin(), all.rend(), [&](const auto& e) { return small_batch(e, how); });
  auto enough = 2 * static_cast<double>(last.pass_samples) * last.peers;
  return {
    fmt::format(
      "the target batch of {:.0f} samples{} was less than two passes of {} samples of each of the "
      "{} peers, so some contribute little or nothing",
      per_epoch(static_cast<double>(how.target_batch), how),
      how.epochs_per_round == 1 ? "" : fmt::format(" ({} to a round)", how.epochs_per_round),
      last.pass_samples, last.peers),
    fmt::format("raise --target-batch-size to {:.0f}, or lower --micro-batch",
                per_epoch(enough, how))};
}

advice say_zero_updates(const epochs& /*all*/, const options& /*how*/) {
  return {"the mean gradient was zero, so the run learns nothing",
          "check --data, and whether a smaller --lr keeps the model from dying"};
}

struct row {
  double begins; // share of the epochs
  double ends;
  bool (*shows)(const epoch_facts&, const options&);
  // REQUIRE: an epoch shows it.
  advice (*say)(const epochs&, const options&);
};

constexpr row table[] = {
  {0.25, rare, small_round, say_small_rounds}, {0.25, rare, own_gradient, say_own_gradients},
  {0.5, 0.25, short_epoch, say_short_epochs},  {0.5, 0.25, small_batch, say_small_batches},
  {0.25, rare, zero_update, say_zero_updates},
};
/// Before those that look at epochs.
constexpr std::size_t slow_download_at = 0;
constexpr std::size_t first_of_epochs = 1;
static_assert(std::size(table) + first_of_epochs == run_health::rules.size());

// -- a download ----------------------------------------------------------------------------------

/// The seconds that the whole state takes at this bandwidth; 0: not known.
double whole_seconds(const slow_download& what) {
  if (what.received_bytes == 0 || what.state_bytes == 0)
    return 0;
  return what.seconds * static_cast<double>(what.state_bytes)
         / static_cast<double>(what.received_bytes);
}

notice say_slow_download(const slow_download& what) {
  auto megabytes = [](auto bytes) { return static_cast<double>(bytes) / 1e6; };
  auto received = megabytes(what.received_bytes);
  auto text = fmt::format("this peer cannot keep up with the run: after {:.0f} s it has {:.1f} MB",
                          what.seconds, received);
  if (what.state_bytes > 0)
    text += fmt::format(" of a state of {:.1f} MB", megabytes(what.state_bytes));
  if (what.seconds > 0)
    text += fmt::format(" ({:.2f} MB/s)", received / what.seconds);
  text +=
    fmt::format("; an epoch takes the others {:.2f} s and brings {:.1f} MB of updates, of "
                "which {:.0f} MB are kept",
                what.epoch_seconds, megabytes(what.update_bytes), megabytes(what.kept_bytes_max));
  auto target = sufficient_target_batch(what);
  return {std::string{run_health::rules[slow_download_at]}, text,
          target == 0
            ? "give it a faster link, or raise --target-batch-size"
            : fmt::format("a target batch size of {} or a faster link would be enough", target)};
}

} // namespace

std::uint64_t sufficient_target_batch(const slow_download& what) {
  auto seconds = whole_seconds(what);
  if (seconds == 0 || what.epoch_seconds <= 0 || what.kept_bytes_max == 0)
    return 0;
  auto updates = seconds / what.epoch_seconds * static_cast<double>(what.update_bytes);
  auto factor = 1.25 * updates / static_cast<double>(what.kept_bytes_max);
  return static_cast<std::uint64_t>(
    std::ceil(std::max(factor, 1.0) * static_cast<double>(what.target_batch_size)));
}

std::vector<std::string> run_health::end_epoch(const epoch_facts& epoch, steady_time now) {
  epochs_.push_back(epoch);
  if (epochs_.size() > window)
    epochs_.pop_front();
  std::vector<std::string> to_log;
  if (epochs_.size() < judged_from)
    return to_log;
  for (std::size_t i = 0; i < std::size(table); ++i) {
    const auto& rule = table[i];
    auto& state = states_[first_of_epochs + i];
    auto shown = std::ranges::count_if(epochs_, [&](const auto& e) { return rule.shows(e, how_); });
    auto share = static_cast<double>(shown) / static_cast<double>(epochs_.size());
    state.holds = state.holds ? share >= rule.ends : share >= rule.begins;
    state.what = {};
    if (!state.holds)
      continue;
    auto [seen, cure] = rule.say(epochs_, how_);
    state.what = {std::string{rules[first_of_epochs + i]},
                  fmt::format("in {} of the last {} epochs {}", shown, epochs_.size(), seen), cure};
    if (state.logged && now - *state.logged < log_interval)
      continue;
    state.logged = now;
    to_log.push_back(state.what.text());
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

std::optional<std::string> run_health::download_given_up(const slow_download& what) {
  auto& state = states_[slow_download_at];
  state.what = say_slow_download(what);
  return std::exchange(state.holds, true) ? std::nullopt : std::optional{state.what.text()};
}

void run_health::caught_up() {
  states_[slow_download_at] = {};
}

bool run_health::holds(std::string_view rule) const {
  auto at = static_cast<std::size_t>(std::ranges::find(rules, rule) - rules.begin());
  return at < rules.size() && states_[at].holds;
}

std::vector<notice> run_health::notices() const {
  std::vector<notice> all;
  for (const auto& state : states_)
    if (state.holds)
      all.push_back(state.what);
  return all;
}

} // namespace waggle
