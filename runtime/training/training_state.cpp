#include "runtime/training/training_state.hpp"

#include <algorithm>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/step_count.hpp"

namespace waggle {

namespace {

constexpr std::string_view magic = "WGGLST03";

/// The header without its hash.
std::string fields_of(const training_state& state, std::uint64_t learner_bytes) {
  const auto& past = state.past;
  byte_writer out;
  out.put_raw(magic).put(state.epoch, state.schema, state.parameters);
  out.put(past.branch, past.parent, past.forked_at, past.work, past.steps, learner_bytes);
  return out.take();
}

/// Covers the epoch and the digests, too: a flipped bit there would resume at the wrong position.
result<digest> hash_of(std::string_view fields, const byte_source& image) {
  sha256_stream hash;
  hash.add(fields);
  auto read = for_each_piece(image, state_header_bytes, image.size() - state_header_bytes,
                             [&](byte_span piece) -> status {
                               hash.add(piece);
                               return done{};
                             });
  if (!read)
    return read.error();
  return hash.finish();
}

} // namespace

status seal_state_in(const training_state& state, byte_store& image) {
  WAGGLE_CHECK(image.size() >= state_header_bytes, "no room for the header");
  auto header = fields_of(state, image.size() - state_header_bytes);
  WAGGLE_TRY(hash, hash_of(header, image));
  header += hash->raw();
  WAGGLE_CHECK(header.size() == state_header_bytes, std::to_string(header.size()));
  return image.write(0, as_byte_span(header));
}

result<training_state> decode_state(byte_span image) {
  auto state = check_state(borrowed_bytes{image});
  if (state)
    state->learner = image.subspan(state_header_bytes);
  return state;
}

result<training_state> check_state(const byte_source& image) {
  std::byte header[state_header_bytes];
  std::span<std::byte> known{header, std::min<std::size_t>(state_header_bytes, image.size())};
  WAGGLE_TRY(read, image.read(0, known));
  byte_reader in{byte_span{known}};
  training_state state;
  if (in.get_raw(magic.size()) != magic)
    return failure{ec::malformed, "this is no training state of this version"};
  auto& past = state.past;
  in.read(state.epoch, state.schema, state.parameters);
  in.read(past.branch, past.parent, past.forked_at, past.work, past.steps);
  auto bytes = in.get<std::uint64_t>();
  auto fields = byte_span{known}.first(known.size() - in.left());
  auto hash = in.get<digest>();
  if (!in.ok() || bytes != image.size() - state_header_bytes)
    return failure{ec::malformed, "the training state is cut off, or too long"};
  if (past.steps > counted_steps_max)
    return failure{ec::malformed, "the training state has more steps than any run makes"};
  WAGGLE_TRY(found, hash_of(as_string_view(fields), image));
  if (*found != hash)
    return failure{ec::hash_mismatch, "the training state is damaged"};
  return state;
}

} // namespace waggle
