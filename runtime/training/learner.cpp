#include "runtime/training/learner.hpp"

#include <cstring>

#include "runtime/core/check.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

digest learner::parameters_digest() const {
  const auto& table = tensors();
  sha256_stream hash;
  float_vector values;
  for (std::size_t i = 0; i < table.size() && table[i].what == state_tensor::kind::parameter; ++i) {
    values.resize(table[i].elements());
    read_tensor(i, values);
    hash.add(std::as_bytes(std::span<const float>{values}));
  }
  return hash.finish();
}

std::vector<std::byte> learner::save_state(std::size_t headroom) const {
  const auto& table = tensors();
  auto header = table.header(schema(), optimizer_steps());
  std::vector<std::byte> image(headroom + table.image_bytes());
  std::memcpy(image.data() + headroom, header.data(), header.size());
  WAGGLE_CHECK((headroom + header.size()) % alignof(float) == 0, std::to_string(headroom));
  auto* values = reinterpret_cast<float*>(image.data() + headroom + header.size());
  for (std::size_t i = 0; i < table.size(); ++i)
    read_tensor(i, {values + table.offset(i), static_cast<std::size_t>(table[i].elements())});
  return image;
}

status learner::load_state(byte_span state) {
  const auto& table = tensors();
  auto steps = table.check(state, schema());
  if (!steps)
    return steps.error();
  float_vector values;
  for (std::size_t i = 0; i < table.size(); ++i) {
    auto bytes = table.values_in(state, i);
    values.resize(table[i].elements());
    std::memcpy(values.data(), bytes.data(), bytes.size());
    write_tensor(i, values);
  }
  set_optimizer_steps(*steps);
  return done{};
}

} // namespace waggle
