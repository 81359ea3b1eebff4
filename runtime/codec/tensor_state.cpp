// magic, metadata (with its size), number of tensors, then for each: name (with its size), type,
// number of dimensions, dimensions; then the values of all, each tensor's from a multiple of eight
// bytes on.

#include "runtime/codec/tensor_state.hpp"

#include <algorithm>
#include <set>

#include "runtime/core/byte_io.hpp"

namespace waggle {

namespace {

constexpr std::uint32_t magic = 0x31535457; // "WTS1"
constexpr std::size_t metadata_bytes_max = 64_KiB;
constexpr std::size_t tensors_max = 1U << 16U;
constexpr std::size_t name_bytes_max = 1024;
constexpr std::size_t dimensions_max = 64;
constexpr std::uint64_t elements_max = std::uint64_t{1} << 40U;

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

} // namespace

result<payload> encode_state(const averager_state& state) {
  if (state.metadata.size() > metadata_bytes_max)
    return failure{ec::oversize, "the metadata have " + std::to_string(state.metadata.size())
                                   + " bytes: they may have 65536"};
  if (state.tensors.size() > tensors_max)
    return failure{ec::oversize, "there are more than 65536 tensors"};
  byte_writer head;
  head.put(magic).put_text<std::uint32_t>(state.metadata);
  head.put(static_cast<std::uint32_t>(state.tensors.size()));
  std::set<std::string_view> names;
  std::size_t values = 0;
  for (const auto& tensor : state.tensors) {
    if (tensor.name.empty() || tensor.name.size() > name_bytes_max)
      return failure{ec::bad_config, "the name of a tensor has 1 to 1024 bytes"};
    if (!names.insert(tensor.name).second)
      return failure{ec::bad_config, "two tensors have the name '" + tensor.name + "'"};
    auto count = tensor.elements();
    if (count >= elements_max || tensor.shape.size() > dimensions_max)
      return failure{ec::wrong_shape,
                     "tensor '" + tensor.name + "' has too many values or dimensions"};
    if (count > 0 && tensor.values == nullptr)
      return failure{ec::wrong_shape, "tensor '" + tensor.name + "' has no values"};
    head.put_text<std::uint16_t>(tensor.name);
    head.put(static_cast<std::uint8_t>(tensor.type), static_cast<std::uint8_t>(tensor.shape.size()),
             tensor.shape);
    values += padded(count * size_of(tensor.type));
  }
  auto begin = padded(head.text().size());
  auto all = std::make_shared<std::vector<std::byte>>(begin + values);
  std::ranges::copy(as_byte_span(head.text()), all->begin());
  for (auto at = begin; const auto& tensor : state.tensors) {
    auto size = tensor.elements() * size_of(tensor.type);
    if (size > 0)
      std::memcpy(all->data() + at, tensor.values, size);
    at += padded(size);
  }
  return payload_of(std::shared_ptr<const std::vector<std::byte>>{std::move(all)});
}

result<averager_state> decode_state(std::shared_ptr<std::vector<std::byte>> bytes) {
  const failure malformed{ec::malformed, "these bytes are not the state of an averager"};
  byte_reader in{byte_span{*bytes}};
  averager_state state;
  if (in.get<std::uint32_t>() != magic)
    return malformed;
  auto metadata = in.get<std::uint32_t>();
  if (metadata > metadata_bytes_max)
    return malformed;
  state.metadata = in.get_raw(metadata);
  auto count = in.get<std::uint32_t>();
  if (!in.ok() || count > tensors_max)
    return malformed;
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < count; ++i) {
    averaged_tensor one;
    one.name = in.get_text<std::uint16_t>();
    auto type = in.get<std::uint8_t>();
    auto dimensions = in.get<std::uint8_t>();
    if (!in.ok() || one.name.empty() || one.name.size() > name_bytes_max
        || !names.insert(one.name).second || type > static_cast<int>(tensor_type::bfloat16)
        || dimensions > dimensions_max)
      return malformed;
    one.type = static_cast<tensor_type>(type);
    for (int d = 0; d < dimensions; ++d)
      one.shape.push_back(in.get<std::uint64_t>());
    if (!in.ok() || one.elements() >= elements_max)
      return malformed;
    state.tensors.push_back(std::move(one));
  }
  auto at = padded(bytes->size() - in.left());
  for (auto& tensor : state.tensors) {
    auto size = padded(tensor.elements() * size_of(tensor.type));
    if (at > bytes->size() || size > bytes->size() - at)
      return malformed;
    tensor.values = size > 0 ? bytes->data() + at : nullptr;
    at += size;
  }
  if (at != bytes->size())
    return malformed;
  state.memory = std::move(bytes);
  return state;
}

} // namespace waggle
