#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "runtime/core/byte_store.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// How values follow what a round has made of them (tensor_store.hpp).
enum class change_rule : std::uint8_t {
  difference, // by the difference of the mean and what was contributed
  square,     // the same, and never below zero: squares, and running variances
  largest     // they take the larger number
};

/// One float32 tensor of a state.
struct state_tensor {
  enum class kind : std::uint8_t {
    parameter = 0,
    statistic, // kept by the optimizer for a parameter, not always of its shape
    square,    // a statistic that is never negative: the optimizer takes its root
    buffer,    // changed by passes instead of updates, as the running mean of a normalization
    metric,    // the last mean of a value that passes report beside the gradient, as the loss
    gradient,  // of this peer's last step (layers.hpp)
    outer,     // kept by an outer optimizer for a parameter (anchored_learner.hpp)
    counter // changed by passes, as a count of batches: numbers of three values (exact_number.hpp)
  };
  std::string name;                 // "head.weight"; for a statistic "exp_avg/head.weight"
  std::vector<std::uint64_t> shape; // none: one value
  kind what = kind::parameter;

  /// The number of values; 0 if that does not fit in 64 bits.
  [[nodiscard]] std::uint64_t elements() const;
  /// How a round's mean changes the values.
  [[nodiscard]] change_rule changes_by() const;
  /// Whether negative values are an error.
  [[nodiscard]] bool never_negative() const { return changes_by() == change_rule::square; }
  /// The tensors of a table stand in the order of these numbers.
  [[nodiscard]] int group() const;

  friend bool operator==(const state_tensor&, const state_tensor&) = default;
};

/// The tensors of a learner's state, in order. In the image of a state (sent by donors, stored in
/// checkpoints) the table precedes the values, little-endian:
///
///     magic "WGGLTB01" (8) | schema (32) | optimizer steps (8) | bytes of the table (8) | the
///     table | zeros, until the offset is a multiple of 64 | the values of all tensors, one after
///     another
///
/// and the table has a row for each tensor:
///
///     kind (1) | bytes of the name (2) | the name | dimensions (1) | the sizes (8 each)
class state_table {
public:
  state_table() = default;
  /// `numbers`: see below. REQUIRES: parameters come first, then those of an outer optimizer,
  /// statistics, buffers and counters, metrics, gradients; every tensor has values.
  explicit state_table(std::vector<state_tensor> tensors, std::size_t numbers = 0);

  [[nodiscard]] const std::vector<state_tensor>& tensors() const { return tensors_; }
  [[nodiscard]] std::size_t size() const { return tensors_.size(); }
  [[nodiscard]] const state_tensor& operator[](std::size_t i) const { return tensors_[i]; }
  /// The index of the first value of tensor i among all values.
  [[nodiscard]] std::uint64_t offset(std::size_t i) const { return offsets_[i]; }
  [[nodiscard]] std::uint64_t parameter_count() const { return parameters_; }
  /// The first values, which peers that share them hold byte for byte at an epoch: the parameters
  /// and what an outer optimizer keeps for them.
  [[nodiscard]] std::uint64_t shared_count() const { return shared_; }
  /// The values of buffers and counters.
  [[nodiscard]] std::uint64_t buffer_count() const { return buffers_; }
  /// Numbers of the optimizer that each contribution of gradients settles for each parameter
  /// (update_terms.hpp); 0: none, and no update_terms. No part of an image.
  [[nodiscard]] std::size_t numbers() const { return numbers_; }
  /// The values of these update_terms.
  [[nodiscard]] std::uint64_t term_count() const { return terms_; }
  [[nodiscard]] std::uint64_t metric_count() const { return metrics_; }
  [[nodiscard]] std::uint64_t value_count() const { return values_; }
  /// The indices of the tensors of these kinds, in order; and these tensors.
  [[nodiscard]] std::vector<std::size_t>
  indices_of(std::initializer_list<state_tensor::kind> kinds) const;
  [[nodiscard]] std::vector<state_tensor>
  tensors_of(std::initializer_list<state_tensor::kind> kinds) const;

  // -- the image ----------------------------------------------------------------------------------

  /// The number of bytes in front of the values.
  [[nodiscard]] std::size_t header_bytes() const;
  [[nodiscard]] std::size_t image_bytes() const;
  [[nodiscard]] std::string header(const digest& schema, std::uint64_t optimizer_steps) const;
  /// The number of optimizer steps, if `image` is a complete image of this table with usable
  /// values. Fails with ec::malformed, schema_mismatch or non_finite.
  [[nodiscard]] result<std::uint64_t> check(byte_span image, const digest& schema) const;
  /// The same for the image that begins at `at` of `from` and ends with it. Fails with
  /// ec::io_error, too.
  [[nodiscard]] result<std::uint64_t> check_in(const byte_source& from, std::uint64_t at,
                                               const digest& schema) const;
  /// The values of tensor i in an image. REQUIRES: `check` succeeded.
  [[nodiscard]] byte_span values_in(byte_span image, std::size_t i) const;

private:
  std::vector<state_tensor> tensors_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t parameters_ = 0;
  std::uint64_t shared_ = 0;
  std::uint64_t buffers_ = 0;
  std::uint64_t metrics_ = 0;
  std::uint64_t values_ = 0;
  std::size_t numbers_ = 0;
  std::uint64_t terms_ = 0;
  std::string rows_; // encoded
};

/// The table of an image of which nothing else is known, e.g. to export it. Fails with
/// ec::malformed for anything that `header` would not write.
result<state_table> read_state_table(byte_span image);
/// The same of the image that begins at `at` of `from`, which needs to have its table only. Fails
/// with ec::io_error, too.
result<state_table> read_table_in(const byte_source& from, std::uint64_t at);
/// Why a state with the table `theirs` is of no use to a learner with `ours`, and with which
/// options it would be. Half a sentence.
std::string how_tables_differ(const state_table& theirs, const state_table& ours);

} // namespace waggle
