// The image of a state, as a donor sends it and a checkpoint holds it: read by its own table, and
// checked against the table of a learner that somebody else has written.

#include <cstdint>
#include <cstdlib>

#include "runtime/training/state_table.hpp"

using namespace waggle;

namespace {

/// The learner's own table, as in the corpus.
const state_table& own_table() {
  using kind = state_tensor::kind;
  static const state_table table{{{"embedding.weight", {4, 3}, kind::parameter},
                                  {"scale", {}, kind::parameter},
                                  {"exp_avg/scale", {}, kind::statistic},
                                  {"exp_avg_sq/scale", {}, kind::square}}};
  return table;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_span image{reinterpret_cast<const std::byte*>(data), size};
  auto steps = own_table().check(image, {});
  auto read = read_state_table(image);
  // What a learner takes can also be read by who knows nothing of it.
  if (steps && (!read || read->tensors() != own_table().tensors()))
    std::abort();
  if (!read)
    return 0;
  if (read->image_bytes() != size || read->parameter_count() > read->value_count())
    std::abort();
  for (std::size_t i = 0; i < read->size(); ++i) {
    auto values = read->values_in(image, i);
    if (values.size() != (*read)[i].elements() * sizeof(float)
        || values.data() + values.size() > image.data() + image.size())
      std::abort();
  }
  // A table that was read is written as it was, but for what `header` leaves 0.
  auto again = read->header({}, 0);
  if (again.size() != read->header_bytes())
    std::abort();
  return 0;
}
