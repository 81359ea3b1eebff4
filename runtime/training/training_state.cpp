#include "runtime/training/training_state.hpp"

#include <cstring>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr std::string_view magic = "WGGLST02";

/// Covers the epoch and the digests, too: a flipped bit there would resume at the wrong place.
digest hash_of(std::string_view fields, byte_span learner) {
  return sha256_stream{}.add(fields).add(learner).finish();
}

std::string header_of(const training_state& state) {
  byte_writer out;
  out.put_raw(magic)
    .put(state.epoch.value())
    .put(state.schema)
    .put(state.parameters)
    .put(state.line.branch)
    .put(state.line.parent)
    .put(state.line.forked_at.value())
    .put(state.line.work)
    .put(static_cast<std::uint64_t>(state.learner.size()));
  auto hash = hash_of(out.text(), state.learner);
  out.put(hash);
  return out.take();
}

} // namespace

void seal_state(const training_state& state, std::vector<std::byte>& image) {
  WAGGLE_CHECK(image.size() >= state_header_bytes, "no room for the header");
  auto whole = state;
  whole.learner = byte_span{image}.subspan(state_header_bytes);
  auto header = header_of(whole);
  WAGGLE_CHECK(header.size() == state_header_bytes, std::to_string(header.size()));
  std::memcpy(image.data(), header.data(), header.size());
}

payload encode_state(const training_state& state) {
  auto image = std::make_shared<std::vector<std::byte>>(state_header_bytes + state.learner.size());
  if (!state.learner.empty())
    std::memcpy(image->data() + state_header_bytes, state.learner.data(), state.learner.size());
  seal_state(state, *image);
  return payload_of(std::shared_ptr<const std::vector<std::byte>>{image});
}

result<training_state> decode_state(byte_span image) {
  byte_reader in{image};
  training_state state;
  if (in.get_raw(magic.size()) != magic)
    return failure{ec::malformed, "this is no training state of this version"};
  state.epoch = epoch_id{in.get<std::uint64_t>()};
  state.schema = in.get<digest>();
  state.parameters = in.get<digest>();
  state.line.branch = in.get<digest>();
  state.line.parent = in.get<digest>();
  state.line.forked_at = epoch_id{in.get<std::uint64_t>()};
  state.line.work = in.get<std::uint64_t>();
  auto bytes = in.get<std::uint64_t>();
  auto fields = image.first(image.size() - in.left());
  auto hash = in.get<digest>();
  if (!in.ok() || bytes != in.left())
    return failure{ec::malformed, "the training state is cut off, or too long"};
  state.learner = image.last(in.left());
  if (hash_of(as_string_view(fields), state.learner) != hash)
    return failure{ec::hash_mismatch, "the training state is damaged"};
  return state;
}

} // namespace waggle
