#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/filling.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/core/result.hpp"
#include "runtime/training/partial_gradient.hpp"

namespace waggle {

/// The values of a tensor of a loop, where they are. Null: zeros.
struct offered_tensor {
  const float* values = nullptr;
  std::size_t count = 0;
};

/// The gradient of a loop that stays where the loop computes it, such as on a GPU, also while it
/// adds up. Called by the loop's thread.
class device_gradient {
public:
  virtual ~device_gradient() = default;
  /// The sum becomes `keep` times itself plus `times` the gradient of the last pass. `keep` of 0:
  /// there is no sum yet.
  virtual void add_gradient(float keep, float times) = 0;
  /// Writes the sum to `out`; of a loop whose gradients are not `summed`, what backward passes
  /// left.
  virtual void read_gradient(std::span<float> out) const = 0;
  virtual void write_gradient(std::span<const float> sum) = 0;
};

/// Whether all values are finite.
bool all_finite(std::span<const offered_tensor> tensors);

/// What happens to the gradients that a loop offers until they are taken.
enum class gradient_use : std::uint8_t {
  summed = 0, // they are added up in a vector of ours
  in_place,   // the loop adds up in its own buffers (--reuse-grad-buffers); taken during an offer
  lent        // each is taken during its offer, or where it is: strategies that step locally
};

/// The mean gradient, over all samples, of what a loop has offered since it was last taken or
/// dropped. Thread-safe.
class offered_gradients {
public:
  /// The numbers of values. `others`: what stands behind the gradient: the buffers, and the
  /// update_terms, of which the last `present` values say which parameters have a gradient.
  /// `on_device`: the gradient is a device_gradient. It can only be taken during an offer.
  offered_gradients(std::size_t parameters, std::size_t others, gradient_use use,
                    std::size_t present = 0, bool on_device = false);

  [[nodiscard]] gradient_use use() const { return use_.load(); }
  [[nodiscard]] bool on_device() const { return on_device_; }
  /// Lends them from now on. REQUIRES: nothing was offered yet.
  void lend() { use_ = gradient_use::lent; }

  struct added {
    bool counts = true; // it was added
    bool finite = true;
    std::uint64_t lost = 0; // micro_step::lost
    bool taken = false;     // micro_step::taken
    bool changed = false;   // so it does not count: see write_early
  };
  /// Adds the mean gradient over `samples` samples, which is followed by the others: `tensors` has
  /// as many values as both together. A parameter stays present until the mean is taken. Each value
  /// is read once. If one is not finite, nothing is added; unless it is found after a part was
  /// added to earlier gradients, which then are lost, too. With `in_place`, looks at no value, and
  /// `passes` is the number of gradients that add up in `tensors`: exactly those that were neither
  /// taken nor dropped, otherwise all are lost. The values stay as they are until `take_away`.
  /// `merges`: learner::mean_gradient::merges of the buffers. With `device`, no value of the
  /// gradient is read, and a `summed` or `lent` one is finite.
  added add(std::span<const offered_tensor> tensors, std::uint64_t samples, std::uint64_t passes,
            std::uint64_t merges, device_gradient* device = nullptr);

  // -- while a pass computes it (learner::accumulate_in_buckets): by the loop's thread, and only if
  // gradients are `summed` and on no device

  /// One over so many samples can be taken from now on: `to` is written until it is added. Returns
  /// false if there are samples of earlier passes.
  [[nodiscard]] bool begin_early(std::uint64_t samples, std::uint64_t merges,
                                 std::shared_ptr<float_vector> to);
  [[nodiscard]] bool is_early() const { return early_.has_value(); }
  /// The values from `begin` on, as `add` will have them: if it has others, the gradient fails, and
  /// if it was taken, it counts nowhere. So it does if values are written again.
  void write_early(std::size_t begin, const offered_tensor& from);
  /// There will be no such gradient. What `add` gets next is no part of it: if the former was
  /// taken, the latter does not count either, because the pass has given one.
  void fail_early();
  struct early {
    std::shared_ptr<float_vector> values;
    std::shared_ptr<filling> fills;
    std::uint64_t samples = 0;
    std::uint64_t merges = 0;
  };
  /// Any thread: takes it, if there is one that was neither taken nor dropped.
  [[nodiscard]] std::optional<early> take_early();

  /// The loop goes on, and changes what it has offered.
  void take_away();

  struct taken {
    std::uint64_t samples = 0;
    std::uint64_t merges = 0;
  };
  /// Writes the mean and the newest of the others to `out`, and forgets the gradients. Zeros, and
  /// no samples: there are none, the loop has taken them away, or with `in_place` their sum is not
  /// finite. Without `device` although the gradient is one: the loop has taken them away.
  taken take_mean(std::span<float> out, const device_gradient* device = nullptr);
  /// Returns the number of samples that are forgotten.
  std::uint64_t drop();
  [[nodiscard]] std::uint64_t samples() const { return samples_.load(); }
  /// With `in_place`: of how many samples each gradient must be; 0: there is none yet.
  [[nodiscard]] std::uint64_t samples_each() const;
  /// With `in_place`: whether the last sum that was taken was not finite. Asked once.
  [[nodiscard]] bool was_not_finite();

  // -- over a restart: see learner

  /// The position after the next gradient that is added or passed over.
  void keep(std::string position);
  /// The loop has computed one that is not finite. Returns whether a part of it was taken.
  bool pass_over();
  [[nodiscard]] std::string position() const;
  [[nodiscard]] std::string taken_position() const;
  void load_position(std::string position);
  /// Without samples unless `summed`.
  [[nodiscard]] partial_gradient copy(const device_gradient* device = nullptr) const;
  status load(const partial_gradient& partial, device_gradient* device = nullptr);

private:
  struct early_gradient {
    early given;
    std::set<std::size_t> written{}; // where the tensors begin that are there
    bool gone = false;               // it was taken or dropped
  };

  static added end_early(early_gradient& early, std::span<const offered_tensor> tensors,
                         std::uint64_t samples);
  void add_to(device_gradient& device, std::uint64_t samples);
  [[nodiscard]] added add_to_sum(std::span<const offered_tensor> gradient, std::uint64_t samples);
  [[nodiscard]] std::span<const offered_tensor> gradient(std::span<const offered_tensor> all) const;

  const std::size_t parameters_;
  const std::size_t other_values_;
  const std::size_t present_values_;
  const bool on_device_;
  std::atomic<gradient_use> use_;
  mutable std::mutex mutex_; // guards everything below
  std::vector<float> sum_; // Σ b·∇; while `single_`, the one gradient, unscaled; or on the device
  bool single_ = false;    // multiplying and dividing it would change its bits
  std::vector<float> others_;           // of the last gradient
  std::uint64_t merges_ = 0;            // which the buffers among them contain
  std::optional<early_gradient> early_; // changed by the loop's thread alone, but for `gone`
  std::vector<offered_tensor> lent_;    // until `take_away`
  std::uint64_t passes_ = 0;            // whose gradients add up in place
  std::uint64_t poisoned_ = 0; // samples of a sum that could not be taken, until they are reported
  bool not_finite_ = false;
  std::string next_position_;  // what `keep` got
  std::string position_;       // after the last gradient
  std::string taken_position_; // when gradients were taken or dropped last
  std::atomic<std::uint64_t> samples_{0};
};

} // namespace waggle
