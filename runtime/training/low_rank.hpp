#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/codec/two_round_coding.hpp"
#include "runtime/core/random.hpp"
#include "runtime/training/state_table.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

/// A tensor as a matrix.
struct matrix_shape {
  std::uint64_t rows = 1;
  std::uint64_t columns = 1;

  friend bool operator==(const matrix_shape&, const matrix_shape&) = default;
};

/// The shape that is left after merging, again and again, the adjacent pair of axes with the
/// smallest product (the first of several), until two are left: {64, 3, 7, 7} is {64, 147}.
/// REQUIRES: at least two axes.
matrix_shape flattened(std::span<const std::uint64_t> shape);

/// Whether a tensor of this shape is averaged at this rank: it is a matrix, and rank · (rows +
/// columns) values are at most 1 − least_saving of its own. So the rank of a tensor that is
/// compressed is always less than its rows and its columns.
bool is_compressed(std::span<const std::uint64_t> shape, const lane_coding& how);

/// Averages gradients at a low rank (PowerSGD, arXiv:1905.13727, Algorithm 1): a tensor is a matrix
/// G of m × n values, and a group averages two factors of r · m and r · n values instead. On each
/// peer, with the residual M of its earlier gradients, and a matrix Q that is equal on all peers:
///
///     P  = (M + G) Q         the first round averages P
///     P̂  = orthonormal columns of the mean of P
///     Q' = (M + G)ᵀ P̂        the second round averages Q', and all tensors that are not compressed
///     Ĝ  = P̂ (mean of Q')ᵀ   is the result: the projection of the mean of M + G onto P̂
///     M  = M + G − P̂ Q'ᵀ     with this peer's own Q'
///     Q  = the mean of Q', each column scaled to length 1
///
/// M loses what this peer has given, not the mean as in the paper: README.md says why. A peer
/// without samples gives nothing and keeps M. One that does not know Q uses the first one. A column
/// of Q that has become zero is replaced by the one that it began with, or it would stay zero; the
/// others have length 1, because the square of a small gradient would vanish in 16 bits.
///
/// Tensors that are not compressed are averaged as they are; for these the residual is the error of
/// a lossy codec. In memory: one residual of as many values as the compressed tensors, and another
/// one of the others only if their codec is lossy; Q and P̂.
class low_rank final : public two_round_coding {
public:
  /// For the gradients, and what is averaged with them, of `state`. Null if none would be
  /// compressed. `run`: its first Q is a function of this name and of the parameter's index.
  static std::shared_ptr<low_rank> make(const state_table& state, const lane_coding& how,
                                        std::string_view run);

  [[nodiscard]] const std::vector<tensor_info>& first_tensors() const override { return first_; }
  [[nodiscard]] const std::vector<tensor_info>& second_tensors() const override { return second_; }

  void write_first(std::span<const float> values, std::span<float> first) override;
  void write_second(std::span<const float> values, std::span<const float> mean_of_first,
                    std::span<float> second) override;
  void finish(std::span<const float> values, std::span<const float> mean_of_second,
              std::span<const float> carried, std::span<float> result) override;
  void finish_alone(std::span<const float> values, std::span<float> result) override;
  void commit() override;
  void forget() override;

  /// What the rounds have not carried yet of this peer's gradients, for each value of the vector.
  [[nodiscard]] std::vector<float> residual() const;
  /// The factors Q, one after another.
  [[nodiscard]] std::span<const float> factors() const { return kept_.factors; }

private:
  struct matrix {
    std::size_t offset = 0; // in the vector
    std::size_t rows = 0;   // 0: not compressed
    std::size_t columns = 0;
    std::size_t first = 0;    // offset of P in the first vector, and of P̂ in basis_
    std::size_t second = 0;   // offset of Q' (or of the values) in the second vector
    std::size_t residual = 0; // offset in residual, or in rest
    std::size_t factor = 0;   // offset of Q in factors
    std::uint64_t index = 0;  // in the vector's tensors

    [[nodiscard]] bool compressed() const { return rows > 0; }
    [[nodiscard]] std::size_t elements() const { return rows == 0 ? columns : rows * columns; }
  };

  low_rank(std::uint32_t rank, std::string_view run);
  void add_compressed(const state_tensor& tensor, std::uint64_t index);
  void add_whole(const tensor_info& values, std::uint64_t index);
  [[nodiscard]] matrix next_place(std::uint64_t index) const;
  void add(const matrix& next);
  void write_first_column(const matrix& of, std::size_t j, std::span<float> column) const;
  void keep_factor(const matrix& of, std::span<const float> mean_of_second);
  void keep_rest(const matrix& of, std::span<const float> values, std::span<const float> carried);

  std::size_t rank_;
  random_source random_;
  std::vector<matrix> tensors_;
  std::vector<tensor_info> first_;
  std::vector<tensor_info> second_;
  std::size_t values_ = 0;
  std::size_t rest_values_ = 0;
  /// What is kept from one vector to the next.
  struct memory {
    std::vector<float> residual; // of the compressed tensors; finite
    std::vector<float> rest;     // of the others; empty: zeros
    std::vector<float> factors;  // Q of each, column by column
  };
  memory kept_;
  std::optional<memory> next_; // after `finish`: what `commit` makes of it
  std::vector<float> basis_;   // P̂ of each, column by column
};

} // namespace waggle
