#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "runtime/core/check.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/core/result.hpp"
#include "runtime/training/fragments.hpp"
#include "runtime/training/partial_gradient.hpp"
#include "runtime/training/plateau.hpp"

namespace waggle {

constexpr std::size_t loss_values = 2;

/// The losses of samples, of which some may not be known: a loop does not have to give one.
struct known_losses {
  double sum = 0;
  double samples = 0; // that it is of

  void add(double loss, std::uint64_t of) {
    if (!(std::abs(loss) < plateau::known_loss_max))
      return;
    sum += loss * static_cast<double>(of);
    samples += static_cast<double>(of);
  }
  void add(const known_losses& others) {
    sum += others.sum;
    samples += others.samples;
  }
  /// As a contribution of `of` samples: its mean over all peers has their mean loss (loss_in),
  /// whoever of them knows none.
  [[nodiscard]] std::array<float, loss_values> per_sample(std::uint64_t of) const {
    auto all = static_cast<double>(of);
    return {static_cast<float>(sum / all), static_cast<float>(samples / all)};
  }
};

/// The mean loss that such means have; plateau::unknown_loss if nobody has given one.
inline float loss_in(const std::array<float, loss_values>& means) {
  auto loss = means[0] / means[1];
  return means[1] > 0 && std::abs(loss) < plateau::known_loss_max ? loss : plateau::unknown_loss;
}

/// What a peer's parameters θ have learned beyond the run's anchor: its samples and losses, and the
/// copy of θ, or of one of its fragments, that a round averages. None flies, or one:
///
///     none ── depart ─► one ── land (merged), take_back (in no update), reload ─► none
///
/// `drop` forgets samples. Their steps stay in θ until `undo` says where it goes back to: the copy,
/// and wherever there is none, the anchor. Until then nothing departs.
///
/// Not thread-safe, but for `samples`.
class progress_in_flight {
public:
  /// θ has the `parameters`, and a copy `padding` zeros behind those of its fragment.
  /// `with_losses`: a restart keeps the losses, too.
  progress_in_flight(fragments parameters, std::size_t padding, bool with_losses)
    : parameters_(std::move(parameters)), padding_(padding), with_losses_(with_losses) {}

  struct copy {
    float_vector theta;
    std::size_t fragment = 0;
    std::shared_ptr<const float_vector> sent; // what the round averages; null: not known any more
    std::uint64_t samples = 0;
    known_losses losses;
  };

  /// Of the steps that no round has; any thread.
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  [[nodiscard]] bool is_dropped() const { return dropped_; }
  [[nodiscard]] bool may_depart() const { return samples_ > 0 && !dropped_ && !flying_; }
  [[nodiscard]] bool flies_other_than(std::size_t fragment) const {
    return flying_ && flying_->fragment != fragment;
  }
  /// That of the data when samples were last taken or dropped (learner).
  [[nodiscard]] const std::string& taken_position() const { return taken_position_; }

  /// A step with so many samples, their mean loss, and the position behind them.
  void add(std::uint64_t samples, double loss, std::string position) {
    samples_ += samples;
    learned_ = true;
    losses_.add(loss, samples);
    position_ = std::move(position);
  }
  const copy& depart(float_vector theta, std::shared_ptr<const float_vector> sent,
                     std::size_t fragment = 0) {
    WAGGLE_CHECK(may_depart(), std::to_string(samples_));
    taken_position_ = position_;
    flying_ = copy{std::move(theta), fragment, std::move(sent), samples_.exchange(0),
                   std::exchange(losses_, {})};
    return *flying_;
  }
  std::optional<copy> land() { return std::exchange(flying_, std::nullopt); }
  /// Returns the number of samples, which count again.
  std::uint64_t take_back() {
    auto back = land();
    if (!back)
      return 0;
    auto samples = back->samples;
    samples_ += samples;
    losses_.add(back->losses);
    if (dropped_) // only the steps after it are undone
      back_to_ = std::move(back);
    return samples;
  }
  /// Returns the number of samples.
  std::uint64_t drop(std::string position) {
    dropped_ = dropped_ || samples_ > 0 || (learned_ && parameters_.count() > 1);
    back_to_.reset();
    taken_position_ = position_ = std::move(position);
    losses_ = {};
    return samples_.exchange(0);
  }
  /// Nothing if nothing was dropped.
  std::optional<float_vector> undo(const float_vector& anchor) {
    if (!std::exchange(dropped_, false))
      return std::nullopt;
    learned_ = back_to_ || flying_;
    auto to = std::exchange(back_to_, std::nullopt);
    return with_copy(to ? &*to : flying_ ? &*flying_ : nullptr, anchor);
  }

  /// A state with another anchor than `before` is loaded: what of θ stays, and moves with the
  /// anchor.
  struct kept {
    bool any = false;                 // otherwise θ becomes the anchor
    std::optional<float_vector> from; // θ without the steps that were dropped; nothing: as it is
  };
  kept reload(const float_vector& before) {
    flying_.reset();
    bool dropped = std::exchange(dropped_, false);
    if (auto to = std::exchange(back_to_, std::nullopt))
      return {true, with_copy(&*to, before)};
    // Whose samples a round has, the other fragments have learned from, too.
    learned_ = !dropped && (samples_ > 0 || (learned_ && parameters_.count() > 1));
    return {learned_, std::nullopt};
  }

  // -- over a restart: θ, the copy if one flies, the losses of both if they are kept

  /// Nothing if θ is the anchor and no copy flies. It may differ from it without a step, too: a
  /// merge moves it only a part of the way to the anchor where strategies say so.
  [[nodiscard]] partial_gradient save(std::span<const float> theta,
                                      std::span<const float> anchor) const {
    float_vector undone;
    if (dropped_) // what `undo` would return
      theta = undone = with_copy(back_to_ ? &*back_to_ : flying_ ? &*flying_ : nullptr, anchor);
    theta = theta.first(parameters_.values());
    if (samples_ == 0 && !flying_ && std::equal(theta.begin(), theta.end(), anchor.begin()))
      return {};
    auto sum = std::make_shared<float_vector>(
      theta.size() + (flying_ ? values_of_copy(flying_->fragment) : 0) + values_of_losses());
    auto at = std::copy(theta.begin(), theta.end(), sum->begin());
    if (flying_)
      at = std::copy_n(flying_->theta.begin(), parameters_.values(flying_->fragment), at);
    if (flying_ && parameters_.count() > 1)
      *at = static_cast<float>(flying_->fragment);
    const known_losses losses[2] = {losses_, flying_ ? flying_->losses : known_losses{}};
    if (with_losses_)
      std::memcpy(sum->data() + sum->size() - values_of_losses(), losses, sizeof losses);
    // No loss is scaled here: the place of its scale holds the samples of the copy.
    return {std::move(sum), samples_, 0, flying_ ? static_cast<double>(flying_->samples) : 1};
  }
  /// Returns θ. Fails with ec::malformed, and changes nothing, if it has another length.
  result<std::span<const float>> load(const partial_gradient& from, std::string position) {
    auto values = from.sum ? std::span<const float>{*from.sum} : std::span<const float>{};
    known_losses losses[2];
    if (with_losses_ && values.size() > values_of_losses()) {
      std::memcpy(static_cast<void*>(losses), values.last(values_of_losses()).data(),
                  sizeof losses);
      values = values.first(values.size() - values_of_losses());
    }
    auto theta = values.first(std::min(values.size(), parameters_.values()));
    auto behind = values.subspan(theta.size());
    auto fragment = fragment_in(behind);
    bool flies = fragment && behind.size() == values_of_copy(*fragment);
    auto possible = [](const known_losses& x) {
      return std::isfinite(x.sum) && std::isfinite(x.samples) && x.samples >= 0;
    };
    if (!std::ranges::all_of(losses, possible) || theta.size() != parameters_.values()
        || (!behind.empty() && !flies))
      return failure{ec::malformed, "another length"};
    samples_ = from.samples;
    learned_ = true;
    losses_ = losses[0];
    position_ = std::move(position);
    if (flies) {
      auto own = behind.first(parameters_.values(*fragment));
      flying_ = copy{{own.begin(), own.end()},
                     *fragment,
                     nullptr,
                     static_cast<std::uint64_t>(std::clamp(from.scale, 0.0, 0x1p40)),
                     losses[1]};
      flying_->theta.resize(own.size() + padding_);
    }
    return theta;
  }

private:
  [[nodiscard]] std::size_t values_of_losses() const {
    return with_losses_ ? 2 * sizeof(known_losses) / sizeof(float) : 0;
  }

  /// θ as it is in the copy, and elsewhere in the anchor. @param from null: the anchor.
  [[nodiscard]] float_vector with_copy(const copy* from, std::span<const float> anchor) const {
    if (from != nullptr && parameters_.count() == 1)
      return from->theta;
    float_vector theta(anchor.begin(), anchor.end());
    if (from != nullptr)
      parameters_.scatter(from->fragment, from->theta, theta);
    return theta;
  }
  /// Behind θ in what `save` returns: the copy, and which fragment it is of.
  [[nodiscard]] std::size_t values_of_copy(std::size_t fragment) const {
    return parameters_.values(fragment) + (parameters_.count() > 1 ? 1 : 0);
  }
  [[nodiscard]] std::optional<std::size_t> fragment_in(std::span<const float> copy) const {
    if (copy.empty())
      return std::nullopt;
    auto last = parameters_.count() > 1 ? copy.back() : 0;
    bool possible = last >= 0 && last < static_cast<float>(parameters_.count());
    return possible ? std::optional{static_cast<std::size_t>(last)} : std::nullopt;
  }

  const fragments parameters_;
  const std::size_t padding_;
  const bool with_losses_;
  std::atomic<std::uint64_t> samples_{0};
  known_losses losses_;
  std::optional<copy> flying_;
  bool learned_ = false; // there were steps since θ was the anchor
  bool dropped_ = false;
  std::optional<copy> back_to_; // with dropped_: the copy that was taken back since
  std::string position_;        // after the last step
  std::string taken_position_;
};

} // namespace waggle
