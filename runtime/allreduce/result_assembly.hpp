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

/// The vector in which a round's result is assembled, part by part. The producer of a part (a link
/// that reads it, a decoder, a sum) writes it directly to the part's place if possible, so that it
/// is written only once. A place that is in use (a link may still write to it, or it is being sent)
/// is not touched: such a part gets memory of its own and is copied into the vector at the end.
///
/// Not thread-safe; the returned memory may be written by any thread.
class result_assembly {
public:
  /// @param parts must outlive this.
  /// @param self this member's index.
  /// @param vector as long as the parts together; its content does not matter.
  result_assembly(const part_table& parts, std::size_t self, std::shared_ptr<float_vector> vector);

  /// The place of a part, for a link that reads the part from a peer. In use until `returned`,
  /// which is never called if the link breaks. Null: it is in use.
  std::shared_ptr<std::byte> lend(std::uint32_t part);
  /// True if `at` is what `lend` gives for this part.
  [[nodiscard]] bool is_place(std::uint32_t part, const void* at) const;
  /// The link has finished writing. The bytes count as the part only after `put`.
  void returned(std::uint32_t part);
  [[nodiscard]] std::shared_ptr<const float> read_in_place(std::uint32_t part) const;

  /// Memory for a part that is not written in its place: `parts[part].count` values.
  [[nodiscard]] std::shared_ptr<float> memory_for(std::uint32_t part) const;
  /// The same for a sum of ours, which will be sent from that memory, possibly after the round has
  /// ended. The place in the vector is used only for parts whose default owner is this member: for
  /// other parts the result may be there already.
  std::shared_ptr<float> memory_for_sum(std::uint32_t part);
  /// Sets the part to `values`, which one of the functions above returned.
  void put(std::uint32_t part, std::shared_ptr<const float> values);

  /// These two REQUIRE: it was put.
  [[nodiscard]] std::shared_ptr<const float> values(std::uint32_t part) const;
  [[nodiscard]] payload bytes(std::uint32_t part) const;

  /// The set of contributors has changed: drops the parts that are not in their place.
  void start_over() { apart_.clear(); }

  /// All parts in one vector. REQUIRES: each was put.
  [[nodiscard]] std::shared_ptr<const float_vector> whole() const;

private:
  struct use {
    bool lent = false;   // a link may write there
    bool summed = false; // a sum was written there, and may be in transmission
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
