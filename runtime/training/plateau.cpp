#include "runtime/training/plateau.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace waggle {

namespace {

constexpr float no_loss = std::numeric_limits<float>::max();

failure malformed(const std::string& why) {
  return {ec::malformed, "the state of the schedule plateau: " + why};
}

bool is_known(double loss) {
  return std::abs(loss) < plateau::known_loss_max; // false for NaN
}

/// Whether x is a whole number from 0 to `most`.
bool is_count(float x, std::uint64_t most) {
  return x >= 0 && x <= static_cast<float>(most) && x == std::floor(x);
}

} // namespace

bool plateau::improves(double loss) const {
  return loss < (rule_.absolute ? best_ - rule_.threshold : best_ * (1 - rule_.threshold));
}

bool plateau::lower() {
  auto next = std::max(rate_ * rule_.factor, rule_.floor);
  if (!(rate_ - next > rule_.least_change) || reductions_ == count_max)
    return false;
  rate_ = next;
  ++reductions_;
  return true;
}

bool plateau::advance(float loss) {
  if (!is_known(loss))
    return false;
  if (improves(loss)) {
    best_ = loss;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ <= rule_.patience)
    return false;
  cooldown_left_ = rule_.cooldown;
  bad_epochs_ = 0;
  return lower();
}

std::array<float, plateau::value_count> plateau::encode() const {
  return {std::isinf(best_) ? no_loss : static_cast<float>(best_), static_cast<float>(bad_epochs_),
          static_cast<float>(cooldown_left_), static_cast<float>(reductions_)};
}

result<plateau> plateau::decode(const plateau_rule& rule, std::span<const float> values) {
  plateau out{rule};
  if (values.size() != value_count)
    return malformed("it has " + std::to_string(values.size()) + " values");
  bool fresh = values[0] == no_loss;
  if (!fresh && !is_known(values[0]))
    return malformed("its best loss is none");
  if (!is_count(values[1], rule.patience))
    return malformed("its epochs without progress are more than its patience, or no number");
  if (!is_count(values[2], rule.cooldown))
    return malformed("its cooldown is longer than agreed, or no number");
  if (!is_count(values[3], count_max))
    return malformed("its number of reductions is impossible");
  if (fresh && (values[1] != 0 || values[2] != 0 || values[3] != 0))
    return malformed("it counts epochs without a loss");
  if (!fresh)
    out.best_ = values[0];
  out.bad_epochs_ = static_cast<std::uint64_t>(values[1]);
  out.cooldown_left_ = static_cast<std::uint64_t>(values[2]);
  for (auto left = static_cast<std::uint64_t>(values[3]); left > 0; --left)
    if (!out.lower())
      return malformed("it has more reductions than lead to its floor");
  return out;
}

} // namespace waggle
