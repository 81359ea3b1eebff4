#include "runtime/allreduce/part_encoder.hpp"

#include "runtime/averaging/part_reducer.hpp"

namespace waggle {

std::optional<payload> part_encoder::contribution(const part_table::part& part) const {
  if (part.codec == codec_id::none)
    return slice(payload_of(own_), part.offset * sizeof(float), part.count * sizeof(float));
  auto values = std::span{*own_}.subspan(part.offset, part.count);
  if (!all_finite(values))
    return std::nullopt;
  return encoded(part, values);
}

payload part_encoder::encoded(const part_table::part& part, std::span<const float> values) const {
  auto size = encoded_size(part.codec, part.count);
  auto bytes = memory_->take(size);
  encode(part.codec, values, {bytes.get(), size});
  return {std::move(bytes), size};
}

} // namespace waggle
