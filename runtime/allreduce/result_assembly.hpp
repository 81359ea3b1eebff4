#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "runtime/averaging/part_table.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/float_vector.hpp"

namespace waggle {

/// The vector in which a round's result comes together, part by part. Whoever produces a part (a
/// link that reads it, a decoder, a sum) writes it to the part's place if it can, so that it is
/// written once. A place that is in use (a link may still write to it, or it is being sent from)
/// is left alone: such a part gets memory of its own and joins the others at the end.
///
/// Not thread-safe; what was handed out may be written by any thread.
class result_assembly {
public:
  /// @param parts must outlive this.
  /// @param self the member that we are.
  /// @param vector as long as the parts together; its content does not matter.
  result_assembly(const part_table& parts, std::size_t self, std::shared_ptr<float_vector> vector);

  /// The place of a part, for a link that reads the part from a peer. In use until `returned`,
  /// which never comes if the link breaks. Null: it is in use.
  std::shared_ptr<std::byte> lend(std::uint32_t part);
  /// True if `at` is what `lend` gives for this part.
  [[nodiscard]] bool is_place(std::uint32_t part, const void* at) const;
  /// Whether it counts or not: what a link wrote does once it is `put`.
  void returned(std::uint32_t part);
  [[nodiscard]] std::shared_ptr<const float> read_in_place(std::uint32_t part) const;

  /// Where a part may be written that does not come in its place: `parts[part].count` values.
  [[nodiscard]] std::shared_ptr<float> memory_for(std::uint32_t part) const;
  /// The same for a sum of ours, which is going to be sent from there, also after the round. Only
  /// the place of a part whose default owner is here is used: others' parts may have their results
  /// already.
  std::shared_ptr<float> memory_for_sum(std::uint32_t part);
  /// The part is what `values` holds, which one of the above gave.
  void put(std::uint32_t part, std::shared_ptr<const float> values);

  /// The parts are those of other contributors from now on.
  void start_over() { apart_.clear(); }

  /// All parts in one vector. REQUIRES: each was put.
  [[nodiscard]] std::shared_ptr<const float_vector> whole() const;

private:
  struct use {
    bool lent = false;   // a link may write there
    bool summed = false; // a sum was written there, and may be being sent
  };

  [[nodiscard]] float* place(std::uint32_t part) const;
  [[nodiscard]] std::shared_ptr<float> memory_apart(std::uint32_t part) const;

  const part_table& parts_;
  const std::size_t self_;
  std::shared_ptr<float_vector> vector_;
  std::vector<use> uses_;                                       // by part
  std::map<std::uint32_t, std::shared_ptr<const float>> apart_; // parts that are not in their place
};

} // namespace waggle
