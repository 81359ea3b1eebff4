#include "runtime/training/sample_draws.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/core/check.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

/// Whether the samples with the numbers `from` to `until` - 1 in these runs hold.
template <class Runs>
bool hold(const Runs& drawn, std::int64_t from, std::int64_t until) {
  std::int64_t begin = 0;
  return std::ranges::all_of(drawn, [&](const auto& each) {
    auto first = std::exchange(begin, begin + static_cast<std::int64_t>(each.count));
    return each.holds || begin <= from || first >= until;
  });
}

} // namespace

sample_order::sample_order(std::uint64_t samples, const std::string& run, std::uint64_t pass)
  : samples_(samples), half_bits_((static_cast<unsigned>(std::bit_width(samples - 1)) + 1) / 2) {
  std::uint64_t seed = 0;
  for (auto b : sha256("waggle pass/" + std::to_string(pass) + "/" + run).view().first(8))
    seed = seed << 8U | std::to_integer<std::uint64_t>(b);
  random_source random{seed};
  for (auto& key : keys_)
    key = random.next();
}

std::uint64_t sample_order::at(std::uint64_t place) const {
  auto mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    auto left = place >> half_bits_;
    auto right = place & mask;
    for (auto key : keys_) {
      auto mixed = (right + key) * 0x9e37'79b9'7f4a'7c15U; // as splitmix64
      mixed = (mixed ^ mixed >> 30U) * 0xbf58'476d'1ce4'e5b9U;
      mixed ^= mixed >> 31U;
      left = std::exchange(right, left ^ (mixed & mask));
    }
    place = left << half_bits_ | right;
  } while (place >= samples_);
  return place;
}

sample_draws::sample_draws(const peer_id& self, std::uint64_t samples, std::string run)
  : self_(self), run_(std::move(run)), ledger_(samples), order_(samples, run_, 0) {}

bool sample_draws::range_left() const {
  return std::ranges::any_of(own_, [this](std::size_t r) { return next_[r] < ledger_.size_of(r); });
}

std::uint64_t sample_draws::count_ahead() const {
  auto before = in_gradient_ + static_cast<std::int64_t>(offered_);
  std::int64_t drawn = 0;
  for (const auto& each : drawn_)
    drawn += static_cast<std::int64_t>(each.count);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(drawn - before, 0));
}

bool sample_draws::any_left() const {
  std::lock_guard lock{mutex_};
  return range_left();
}

bool sample_draws::has_samples() const {
  std::lock_guard lock{mutex_};
  auto before = in_gradient_ + static_cast<std::int64_t>(offered_);
  return range_left() || std::ranges::any_of(drawn_, [&](const run& each) {
           before -= static_cast<std::int64_t>(each.count);
           return before < 0 && each.holds;
         });
}

std::vector<std::uint64_t> sample_draws::draw(std::uint64_t most,
                                              std::optional<std::uint64_t> of_pass) {
  std::lock_guard lock{mutex_};
  std::vector<std::uint64_t> out;
  if (of_pass && *of_pass != ledger_.passes())
    return out;
  for (auto r : own_) {
    auto begin = next_[r];
    auto count = std::min(most - out.size(), ledger_.size_of(r) - begin);
    if (count == 0)
      continue;
    for (; next_[r] < begin + count; ++next_[r])
      out.push_back(order_.at(ledger_.begin_of(r) + next_[r]));
    if (auto* last = drawn_.empty() ? nullptr : &drawn_.back();
        last != nullptr && last->holds && last->range == r && last->begin + last->count == begin)
      last->count += count;
    else
      drawn_.push_back({r, begin, count});
  }
  return out;
}

/// How many of those ahead the next pass is over, which is offered or put back with this.
std::uint64_t sample_draws::next_claims(std::uint64_t samples) {
  auto next = std::exchange(next_pass_, {});
  return next.claims > 0 && next.samples == samples ? next.claims : samples;
}

/// A pass that was offered has ended. Returns how many of those drawn it was over.
std::uint64_t sample_draws::end_pass(std::uint64_t samples) {
  // The gradient may be taken before. One pass at a time is offered.
  auto claims = offers_ && samples > 0 ? offered_ : samples;
  offered_ -= std::min(offered_, claims);
  return claims;
}

/// Forgets the first passes in the gradient, over `samples`. Returns how many of those drawn they
/// are.
std::uint64_t sample_draws::first_claims(std::uint64_t samples,
                                         std::deque<weighed_pass>* forgotten) {
  if (!offers_)
    return samples;
  std::uint64_t claims = 0;
  for (; samples > 0 && !offered_passes_.empty(); offered_passes_.pop_front()) {
    samples -= std::min(samples, offered_passes_.front().samples);
    claims += offered_passes_.front().claims;
    if (forgotten != nullptr)
      forgotten->push_back(offered_passes_.front());
  }
  return claims;
}

/// Removes `count` drawn samples, from the one with the number `from` on.
std::deque<sample_draws::run> sample_draws::remove(std::int64_t from, std::uint64_t count) {
  WAGGLE_CHECK(from >= 0, "a pass that was never drawn");
  auto skipped = static_cast<std::uint64_t>(from);
  std::deque<run> kept;
  std::deque<run> removed;
  for (auto next : drawn_) {
    for (auto [to, most] : {std::pair{&kept, &skipped}, std::pair{&removed, &count}}) {
      auto part = next;
      part.count = std::min(next.count, *most);
      if (part.count > 0)
        to->push_back(part);
      *most -= part.count;
      next.begin += part.count;
      next.count -= part.count;
    }
    if (next.count > 0)
      kept.push_back(next);
  }
  WAGGLE_CHECK(skipped == 0 && count == 0, "a pass over more samples than were drawn");
  drawn_ = std::move(kept);
  return removed;
}

/// Which drawn samples hold, and where each range is drawn from next. Returns whether all in the
/// gradient hold.
bool sample_draws::look_again() {
  for (std::size_t r = 0; r < sample_ledger::ranges; ++r)
    next_[r] = ledger_.seen_of(r);
  for (const auto& each : given_)
    next_[each.range] += each.count;
  for (auto& each : drawn_) {
    each.holds = each.holds && ledger_.owns(self_, each.range) && each.begin == next_[each.range];
    if (each.holds)
      next_[each.range] += each.count;
  }
  return hold(drawn_, 0, in_gradient_);
}

std::uint64_t sample_draws::ahead() const {
  std::lock_guard lock{mutex_};
  return count_ahead();
}

bool sample_draws::offer(std::uint64_t samples) {
  std::lock_guard lock{mutex_};
  auto claims = next_claims(samples);
  WAGGLE_CHECK(claims <= count_ahead(), "a pass over samples that were not drawn");
  auto from = in_gradient_ + static_cast<std::int64_t>(offered_);
  if (hold(drawn_, from, from + static_cast<std::int64_t>(claims))) {
    offered_ += claims;
    offers_ = true;
    offered_passes_.push_back({samples, claims});
    return true;
  }
  remove(from, claims);
  look_again();
  return false;
}

void sample_draws::put_back(std::uint64_t samples) {
  std::lock_guard lock{mutex_};
  remove(in_gradient_ + static_cast<std::int64_t>(offered_),
         std::min(next_claims(samples), count_ahead()));
  look_again();
}

void sample_draws::weigh(std::uint64_t samples, std::uint64_t claims) {
  WAGGLE_CHECK(samples >= claims && claims > 0, "a pass that weighs less than it claims");
  std::lock_guard lock{mutex_};
  next_pass_ = {samples, claims};
}

bool sample_draws::pass_ended(std::uint64_t samples) {
  std::lock_guard lock{mutex_};
  in_gradient_ += static_cast<std::int64_t>(end_pass(samples));
  return hold(drawn_, 0, in_gradient_);
}

void sample_draws::refuse(std::uint64_t samples, std::uint64_t lost) {
  std::lock_guard lock{mutex_};
  auto claims = end_pass(samples);
  std::uint64_t lost_claims = offers_ ? 0 : lost;
  if (samples > 0 && !offered_passes_.empty())
    offered_passes_.pop_back();
  for (; lost > 0 && !offered_passes_.empty(); offered_passes_.pop_back()) {
    lost -= std::min(lost, offered_passes_.back().samples);
    lost_claims += offered_passes_.back().claims;
  }
  in_gradient_ -= static_cast<std::int64_t>(lost_claims);
  for (const auto& each : remove(in_gradient_, claims + lost_claims)) {
    auto at = std::ranges::find(own_, each.range);
    if (at != own_.end())
      std::rotate(at, at + 1, own_.end());
  }
  look_again();
}

void sample_draws::drop(std::uint64_t samples) {
  std::lock_guard lock{mutex_};
  auto claims = first_claims(samples);
  in_gradient_ -= static_cast<std::int64_t>(claims);
  remove(0, claims);
  look_again();
}

sample_draws::taken sample_draws::take(std::uint64_t samples) {
  std::lock_guard lock{mutex_};
  given_passes_.clear();
  auto claims = first_claims(samples, &given_passes_);
  in_gradient_ -= static_cast<std::int64_t>(claims);
  taken out;
  given_ = remove(0, claims);
  for (const auto& each : given_) {
    out.counts[each.range] += each.count;
    out.holds = out.holds && each.holds;
  }
  return out;
}

void sample_draws::take_back() {
  std::lock_guard lock{mutex_};
  given_.clear();
  look_again();
}

void sample_draws::return_taken() {
  std::lock_guard lock{mutex_};
  for (const auto& each : given_)
    in_gradient_ += static_cast<std::int64_t>(each.count);
  drawn_.insert(drawn_.begin(), given_.begin(), given_.end());
  offered_passes_.insert(offered_passes_.begin(), given_passes_.begin(), given_passes_.end());
  given_.clear();
  given_passes_.clear();
  look_again();
}

bool sample_draws::follow(const sample_ledger& now) {
  std::lock_guard lock{mutex_};
  bool next_pass = now.passes() != ledger_.passes();
  ledger_ = now;
  given_.clear();
  if (next_pass) {
    order_ = sample_order{now.samples(), run_, now.passes()};
    for (auto& each : drawn_)
      each.holds = false;
  }
  own_.clear();
  for (std::size_t r = 0; r < sample_ledger::ranges; ++r)
    if (now.owns(self_, r))
      own_.push_back(r);
  return look_again();
}

sample_ledger sample_draws::ledger() const {
  std::lock_guard lock{mutex_};
  return ledger_;
}

std::uint64_t sample_draws::passes() const {
  std::lock_guard lock{mutex_};
  return ledger_.passes();
}

} // namespace waggle
