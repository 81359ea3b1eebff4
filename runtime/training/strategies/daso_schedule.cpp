#include "runtime/training/strategies/daso_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace waggle {

namespace {

constexpr float no_loss = std::numeric_limits<float>::max();
constexpr std::uint64_t patience = 2; // the third epoch without progress counts
/// After the warm-up, whatever the largest skips are.
constexpr daso_schedule::skips first{4, 1, 1};

bool is_known(float loss) {
  return std::abs(loss) < plateau::known_loss_max;
}

failure malformed(const char* why) {
  return {ec::malformed, std::string{"schedule of DASO: "} + why};
}

} // namespace

/// After which batch round number `round` of an epoch begins.
std::uint64_t daso_schedule::batch_of(std::uint64_t round) const {
  return std::min(round * std::max<std::uint64_t>(now_.global, 1), last_batch());
}

/// After which batch a round is merged that began after the step of `begun`: `wait` batches later,
/// fewer near the end, unless the next batch begins a round. Then that one merges it first.
std::uint64_t daso_schedule::merge_of(std::uint64_t begun) const {
  auto batch = begun + 1;
  for (; batch < last_batch() && batch % now_.global != 0; ++batch)
    if ((batch + 1) % now_.global != 0
        && batch % now_.global == std::min(now_.wait, last_batch() - batch))
      break;
  return batch;
}

daso_schedule::round daso_schedule::next(std::uint64_t later) const {
  round made;
  auto number = round_ + later;
  made.begun = made.merged = batch_of(number);
  made.after =
    number == 0 ? made.begun + 1 : std::max<std::uint64_t>(made.begun - batch_of(number - 1), 1);
  if (now_.global > 0 && made.begun < last_batch()) {
    made.behind = std::min(now_.wait, last_batch() - made.begun);
    made.merged = merge_of(made.begun);
  }
  return made;
}

strategy_phase daso_schedule::phase() const {
  auto shown = [](float loss) {
    return is_known(loss) ? loss : std::numeric_limits<double>::quiet_NaN();
  };
  return {.name = epoch_ < rule_.warmup                     ? "warm-up"
                  : epoch_ >= rule_.epochs - rule_.cooldown ? "cool-down"
                                                            : "cycling",
          .epoch = epoch_,
          .epochs = rule_.endless ? 0 : rule_.epochs,
          .batches = rule_.batches,
          .batches_done = round_ > 0 ? batch_of(round_ - 1) + 1 : 0,
          .next_round = next().after,
          .skips = now_.global,
          .wait = now_.wait,
          .loss = shown(last_loss_),
          .best_loss = shown(best_)};
}

void daso_schedule::end_round(float loss) {
  auto ended = next();
  if (is_known(loss)) {
    sum_ += static_cast<float>(ended.after) * loss;
    weight_ += ended.after;
  }
  ++round_;
  if (ended.begun < last_batch())
    return;
  auto mean = weight_ > 0 ? sum_ / static_cast<float>(weight_) : plateau::unknown_loss;
  round_ = 0;
  sum_ = 0;
  weight_ = 0;
  end_epoch(mean);
}

void daso_schedule::end_epoch(float loss) {
  last_loss_ = is_known(loss) ? loss : plateau::unknown_loss;
  epoch_ = std::min(epoch_ + 1, count_max);
  if (epoch_ < rule_.warmup || epoch_ >= rule_.epochs - rule_.cooldown) {
    now_ = {};
    return;
  }
  if (epoch_ == rule_.warmup)
    now_ = first;
  if (is_stable(loss)) {
    if (now_.global > 1)
      now_ = {std::max<std::uint64_t>(now_.global / rule_.skip_reduction, 1),
              std::max<std::uint64_t>(now_.local / rule_.skip_reduction, 1),
              std::max<std::uint64_t>(now_.wait - 1, 1)};
    else
      now_ = {rule_.max_skips, rule_.max_skips / rule_.local_skip_factor,
              rule_.max_skips / rule_.local_skip_factor};
  }
}

/// Counts an epoch. The best loss stays when the skips change.
bool daso_schedule::is_stable(float loss) {
  if (!is_known(loss))
    return false;
  auto bar = best_ == no_loss ? std::numeric_limits<double>::infinity()
                              : static_cast<double>(best_)
                                  * (best_ < 0 ? 1 + rule_.stability : 1 - rule_.stability);
  if (loss < bar) {
    best_ = loss;
    stale_ = 0;
    return false;
  }
  if (++stale_ <= patience)
    return false;
  stale_ = 0;
  return true;
}

std::array<float, daso_schedule::value_count> daso_schedule::encode() const {
  auto number = [](std::uint64_t n) { return static_cast<float>(n); };
  return {number(epoch_),    number(round_), number(now_.global), number(now_.local),
          number(now_.wait), best_,          number(stale_),      sum_,
          number(weight_),   last_loss_};
}

result<daso_schedule> daso_schedule::decode(const daso_rule& rule, std::span<const float> values) {
  if (values.size() != value_count)
    return malformed("another length");
  daso_schedule out{rule};
  bool whole = true;
  auto number = [&](std::size_t i, std::uint64_t high) -> std::uint64_t {
    auto value = values[i];
    bool fits = value >= 0 && value <= static_cast<float>(high) && std::floor(value) == value;
    whole = whole && fits;
    return fits ? static_cast<std::uint64_t>(value) : 0;
  };
  auto skips_max = std::max(rule.max_skips, first.global);
  out.epoch_ = number(0, count_max);
  out.round_ = number(1, rule.batches - 1);
  out.now_ = {number(2, skips_max), number(3, skips_max), number(4, skips_max)};
  out.stale_ = number(6, patience);
  out.weight_ = number(8, rule.batches);
  if (!whole)
    return malformed("a number that cannot be");
  const auto& now = out.now_;
  bool blocks = now.global == 0;
  if (blocks != (now.local == 0) || blocks != (now.wait == 0))
    return malformed("skips that do not belong together");
  if (out.round_ > 0 && out.batch_of(out.round_ - 1) >= out.last_batch())
    return malformed("more rounds than its epoch has");
  if (!(is_known(values[5]) || values[5] == no_loss) || !std::isfinite(values[7])
      || !(is_known(values[9]) || values[9] == plateau::unknown_loss))
    return malformed("a loss that cannot be");
  out.best_ = values[5];
  out.sum_ = values[7];
  out.last_loss_ = values[9];
  return out;
}

} // namespace waggle
