#include "runtime/training/strategies/anchored_learner.hpp"

#include "runtime/core/vectorized.hpp"

namespace waggle {

namespace {

WAGGLE_VECTORIZED void step_plainly(float* __restrict anchor, const float* __restrict mean,
                                    std::size_t count, float rate) {
  for (std::size_t i = 0; i < count; ++i)
    anchor[i] -= rate * mean[i];
}

WAGGLE_VECTORIZED void step_with_momentum(float* __restrict anchor, float* __restrict momentum,
                                          const float* __restrict mean, std::size_t count,
                                          float rate, float share) {
  for (std::size_t i = 0; i < count; ++i) {
    momentum[i] = share * momentum[i] + mean[i];
    anchor[i] -= rate * momentum[i];
  }
}

WAGGLE_VECTORIZED void step_of_nesterov(float* __restrict anchor, float* __restrict momentum,
                                        const float* __restrict mean, std::size_t count, float rate,
                                        float share) {
  for (std::size_t i = 0; i < count; ++i) {
    momentum[i] = share * momentum[i] + mean[i];
    anchor[i] -= rate * (mean[i] + share * momentum[i]);
  }
}

WAGGLE_VECTORIZED void move(float* __restrict to, const float* __restrict theta,
                            const float* __restrict anchor, std::size_t count, double share) {
  for (std::size_t i = 0; i < count; ++i)
    to[i] = moved_towards(theta[i], anchor[i], share);
}

} // namespace

void anchored_learner::outer_step(float_vector& anchor, std::span<const float> mean) {
  auto rate = static_cast<float>(rule_.rate);
  auto share = static_cast<float>(rule_.momentum);
  for (const auto& piece : fragments_.pieces(updated_)) {
    auto* to = anchor.data() + piece.in_all;
    const auto* by = mean.data() + piece.in_fragment;
    if (momentum_.empty())
      step_plainly(to, by, piece.length, rate);
    else if (rule_.nesterov)
      step_of_nesterov(to, momentum_.data() + piece.in_all, by, piece.length, rate, share);
    else
      step_with_momentum(to, momentum_.data() + piece.in_all, by, piece.length, rate, share);
  }
}

void anchored_learner::apply(std::span<const float> mean, double lr) {
  settle_drop();
  auto before = begin_move(mean);
  const auto& moved = *moved_[updated_];
  float_vector copied;
  const auto& target = fragments_.count() == 1 ? anchor() : (copied = updated_anchor());
  auto share = rule_.alpha > 0 ? 1 - rule_.alpha : rule_.blends ? lr : 0; // of the anchor in θ
  if (share > 0) {
    float_vector theta(before.size());
    read_theta(moved, theta);
    move(before.data(), theta.data(), target.data(), theta.size(), share);
    below().add_change(moved.indices(), before, theta);
  } else {
    below().add_change(moved.indices(), target, before);
  }
  end_move();
}

} // namespace waggle
