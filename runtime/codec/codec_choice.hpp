#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/codec/codec_plan.hpp"

namespace waggle {

/// The role of a tensor in the training. `unspecified`: no role was given.
enum class tensor_role : std::uint8_t {
  unspecified,
  activation,
  parameter,
  gradient,
  optimizer,
  buffer,  // not trained, like the running statistics of a normalization
  metric,  // a measured value, like the loss; always sent as it is
  wish,    // a number that the members settle by their median (codec_id::median64)
  counter, // one that only grows, of which they take the largest (codec_id::largest64)
};

/// "unspecified", "activation", …
std::string_view to_string(tensor_role role);

/// The properties that a choice may depend on.
struct tensor_info {
  std::string key;            // its name
  std::uint64_t elements = 0; // of the whole tensor, not of a part
  tensor_role role = tensor_role::unspecified;
};

/// The codec of each tensor of a vector: one for all, or by size, role, index or name; a choice may
/// contain further choices. Plain data: compares, copies, and has a text form for configuration:
///
///   float16                                              one for all
///   size:65536,float16,blockwise8                        below 65536 values, and from there on
///   role:gradient=uniform8,parameter=float16             by role; others get `default`, or none
///   role:buffer=float16,default=uniform8                 buffers get none unless they are named
///   list:float16,none,uniform8                           the first tensor, the second, …
///   map:embedding=uniform8,head=float16                  by name
///   role:gradient=(size:1000,float16,uniform8)           a choice within a choice, in parentheses
struct codec_choice {
  enum class by : std::uint8_t { nothing, size, role, index, key };
  struct item;

  /// One codec for all. Implicit, because a codec is the simplest choice.
  codec_choice(codec_id one = codec_id::none);

  /// The codec of the tensor with this `index`. Fails with ec::bad_config if it is not listed.
  [[nodiscard]] result<codec_id> choose(const tensor_info& tensor, std::size_t index) const;

  by criterion = by::nothing;
  codec_id codec = codec_id::none;
  std::uint64_t threshold = 0; // size: of the whole tensor, in values
  /// size: below the threshold, and from there on. role: in the order of tensor_role, then
  /// "default". key: ascending by name.
  std::vector<item> items;

  friend bool operator==(const codec_choice&, const codec_choice&) = default;

private:
  [[nodiscard]] bool names(const tensor_info& tensor) const;
  [[nodiscard]] result<codec_id> pick(const tensor_info& tensor, std::size_t index) const;
};

struct codec_choice::item {
  std::string name; // of a role or a key; else empty
  codec_choice choice;

  friend bool operator==(const item&, const item&) = default;
};

inline codec_choice::codec_choice(codec_id one) : codec(one) {}

/// Whether a codec with this property may be chosen.
bool uses(const codec_choice& choice, bool (*property)(codec_id));

/// The text form, which parse_codec_choice reads back.
std::string to_string(const codec_choice& choice);

/// Fails with ec::bad_config and a sentence that names the error and the valid forms.
result<codec_choice> parse_codec_choice(std::string_view text);

/// The codecs of a vector that consists of these tensors. Adjacent tensors with the same codec form
/// one run, but gradients, buffers and metrics form runs of their own; empty tensors form none.
/// Fails with ec::bad_config if a tensor is not listed, or for more than codec_runs_max runs.
result<codec_plan> plan_codecs(const codec_choice& choice, std::span<const tensor_info> tensors);

} // namespace waggle
